"""Limits of users and projects: request rates, shared fairly, and slots for long-lived things."""

import contextlib
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.access.admission import Caller
from ams.access.rates import QuotaSlots, Rates, SharedRate
from ams.core.errors import QuotaExceeded, RateLimited
from ams.core.names import ProjectId, ProjectName, UserId, UserName
from ams.core.quotas import REQUESTS, STREAMS, Limits, Quotas
from ams.core.rate import Rate
from ams.storage.registry.records import Project
from tests.support.clock import ManualClock


def take_requests(rate: Rate, key: str, wanted: int) -> int:
    count = 0
    for _ in range(wanted):
        if rate.allows(key):
            rate.take(key)
            count += 1
    return count


STEPS = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 30)), max_size=30)
"""Steps: a number of milliseconds pass, then a number of requests come at once."""


@given(st.integers(1, 20), STEPS)
def test_a_seconds_worth_and_what_time_earns_is_given_no_more(per_second: int, steps: list[tuple[int, int]]) -> None:
    """A token bucket that is filled drop by drop grants the same."""
    clock = ManualClock()
    rate = Rate(per_second, clock)
    drops = full = per_second * 1000
    for milliseconds, wanted in steps:
        clock.advance(milliseconds)
        drops = min(full, drops + milliseconds * per_second)
        granted = min(wanted, drops // 1000)
        assert [rate.allows("k") for _ in range(50)] == [drops >= 1000] * 50, "asking takes nothing"
        assert take_requests(rate, "k", wanted) == granted
        drops -= granted * 1000


def test_the_time_of_day_does_not_matter() -> None:
    clock = ManualClock()
    rate = Rate(1, clock)
    rate.take("k")
    clock.step(-86_400_000)
    assert not rate.allows("k")
    clock.step(2 * 86_400_000)
    assert not rate.allows("k")


def take_shared(rate: SharedRate, user: str, project: str = "P") -> bool:
    if not rate.allows(project, user):
        return False
    rate.take(project, user)
    return True


@given(st.integers(1, 20), STEPS)
def test_who_is_alone_in_a_project_has_all_of_its_rate(per_second: int, steps: list[tuple[int, int]]) -> None:
    clock = ManualClock()
    whole, shared = Rate(per_second, clock), SharedRate(per_second, clock)
    for milliseconds, wanted in steps:
        clock.advance(milliseconds)
        assert take_requests(whole, "P", wanted) == sum(take_shared(shared, "only") for _ in range(wanted))


@given(st.integers(1, 20), st.lists(st.tuples(st.integers(0, 500), st.sampled_from("abc")), max_size=200))
def test_all_users_together_never_have_more_than_the_rate(per_second: int, steps: list[tuple[int, str]]) -> None:
    clock = ManualClock()
    shared = SharedRate(per_second, clock)
    grants = []
    for milliseconds, user in steps:
        clock.advance(milliseconds)
        grants.append((clock.monotonic(), int(take_shared(shared, user))))

    for first, (began, _) in enumerate(grants):
        for (ended, _), total in zip(grants[first:], accumulate(count for _, count in grants[first:]), strict=True):
            assert total <= per_second + (ended - began) * per_second / 1000


@settings(max_examples=20)
@given(st.integers(1, 20), st.integers(1, 1000))
def test_who_comes_back_when_told_gets_in_whatever_a_flood_asks(per_second: int, begin: int) -> None:
    clock = ManualClock()
    shared = SharedRate(per_second, clock)
    comes, refused, got_in = begin, 0, 0
    for moment in range(0, 15_000, 5):
        take_shared(shared, "flood")
        take_shared(shared, "flood")
        if moment >= comes:
            comes = moment + 1000
            is_in = take_shared(shared, "polite")
            refused, got_in = (0, got_in + 1) if is_in else (refused + 1, got_in)
            assert refused <= 2
        clock.advance(5)

    assert got_in >= 6


def max_min(rate: float, wanted: list[float]) -> list[float]:
    """Max-min fairness: small demands are met in full, and the rest is shared evenly."""
    shares, left = dict[int, float](), rate
    for place, (want, who) in enumerate(sorted((want, who) for who, want in enumerate(wanted))):
        shares[who] = min(want, left / (len(wanted) - place))
        left -= shares[who]
    return [shares[who] for who in range(len(wanted))]


SECONDS = 20


def granted_requests(per_second: int, pauses: list[int]) -> list[int]:
    """Send requests of users at fixed intervals in milliseconds; return how many each was granted."""
    clock = ManualClock()
    shared = SharedRate(per_second, clock)
    got = [0] * len(pauses)
    for moment in range(0, SECONDS * 1000, 5):
        for user, pause in enumerate(pauses):
            if moment % pause == 0:
                got[user] += take_shared(shared, str(user))
        clock.advance(5)
    return got


@settings(max_examples=10, deadline=None)
@given(st.integers(16, 60), st.lists(st.sampled_from([5, 10, 25, 50, 100, 500, 1000, 1800]), min_size=1, max_size=8))
def test_what_some_leave_of_their_shares_goes_to_the_others(per_second: int, pauses: list[int]) -> None:
    got = granted_requests(per_second, pauses)

    wanted = [1000 / pause for pause in pauses]
    fair = max_min(per_second, wanted)
    assert sum(got) >= 0.9 * SECONDS * min(per_second, sum(wanted))
    for each, share in zip(got, fair, strict=True):
        assert each >= SECONDS * share / 2


def test_keys_and_projects_do_not_share_and_those_that_nobody_asks_are_forgotten() -> None:
    clock = ManualClock()
    rate, shared = Rate(1, clock), SharedRate(1, clock)
    for key in (f"{second}-{number}" for second in range(20) for number in range(1000)):
        if key.endswith("-0"):
            clock.advance(1000)
        assert take_requests(rate, key, 1) == 1
        assert take_shared(shared, "a", key)

    assert len(rate._free_at) < 3000
    assert len(shared._users) < 7000
    assert (take_requests(rate, "P", 2), [take_shared(shared, "a", "P") for _ in range(2)]) == (1, [True, False])


def caller(request: str) -> Caller:
    user, project = [*request.split(), ""][:2]
    place = Project(ProjectId(project), ProjectName(project), "", 0, 0, None) if project else None
    known = user != "-"
    return Caller(UserId(user) if known else None, UserName(user) if known else None, frozenset(), False, place)


def refusal_messages(rates: Rates, *callers: Caller) -> list[str]:
    found = []
    for each in callers:
        try:
            rates.count(each.user or "", each.project)
            found.append("")
        except RateLimited as refused:
            found.append(refused.message)
    return found


USER = "Too many requests of this user"


def of_project(limit: int) -> str:
    return f"Quota requestsPerSecond of the project is exceeded: its limit is {limit}"


@pytest.mark.parametrize(("users", "projects", "requests", "answers"), [
    pytest.param(2, 0, ["a P", "a Q", "a", "b P"], ["", "", USER, ""], id="a user has one limit in all projects"),
    pytest.param(
        0, 2, ["a P", "- P", "b P", "a Q", "a"], ["", "", of_project(2), "", ""],
        id="a project has one limit for all its users and the service token",
    ),
    pytest.param(1, 0, ["- P"] * 5, [""] * 5, id="the service token is no user"),
    pytest.param(
        5, 10, ["flood P"] * 1000 + ["other P"] * 5, [""] * 5 + [USER] * 995 + [""] * 5,
        id="a flood of refused requests takes nothing from the others",
    ),
    pytest.param(
        3, 1, ["other P", *["a P"] * 3, "a Q", "a R", "a S"], ["", *[of_project(1)] * 3, "", "", ""],
        id="what the project refuses is not taken from the user",
    ),
])  # fmt: skip
def test_users_and_projects_have_limits(users: int, projects: int, requests: list[str], answers: list[str]) -> None:
    rates = Rates(users=users, clock=ManualClock(), rules=Quotas({REQUESTS: projects}))
    assert refusal_messages(rates, *map(caller, requests)) == answers


def test_a_project_with_a_rate_of_its_own_goes_by_that() -> None:
    clock = ManualClock()
    rates = Rates(users=0, clock=clock, rules=Quotas())
    own = caller("a P")
    assert own.project is not None
    own = replace(own, project=replace(own.project, quotas={REQUESTS: 1}))
    assert refusal_messages(rates, own, own, caller("a Q"), caller("a Q")) == ["", of_project(1), "", ""]
    clock.advance(1000)
    wide = replace(own, project=replace(own.here, quotas={REQUESTS: 2}))
    assert refusal_messages(rates, wide, wide, wide) == ["", "", of_project(2)]


def project_with(name: str, quotas: Limits) -> Project:
    return Project(ProjectId(name), ProjectName(name), "", 0, 0, None, None, quotas)  # type: ignore[arg-type]


SHARED = "it has 9, and leaves fewer free"


@pytest.mark.parametrize(("default", "own", "most", "why"), [
    (0, {}, 9, SHARED), (2, {}, 2, "its limit is 2"), (2, {STREAMS: 3}, 3, "its limit is 3"),
    (2, {STREAMS: 0}, 9, SHARED),
])  # fmt: skip
def test_a_project_has_its_quota_and_others_do_not_notice(default: int, own: Limits, most: int, why: str) -> None:
    slots = QuotaSlots(Quotas({STREAMS: default}), STREAMS, 17)
    here, other = project_with("P", own), project_with("Q", {})
    with contextlib.ExitStack() as stack:
        for _ in range(most):
            stack.enter_context(slots.hold(here))
        assert slots.held_by(here.id) == most
        with slots.hold(other):
            assert slots.held_by(other.id) == 1
        with pytest.raises(QuotaExceeded, match=f"Quota streams of the project is exceeded: {why}"):
            stack.enter_context(slots.hold(here))
    with contextlib.suppress(KeyError), slots.hold(here):
        raise KeyError
    assert (slots.held_by(here.id), slots.held_by(other.id)) == (0, 0)
