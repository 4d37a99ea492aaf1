"""Connecting: names are resolved once and checked; required answers of an endpoint (contract 13.4, 17.2 A12)."""

import asyncio
import contextlib
import functools
import gc
import ipaddress
import threading
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ams.core.errors import Overloaded
from ams.core.names import ProjectId
from ams.outgoing import address_guard
from ams.outgoing.address_guard import AddressRefused, Guard, Resolver, networks
from ams.push.endpoint_connection import (
    AttemptProgress,
    Connector,
    Endpoint,
    EndpointConnection,
    Unreachable,
    start_tls,
)
from ams.push.endpoint_connection import connect_socket as connected_socket
from ams.push.endpoints import MAX_CHECKS, MAX_CHECKS_OF_PROJECT, CheckFailed, CheckSlots, EndpointCheck
from tests.support.loop_time import pass_loop_time
from tests.support.memory import in_a_process
from tests.support.receiver import Behaviour, Receiver, answers, drips, floods, is_silent, receiver, sends
from tests.support.receiving import Receiving
from tests.support.waiting import PATIENCE_SECONDS, some_turns, wait_until_async


class ChangingResolver:
    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        return self.answers.pop(0)


async def connect_receiver(
    receiving: Receiving, resolve: Resolver, allowed: str = "127.0.0.1/32"
) -> EndpointConnection:
    connector = Connector(Guard(networks(allowed, "push_allow"), resolve), trust(receiving.ca))
    until = asyncio.get_running_loop().time() + 5
    return await connector.connect(Endpoint("receiver.example", receiving.port), AttemptProgress(), until)


async def ask_status(connection: EndpointConnection) -> int:
    reply = await connection.ask("POST", "/ok", [], b"{}", keep=0, progress=AttemptProgress())
    await connection.aclose()
    return reply.status


async def test_a_name_is_resolved_once_and_refused_when_it_changes_to_a_refused_address(receiving: Receiving) -> None:
    resolve = ChangingResolver(["127.0.0.1"], ["127.0.0.2"])

    assert await ask_status(await connect_receiver(receiving, resolve)) == 200

    assert resolve.answers == [["127.0.0.2"]]
    assert receiving.requests("/ok")[0].headers["host"] == f"receiver.example:{receiving.port}"
    with pytest.raises(AddressRefused, match=r"^receiver.example is not a public address$"):
        await connect_receiver(receiving, resolve)


async def test_of_several_addresses_refused_ones_are_left_out_and_dead_ones_passed_over(receiving: Receiving) -> None:
    resolve = ChangingResolver(["10.0.0.1", "127.0.0.3", "127.0.0.1"])

    assert await ask_status(await connect_receiver(receiving, resolve, "127.0.0.0/8")) == 200


async def test_a_silent_address_leaves_time_for_the_next(receiving: Receiving, monkeypatch: pytest.MonkeyPatch) -> None:
    swallowing = urlsplit(receiving.bad("swallow")).port or 0
    connector = Connector(
        Guard(networks("127.0.0.0/8", "push_allow"), ChangingResolver(["127.0.0.1", "127.0.0.2"])), trust(receiving.ca)
    )
    until, progress = asyncio.get_running_loop().time() + 2 * PATIENCE_SECONDS, AttemptProgress()
    connecting = asyncio.create_task(connector.connect(Endpoint("receiver.example", swallowing), progress, until))
    await wait_until_async(lambda: progress.step == "connecting")

    pass_loop_time(monkeypatch, PATIENCE_SECONDS)

    with pytest.raises(Unreachable, match=r"^The connection was refused$"):  # by the second: nobody listens there
        await connecting


@pytest.mark.parametrize(("error", "said"), [
    (OSError(-2, "Name or service not known"), r"^receiver.example has no address: Name or service not known$"),
    (UnicodeError("label empty"), r"^receiver.example has no address"),
], ids=["unknown", "no host name"])  # fmt: skip
async def test_a_name_without_an_address_is_told(receiving: Receiving, error: Exception, said: str) -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        raise error

    with pytest.raises(Unreachable, match=said):
        await connect_receiver(receiving, resolve)


def _wait(over: threading.Event) -> None:
    over.wait(20)


def sent_traced(folder: Path) -> tuple[int, int]:
    return asyncio.run(_sent_traced(folder))


async def _sent_traced(folder: Path) -> tuple[int, int]:
    """Send more than is accepted; return the bytes waiting to be sent, and the peak memory of that."""
    body, over = bytes(16 * 2**20), threading.Event()
    with receiver(folder, lambda _: _wait(over)) as silent:
        plain = await connected_socket(ipaddress.ip_address("127.0.0.1"), silent.port)
        wire = await start_tls(plain, trust(silent.ca), "localhost")
        connection = EndpointConnection(Endpoint("localhost", silent.port), wire)
        await wire.write(b"POST / HTTP/1.1\r\n\r\n")
        tracemalloc.start()
        try:
            sending = asyncio.create_task(connection.write(body))
            await wait_until_async(wire.transport.get_write_buffer_size)
            await some_turns()
            _, most = tracemalloc.get_traced_memory()
            kept = wire.transport.get_write_buffer_size()
        finally:
            tracemalloc.stop()
        assert not sending.done()
        sending.cancel()
        await connection.aclose()
        over.set()
    return kept, most


