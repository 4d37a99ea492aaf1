"""Endpoints inside are not reached by push, however they come to be configured; the state says why."""

import asyncio
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ams.outgoing import lookups
from tests.faults.push.deliveries import message
from tests.support.pushed import Api, Endpoint, pushed
from tests.support.receiving import Receiving, received
from tests.support.service import live_service, running_service

pytestmark = pytest.mark.acceptance

REFUSED = "is not a public address"
WAIT_SECONDS = 20.0
NAME = "moving.receiver.example"


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiving]:
    with received(tmp_path_factory.mktemp("receiver")) as running:
        yield running


@pytest.fixture
def trusted(receiver: Receiving) -> dict[str, str]:
    receiver.forget()
    return {"AMS_PUSH_CA_FILE": receiver.ca}


async def _says(api: Api, subscription: str, words: str) -> None:
    """Return when the `pushStatus` has these words; fail after a while."""
    give_up = time.monotonic() + WAIT_SECONDS
    while words not in (said := await api.status(subscription)):
        assert time.monotonic() < give_up, said
        await asyncio.sleep(0.05)


async def _count(receiver: Receiving, count: int) -> None:
    """Return when so many deliveries have come; fail after a while."""
    give_up = time.monotonic() + WAIT_SECONDS
    while len(receiver.requests("/close")) < count:
        assert time.monotonic() < give_up
        await asyncio.sleep(0.05)


async def test_a_private_endpoint_gets_nothing_and_the_state_says_why(
    tmp_path: Path, receiver: Receiving, trusted: dict[str, str]
) -> None:
    with live_service(tmp_path / "data", environment=trusted) as service:
        async with Api(service.base_url, service.token) as api:
            await api.must("", {})
            await api.must("/topics/t", None, method="PUT")
            push = {"type": "http_endpoint", "pushEndpoint": receiver.url()}
            await api.must(
                "/subscriptions/http", {"topic": "projects/FAULTS/topics/t", "pushConfig": push}, method="PUT"
            )
            answer = await api.ask("/subscriptions/http:verifyPushEndpoint", None)
            hook = {"type": "mattermost", "mattermostUrl": receiver.url("/mattermost")}
            await api.must(
                "/subscriptions/hook", {"topic": "projects/FAULTS/topics/t", "pushConfig": hook}, method="PUT"
            )
            await api.must("/topics/t:publish", {"messages": [message("secret")]})
            await _says(api, "hook", f"Could not send message, 127.0.0.1 {REFUSED}")

    assert answer.status_code == 401
    assert answer.json()["error"]["message"] == f"Endpoint verification failed.127.0.0.1 {REFUSED}"
    assert receiver.requests() == []


async def test_an_endpoint_that_is_allowed_no_more_gets_nothing_more(
    tmp_path: Path, receiver: Receiving, trusted: dict[str, str]
) -> None:
    allowed = trusted | {"AMS_PUSH_ALLOW": "127.0.0.0/8"}
    with live_service(tmp_path / "data", environment=allowed) as service:
        async with Api(service.base_url, service.token) as api:
            await api.must("", {})
            await pushed(api, receiver.ca, [Endpoint("s", receiver.url("/ok/before"))])
            await api.must("/topics/s:publish", {"messages": [message("first")]})
            receiver.wait(1, "/ok/before")
    with live_service(tmp_path / "data", environment=trusted) as service:
        async with Api(service.base_url, service.token) as api:
            await api.must("/topics/s:publish", {"messages": [message("second")]})
            await _says(api, "s", REFUSED)

    assert len(receiver.requests("/ok/before")) == 1


@pytest.mark.embedded("it is about addresses, not about engines")
async def test_a_name_that_leads_inside_later_leads_nowhere(
    tmp_path: Path, receiver: Receiving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address that was judged is the one that is connected to, and it is judged for each connection."""
    addresses = ["127.0.0.1"]
    asked: list[str] = []
    _resolve(monkeypatch, addresses, asked)
    receiver.forget()
    settings = {"push_allow": "127.0.0.1/32", "push_ca_file": receiver.ca}
    async with running_service(tmp_path / "data", **settings) as (run, token), Api(run.base_url, token) as api:
        with socket.create_server(("127.0.0.2", receiver.port)) as inside:
            inside.setblocking(False)
            await api.must("", {})
            endpoint = Endpoint("s", f"https://{NAME}:{receiver.port}/close")
            await pushed(api, receiver.ca, [endpoint])
            await api.must("/topics/s:publish", {"messages": [message("first")]})
            await _count(receiver, 1)
            addresses[:] = ["127.0.0.2"]
            await api.must("/topics/s:publish", {"messages": [message("second")]})
            await _says(api, "s", f"{NAME} {REFUSED}")
            before = len(asked)
            addresses[:] = ["127.0.0.2", "127.0.0.1"]
            await _count(receiver, 2)

            with pytest.raises(BlockingIOError):  # nobody came
                inside.accept()
    assert len(asked) > before


def _resolve(monkeypatch: pytest.MonkeyPatch, addresses: Sequence[str], asked: list[str]) -> None:
    """Let the name have these addresses, as they are when it is asked for."""
    real = socket.getaddrinfo

    def find(host: Any, port: Any, *arguments: Any, **more: Any) -> Any:
        if host not in (NAME, NAME.encode()):
            return real(host, port, *arguments, **more)
        asked.append(NAME)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", find)
    monkeypatch.setattr(lookups, "KEEP_SECONDS", 0.0)
