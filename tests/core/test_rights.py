"""What a right is for, and what it is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import InvalidInput
from ams.core.rights import ANY, MOST, PUBLISH, Right, allow, checked, is_resource

GARDEN = {"project": "garden"}
READINGS = {"project": "garden", "topic": "readings"}
ACTIONS = ("topics:publish", "topics:show", "subscriptions:pull")
RIGHTS = st.builds(
    Right,
    st.sampled_from([ANY, *ACTIONS]),
    st.sampled_from([ANY, "projects/garden", "projects/garden/topics/readings", "projects/field"]),
)
NAMES = st.sampled_from([{}, GARDEN, READINGS, {"project": "field"}, {"project": "garden", "subscription": "readings"}])


@pytest.mark.parametrize(
    ("resource", "names", "is_included"),
    [
        ("projects/garden/topics/readings", READINGS, True),
        ("projects/garden/topics/readings", GARDEN, False),
        ("projects/garden/topics/readings", {"project": "field", "topic": "readings"}, False),
        ("projects/garden/topics/read", READINGS, False),
        ("projects/garden/topics/readings", {"project": "garden", "subscription": "readings"}, False),
        ("projects/garden", READINGS, True),
        ("projects/garden", {"project": "garden2", "topic": "readings"}, False),
        ("projects/garden", {"user": "garden"}, False),
        (ANY, {"user": "alice"}, True),
        (ANY, {}, True),
    ],
)
def test_a_right_includes_all_that_it_names(resource: str, names: dict[str, str], is_included: bool) -> None:
    assert allow((Right("topics:publish", resource),), "topics:publish", names) is is_included
    assert not allow((Right("topics:show", resource),), "topics:publish", names)


@given(st.lists(RIGHTS, max_size=4), RIGHTS, st.sampled_from(ACTIONS), NAMES)
def test_a_right_more_takes_nothing_away(rights: list[Right], more: Right, action: str, names: dict[str, str]) -> None:
    assert not allow((), action, names)
    assert allow((*rights, more), action, names) == (
        allow(tuple(rights), action, names) or allow((more,), action, names)
    )


@pytest.mark.parametrize(
    "resource",
    ["", "projects", "projects/", "projects/a b", "projects/p/", "projects/p/topics", "projects/p/topics/", "topics/t",
     "projects/p/things/t", "projects/p/topics/t/u", "projects/*", "/projects/p", "users/alice"],
)  # fmt: skip
def test_what_is_no_resource_is_refused(resource: str) -> None:
    assert not is_resource(resource)
    with pytest.raises(InvalidInput, match="invalid resource"):
        checked([("topics:publish", resource)], ACTIONS)


def test_rights_are_of_known_actions_each_once_and_not_too_many() -> None:
    publish = ("topics:publish", "projects/p/topics/t")
    assert checked([publish, publish, (ANY, ANY)], ACTIONS) == (Right(*publish), Right(ANY, ANY))
    assert set(PUBLISH) <= set(ACTIONS)
    with pytest.raises(InvalidInput, match="invalid action: topics:eat"):
        checked([("topics:eat", ANY)], ACTIONS)
    with pytest.raises(InvalidInput, match="good for something"):
        checked([], ACTIONS)
    with pytest.raises(InvalidInput, match="at most"):
        checked([("topics:publish", f"projects/p/topics/t{n}") for n in range(MOST + 1)], ACTIONS)