def test_of_a_body_that_is_not_taken_only_a_piece_is_kept_besides(tmp_path: Path) -> None:
    kept, most = in_a_process(sent_traced, tmp_path)

    assert kept <= 256 * 1024
    assert most < 2**20


# Required answers of an endpoint, over real TLS

trust = functools.cache(address_guard.trust)  # made once: there are many CAs to be read
HASH = "ab" * 32
LOOPBACK = networks("127.0.0.0/8,::1/128", "push_allow")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    with receiver(tmp_path_factory.mktemp("ca"), answers(HASH)) as running:
        yield running


def check_of(endpoint: Receiver, seconds: float = 60.0) -> EndpointCheck:
    return EndpointCheck(Guard(LOOPBACK), trust(endpoint.ca), seconds)


async def failure(endpoint: Receiver, behaviour: Behaviour, seconds: float = 60.0) -> str:
    endpoint.behaviour = behaviour
    with pytest.raises(CheckFailed) as failed:
        await check_of(endpoint, seconds).check("127.0.0.1", endpoint.port, HASH)
    return str(failed.value)


CHUNKS = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\n{HASH[:32]}\r\n20\r\n{HASH[32:]}\r\n0\r\n\r\n"


@pytest.mark.parametrize("behaviour", [answers(HASH), sends(CHUNKS.encode())], ids=["whole", "in chunks"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_the_hash_is_fetched_at_the_root_of_the_host(endpoint: Receiver, host: str, behaviour: Behaviour) -> None:
    endpoint.behaviour = behaviour

    await check_of(endpoint).check(host, endpoint.port, HASH)

    head = endpoint.heads[-1].decode().split("\r\n")
    assert head[0] == "GET /ams_verification_hash HTTP/1.1"
    assert f"Host: {host}:{endpoint.port}" in head
    assert not any(line.lower().startswith("authorization") for line in head)
    gc.collect()  # a connection that stayed open would warn, and warnings fail tests


HALF_ANSWER = f"HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n{HASH[:32]}".encode()
WRONG_HASH, WRONG_STATUS, TOO_LONG = "Wrong verification hash", "Wrong response status code", "The answer is too long"
CONTINUE, HINTS = b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n"


@pytest.mark.parametrize(("behaviour", "said"), [
    *((answers(body), WRONG_HASH) for body in ("", HASH[:-1], HASH + "\n", HASH.upper(), "ü" * 32, f'"{HASH}"')),
    *((answers(HASH, status), WRONG_STATUS) for status in ("201 Created", "404 Not Found", "500 Oops")),
    (answers("", "204 No Content"), WRONG_STATUS),
    (answers(HASH, "302 Found", "Location: https://127.0.0.1:1/"), WRONG_STATUS),
    (answers(HASH, "100000 Odd"), "illegal status line"), (floods, WRONG_HASH),
    *((sends(line * 1_000_000), TOO_LONG) for line in (CONTINUE, HINTS)),
    (sends(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000), TOO_LONG),
    (sends(HALF_ANSWER), "closed before the answer was whole"), (sends(b""), "closed without an answer"),
    (sends(b"HTTP/1.1"), "closed before the answer was whole"),
])  # fmt: skip
async def test_any_other_answer_fails(endpoint: Receiver, behaviour: Behaviour, said: str) -> None:
    told = await failure(endpoint, behaviour)

    assert said in told
    assert told.isprintable()
    assert len(told) < 300


@pytest.mark.parametrize(("behaviour", "step"), [(is_silent, "waiting for"), (drips, "reading")])
async def test_all_of_it_ends_in_time(endpoint: Receiver, behaviour: Behaviour, step: str) -> None:
    assert await failure(endpoint, behaviour, 3) == f"No answer within 3 seconds, while {step} the answer"


@pytest.mark.parametrize(("name", "knows_ca"), [("receiver.example", True), ("127.0.0.1", False)])
async def test_a_certificate_of_another_name_or_ca_is_refused(endpoint: Receiver, name: str, knows_ca: bool) -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    check = EndpointCheck(Guard(LOOPBACK, resolve), trust(endpoint.ca) if knows_ca else trust())

    with pytest.raises(CheckFailed, match="certificate"):
        await check.check(name, endpoint.port, HASH)


def test_a_few_endpoints_are_asked_at_once_of_a_project_and_in_all() -> None:
    slots = CheckSlots()
    with contextlib.ExitStack() as stack:
        for number in range(MAX_CHECKS):
            stack.enter_context(slots.hold_slot(ProjectId(str(number // MAX_CHECKS_OF_PROJECT))))
            if number == MAX_CHECKS_OF_PROJECT - 1:
                with pytest.raises(Overloaded), slots.hold_slot(ProjectId("0")):
                    pass
        with pytest.raises(Overloaded), slots.hold_slot(ProjectId("x")):
            pass
    with slots.hold_slot(ProjectId("0")):
        pass


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_without_leave_nothing_is_asked_of_this_machine(endpoint: Receiver, host: str) -> None:
    seen = len(endpoint.heads)

    with pytest.raises(CheckFailed, match="is not a public address"):
        await EndpointCheck(Guard(), trust(endpoint.ca)).check(host, endpoint.port, HASH)

    assert len(endpoint.heads) == seen
