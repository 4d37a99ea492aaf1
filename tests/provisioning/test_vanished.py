from dataclasses import replace

import pytest

from ams.provisioning.entitled import judge
from ams.provisioning.plan import plan
from ams.provisioning.state import Bound, Member, State
from ams.provisioning.vanished import Vanished, refusal, removals, vanished
from tests.provisioning.listings import APEL, CLOUD, endpoint, served, site
from tests.provisioning.simulated import EMPTY, after

HOSTS = [endpoint(f"{letter}.example.org") for letter in "abcdef"]
_TOPICS = replace(EMPTY, topics=frozenset({APEL}))
FULL = after(_TOPICS, plan(served(*HOSTS), _TOPICS, role="publisher").steps)


def gone(state: State, *listed, service_type: str = APEL) -> Vanished:
    return vanished({service_type: judge(listed, site)}, state, {})


def why_not(*listed, whole: bool = True, most: int = 5) -> str:
    judged = {APEL: judge(listed, site)}
    return refusal(vanished(judged, FULL, {}), judged, whole=whole, most=most)


def test_a22_who_is_listed_but_not_served_has_not_vanished() -> None:
    *others, last = HOSTS

    assert gone(FULL, *others, replace(last, in_production="N")).who == []
    assert gone(FULL, *others, replace(last, dn="")).who == []
    assert gone(FULL, *others).who == ["gLite-APEL---f-example-org---SITE-A"]


def test_a22_other_types_and_other_peoples_users_are_not_looked_at() -> None:
    state = State({"jane": Member("j")}, {"laptop": Bound("CN=x", "j")}, frozenset(), {})

    assert gone(state, *HOSTS).who == []
    assert gone(FULL, endpoint("x", service_type=CLOUD), service_type=CLOUD).who == []


@pytest.mark.parametrize(
    ("listed", "said", "told"),
    [
        (HOSTS[1:], {}, ""),
        (HOSTS[1:], {"whole": False}, "could be read"),
        ([*HOSTS[1:], replace(HOSTS[0], site="", dn="")], {}, "could be read"),
        ([], {}, "lists no endpoint of gLite-APEL"),
        (HOSTS[2:], {"most": 1}, "2 are more than --max-removals 1"),
        (HOSTS[4:], {}, "4 of 6 are more than half"),
    ],
    ids=["one of six", "a listing did not come", "unreadable", "empty", "too many", "more than half"],
)
def test_a22_nobody_is_removed_when_the_listing_is_doubtful(listed: list, said: dict, told: str) -> None:
    found = why_not(*listed, **said)

    assert (told in found) if told else found == ""


def test_a_binding_whose_user_is_in_another_project_stays() -> None:
    state = State({}, {"gLite-APEL---z---SITE-A": Bound("CN=z", "elsewhere")}, frozenset(), {})

    found = gone(state, *HOSTS)

    assert found.bindings == ("gLite-APEL---z---SITE-A",)
    assert removals(found, state) == []
