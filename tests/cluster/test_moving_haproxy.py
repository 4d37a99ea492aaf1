"""The move.cfg of deploy/, as it is: haproxy before an old service and a new one, holding what comes in between."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cluster.certificates import Authority
from cluster.haproxy import MovingHaproxy
from tests.cluster.stubs import Stub, stubs
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.haproxy


@pytest.fixture
def old(authority: Authority) -> Iterator[Stub]:
    with stubs("old", authority=authority) as [old]:
        yield old


@pytest.fixture
def haproxy(old: Stub, authority: Authority, tmp_path: Path) -> Iterator[MovingHaproxy]:
    both = authority.sign("moving").both
    with (
        stubs("new") as [new],
        MovingHaproxy(tmp_path, old.server_port, authority.ca, new.server_port, both) as running,
    ):
        yield running


def get(haproxy: MovingHaproxy, authority: Authority) -> str:
    context = ssl.create_default_context(cafile=authority.ca)
    with urllib.request.urlopen(f"{haproxy.url}/v1/version", context=context, timeout=PATIENCE_SECONDS) as answer:
        return str(answer.read().decode())


def turn(haproxy: MovingHaproxy, value: str) -> None:
    haproxy.ask(f"set map {haproxy.map} service {value}")


def test_what_comes_while_the_service_is_held_waits_and_is_answered_where_the_map_leads_then(
    haproxy: MovingHaproxy, old: Stub, authority: Authority
) -> None:
    assert get(haproxy, authority) == "old"
    turn(haproxy, "held")
    with ThreadPoolExecutor(5) as clients:
        asked = [clients.submit(get, haproxy, authority) for _ in range(5)]
        wait_until(lambda: held(haproxy) == 5)
        assert not any(each.done() for each in asked)
        turn(haproxy, "new")
        assert [each.result() for each in asked] == ["new"] * 5
    assert len(old.seen) == 1
    turn(haproxy, "old")
    assert get(haproxy, authority) == "old"


def held(haproxy: MovingHaproxy) -> int:
    """Return how many connections of clients there are."""
    [found] = [line for line in haproxy.ask("show info").splitlines() if line.startswith("CurrConns:")]
    return int(found.split()[1])


def test_a_pull_that_waits_at_the_old_service_is_told_when_it_stops_and_may_ask_again(
    haproxy: MovingHaproxy, old: Stub, authority: Authority
) -> None:
    old.breaks = True
    old.goes_on.clear()
    with ThreadPoolExecutor(1) as client:
        pulling = client.submit(get, haproxy, authority)
        wait_until(lambda: old.seen)
        old.goes_on.set()
        with pytest.raises(urllib.error.HTTPError) as told:
            pulling.result()

    with told.value as answer:
        assert (answer.code, answer.headers["Retry-After"]) == (502, "1")
        assert json.load(answer)["error"]["status"] == "BAD_GATEWAY"
