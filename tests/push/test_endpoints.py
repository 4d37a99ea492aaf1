"""Endpoints: their connections, which are kept for a while, and their circuit breakers."""

from hypothesis import given
from hypothesis import strategies as st

from ams.push.endpoint_connection import Endpoint
from ams.push.endpoints import (
    BACKOFF,
    CLOSED,
    FAILURES_TO_OPEN,
    HALF_OPEN,
    JITTER,
    MAX_FORGETTABLE,
    OPEN,
    PROBE_SECONDS,
    Circuit,
    Endpoints,
)


class KeptConnection:
    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.idle_since = 0.0
        self.is_kept = True
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def endpoint(number: int = 0) -> Endpoint:
    return Endpoint(f"{number}.example", 443)


def keep_connections(endpoints: Endpoints, *connections: KeptConnection) -> None:
    for each in connections:
        endpoints.of(each.endpoint, 0.0)
        endpoints.keep(each)  # type: ignore[arg-type]  # it stands in for one


async def test_the_connection_used_last_is_taken_first() -> None:
    endpoints, older, newer = Endpoints(), KeptConnection(endpoint()), KeptConnection(endpoint())
    keep_connections(endpoints, older, newer)

    assert [endpoints.take(endpoint()) for _ in range(3)] == [newer, older, None]
    endpoints.close()


async def test_endpoints_at_one_host_share_connections_and_nothing_else() -> None:
    endpoints, there = Endpoints(), KeptConnection(Endpoint("a.example", 443, "/one"))
    keep_connections(endpoints, there)
    one, other = (endpoints.of(Endpoint("a.example", 443, path), 0.0) for path in ("/one", "/other"))

    assert endpoints.take(Endpoint("a.example", 8443, "/one")) is None
    assert endpoints.take(Endpoint("a.example", 443, "/other")) is there
    assert one is not other
    endpoints.close()


async def test_the_one_longest_idle_makes_place_whosever_it_is() -> None:
    endpoints = Endpoints(max_idle=2)
    connections = [KeptConnection(endpoint(number)) for number in range(3)]
    keep_connections(endpoints, *connections)

    assert [each.is_closed for each in connections] == [True, False, False]
    assert endpoints.take(endpoint(0)) is None
    endpoints.close()


async def test_at_the_end_all_are_closed_and_no_more_are_kept() -> None:
    endpoints, early, late = Endpoints(), KeptConnection(endpoint()), KeptConnection(endpoint())
    keep_connections(endpoints, early)

    endpoints.close()
    keep_connections(endpoints, late)

    assert early.is_closed
    assert late.is_closed


async def test_endpoints_nobody_asks_are_forgotten_when_there_are_many() -> None:
    endpoints = Endpoints()
    busy, broken, _ = (endpoints.of(endpoint(number), 0.0) for number in (0, 1, 2))
    busy.users = 1
    for _ in range(FAILURES_TO_OPEN):
        broken.circuit = broken.circuit.after_failure(0.0, 0.5)
    linked = KeptConnection(endpoint(2))
    keep_connections(endpoints, linked)

    for number in range(MAX_FORGETTABLE + 1):
        endpoints.of(endpoint(number), 0.0)

    assert [endpoints.get(endpoint(number)) for number in (0, 1, 3)] == [busy, broken, None]
    assert endpoints.take(endpoint(2)) is linked
    endpoints.close()


# Circuit breakers of endpoints that do not answer

RANDOM_SHARES = st.floats(0, 1, exclude_max=True)
STEPS = st.lists(st.tuples(
    st.sampled_from(["begins", "succeeded", "failed", "nothing"]), st.floats(0, 100), RANDOM_SHARES
), max_size=60)  # fmt: skip


def open_circuit(now: float = 0.0, random: float = 0.5) -> Circuit:
    state = Circuit()
    for _ in range(FAILURES_TO_OPEN):
        state = state.after_failure(now, random)
    return state


def test_it_opens_after_five_failures_in_a_row_and_not_before() -> None:
    state = Circuit()
    for _ in range(FAILURES_TO_OPEN - 1):
        state = state.after_failure(0, 0.5)

    assert state.name(0) == CLOSED
    assert state.after_failure(0, 0.5).name(0) == OPEN
    assert state.after_success() == Circuit()


def test_an_open_one_lets_nothing_through_until_its_time_has_come() -> None:
    state = open_circuit()

    assert not state.allows(0.99)
    assert state.wait(0.25) == 0.75
    assert state.allows(1.0)
    assert state.wait(1.0) == 0


def test_a_half_open_one_lets_one_request_through_and_another_when_nothing_is_heard_of_it() -> None:
    state = open_circuit().begins(1.0)

    assert state.name(1.0) == HALF_OPEN
    assert not state.allows(1.0)
    assert 0 < state.wait(1.0) <= 1
    assert state.wait(0.5 + PROBE_SECONDS) == 0.5
    assert not state.allows(PROBE_SECONDS)
    assert state.allows(1.0 + PROBE_SECONDS)
    assert state.after_success() == Circuit()


def test_failures_of_requests_that_were_on_their_way_when_it_opened_change_nothing() -> None:
    state = open_circuit()

    assert state.after_failure(0.5, 0.5) == state


@given(STEPS)
def test_it_is_never_open_for_more_than_a_minute_and_its_jitter(steps: list[tuple[str, float, float]]) -> None:
    state, now = Circuit(), 0.0
    for what, span, random in steps:
        now += span
        if what == "begins" and state.allows(now):
            state = state.begins(now)
        elif what == "succeeded":
            state = state.after_success()
        elif what == "failed":
            state = state.after_failure(now, random)

        assert 0 <= state.wait(now) <= BACKOFF.most * (1 + JITTER)
        assert (state.wait(now) == 0) == state.allows(now)
        assert state.allows(now) or state.name(now) != CLOSED
        assert state.allows(now + BACKOFF.most * 2)


def test_endpoints_that_failed_together_are_asked_at_different_times() -> None:
    assert [round(open_circuit(random=each).until, 3) for each in (0.0, 0.25, 0.5, 0.75, 1.0)] == [
        0.85, 0.925, 1.0, 1.075, 1.15,
    ]  # fmt: skip


def test_each_opening_is_twice_as_long_as_the_one_before_up_to_a_minute() -> None:
    state, now, spans = open_circuit(), 0.0, []
    for _ in range(9):
        spans.append(state.wait(now))
        now += spans[-1]
        state = state.begins(now).after_failure(now, 0.5)

    assert spans == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_an_endpoint_that_is_away_for_years_is_still_asked_every_minute() -> None:
    state = Circuit(0, 10**9, 0.0)

    assert state.after_failure(1.0, 0.5).wait(1.0) == BACKOFF.most
