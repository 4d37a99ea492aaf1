"""Quotas: defaults, a project's own values, and what may be changed."""

import pytest

from ams.core.errors import InvalidInput, QuotaExceeded
from ams.core.quotas import MAX_LIMIT, QUOTAS, Limits, Quotas, changed_limits
from ams.core.settings import Settings

RULES = Quotas({"topics": 5, "schemas": 0})


def test_every_quota_has_a_setting() -> None:
    assert set(QUOTAS.values()) <= {each.name for each in Settings.fields()}


@pytest.mark.parametrize(
    ("own", "name", "limit"),
    [({}, "topics", 5), ({"topics": 9}, "topics", 9), ({"topics": 0}, "topics", 0), ({}, "schemas", 0),
     ({"topics": 9}, "members", 0)],
)  # fmt: skip
def test_an_own_value_replaces_the_default(own: Limits, name: str, limit: int) -> None:
    assert RULES.limit(own, name) == limit
    RULES.check(own, name, limit)
    RULES.check(own, name, 0)
    if limit:
        with pytest.raises(QuotaExceeded, match=f"Quota {name} of the project is exceeded: its limit is {limit}"):
            RULES.check(own, name, limit + 1)
    else:
        RULES.check(own, name, MAX_LIMIT)


def test_changes_set_take_away_and_leave() -> None:
    own = {"topics": 9, "members": 3}
    assert changed_limits(own, {"topics": None, "schemas": 0}) == {"schemas": 0, "members": 3}
    assert own == {"topics": 9, "members": 3}


@pytest.mark.parametrize(("name", "value"), [("pages", 1), ("pages", None), ("topics", -1), ("topics", MAX_LIMIT + 1)])
def test_what_is_no_quota_changes_nothing(name: str, value: int | None) -> None:
    with pytest.raises(
        InvalidInput, match=r"no quota 'pages': there are storedBytes, |The quota topics is a whole number"
    ):
        changed_limits({}, {name: value})
