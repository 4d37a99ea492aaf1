"""Endpoints: connections are kept for a while and never too many, and what nobody needs is forgotten."""

from ams.push import circuit
from ams.push.connecting import Endpoint
from ams.push.endpoints import MAX_FORGETTABLE, Endpoints


class Kept:
    """A connection as far as its keeper needs it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.idle_since = 0.0
        self.is_kept = True
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def endpoint(number: int = 0) -> Endpoint:
    return Endpoint(f"{number}.example", 443)


def keep(endpoints: Endpoints, *connections: Kept) -> None:
    for each in connections:
        endpoints.of(each.endpoint, 0.0)
        endpoints.keep(each)  # type: ignore[arg-type]  # it stands in for one


async def test_the_connection_used_last_is_taken_first() -> None:
    endpoints, older, newer = Endpoints(), Kept(endpoint()), Kept(endpoint())
    keep(endpoints, older, newer)

    assert [endpoints.take(endpoint()) for _ in range(3)] == [newer, older, None]
    endpoints.close()


async def test_endpoints_at_one_host_share_connections_and_nothing_else() -> None:
    endpoints, there = Endpoints(), Kept(Endpoint("a.example", 443, "/one"))
    keep(endpoints, there)
    one, other = (endpoints.of(Endpoint("a.example", 443, path), 0.0) for path in ("/one", "/other"))

    assert endpoints.take(Endpoint("a.example", 8443, "/one")) is None
    assert endpoints.take(Endpoint("a.example", 443, "/other")) is there
    assert one is not other
    endpoints.close()


async def test_a_connection_that_ended_meanwhile_is_not_taken() -> None:
    endpoints, ended = Endpoints(), Kept(endpoint())
    keep(endpoints, ended)
    ended.is_kept = False

    assert endpoints.take(endpoint()) is None
    assert ended.is_closed
    endpoints.close()


async def test_the_one_longest_idle_makes_place_whosever_it_is() -> None:
    endpoints = Endpoints(max_idle=2)
    connections = [Kept(endpoint(number)) for number in range(3)]
    keep(endpoints, *connections)

    assert [each.is_closed for each in connections] == [True, False, False]
    assert endpoints.take(endpoint(0)) is None
    endpoints.close()


async def test_at_the_end_all_are_closed_and_no_more_are_kept() -> None:
    endpoints, early, late = Endpoints(), Kept(endpoint()), Kept(endpoint())
    keep(endpoints, early)

    endpoints.close()
    keep(endpoints, late)

    assert early.is_closed
    assert late.is_closed


async def test_endpoints_nobody_asks_are_forgotten_when_there_are_many() -> None:
    endpoints = Endpoints()
    busy, broken, _ = (endpoints.of(endpoint(number), 0.0) for number in (0, 1, 2))
    busy.users = 1
    for _ in range(circuit.FAILURES):
        broken.circuit = circuit.failed(broken.circuit, 0.0, 0.5)
    linked = Kept(endpoint(2))
    keep(endpoints, linked)

    for number in range(MAX_FORGETTABLE + 1):
        endpoints.of(endpoint(number), 0.0)

    assert [endpoints.get(endpoint(number)) for number in (0, 1, 3)] == [busy, broken, None]
    assert endpoints.take(endpoint(2)) is linked
    endpoints.close()
