"""HTTP contract 13.4 and 17.2 A12: what an endpoint has to answer, over real TLS."""

import contextlib
import functools
import gc
import socket
import time
from collections.abc import Iterator, Sequence

import pytest

from ams.core.errors import Overloaded
from ams.core.names import ProjectId
from ams.outgoing import guard
from ams.outgoing.guard import Guard, networks
from ams.push.endpoints import CHECKS, CHECKS_OF_PROJECT, CheckFailed, CheckSlots, EndpointCheck
from tests.support.receiver import Behaviour, Receiver, answers, drips, floods, is_silent, receiver, sends

trust = functools.cache(guard.trust)
"""Made once: there are many CAs to be read."""
HASH = "ab" * 32
LOOPBACK = networks("127.0.0.0/8,::1/128", "push_allow")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    with receiver(tmp_path_factory.mktemp("ca"), answers(HASH)) as running:
        yield running


@contextlib.contextmanager
def full_backlog() -> Iterator[int]:
    """Give a port whose listener accepts nobody and has no room for more."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def check_of(endpoint: Receiver, seconds: float = 5.0) -> EndpointCheck:
    return EndpointCheck(Guard(LOOPBACK), trust(endpoint.ca), seconds)


async def failure(endpoint: Receiver, behaviour: Behaviour, seconds: float = 5.0) -> str:
    endpoint.behaviour = behaviour
    with pytest.raises(CheckFailed) as failed:
        await check_of(endpoint, seconds).check("127.0.0.1", endpoint.port, HASH)
    return str(failed.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_the_hash_is_asked_for_at_the_root_of_the_host(endpoint: Receiver, host: str) -> None:
    endpoint.behaviour = answers(HASH)

    await check_of(endpoint).check(host, endpoint.port, HASH)

    head = endpoint.heads[-1].decode().split("\r\n")
    assert head[0] == "GET /ams_verification_hash HTTP/1.1"
    assert f"Host: {host}:{endpoint.port}" in head
    assert not any(line.lower().startswith("authorization") for line in head)


async def test_a_body_in_chunks_is_as_good(endpoint: Receiver) -> None:
    chunks = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\n{HASH[:32]}\r\n20\r\n{HASH[32:]}\r\n0\r\n\r\n"
    endpoint.behaviour = sends(chunks.encode())

    await check_of(endpoint).check("127.0.0.1", endpoint.port, HASH)


@pytest.mark.parametrize("body", ["", HASH[:-1], HASH + "\n", HASH.upper(), "ü" * 32, '"' + HASH + '"'])
async def test_any_other_body_is_the_wrong_hash(endpoint: Receiver, body: str) -> None:
    assert await failure(endpoint, answers(body)) == "Wrong verification hash"


@pytest.mark.parametrize("status", ["201 Created", "204 No Content", "404 Not Found", "500 Oops", "100000 Odd"])
async def test_any_other_status_is_wrong(endpoint: Receiver, status: str) -> None:
    expected = "Wrong response status code" if status[3] == " " else "illegal status line"
    body = "" if status.startswith("204") else HASH

    assert expected in await failure(endpoint, answers(body, status))


async def test_redirects_are_not_followed(endpoint: Receiver) -> None:
    seen = len(endpoint.heads)
    back = f"Location: https://127.0.0.1:{endpoint.port}/ams_verification_hash"

    assert await failure(endpoint, answers(HASH, "302 Found", back)) == "Wrong response status code"
    assert len(endpoint.heads) == seen + 1


async def test_an_endless_body_is_not_read(endpoint: Receiver) -> None:
    assert await failure(endpoint, floods) == "Wrong verification hash"


@pytest.mark.parametrize("line", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n"])
async def test_an_endless_prelude_is_not_read(endpoint: Receiver, line: bytes) -> None:
    began = time.process_time()

    assert await failure(endpoint, sends(line * 1_000_000)) == "The answer is too long"
    assert time.process_time() - began < 2


async def test_an_address_that_swallows_connects_is_told(endpoint: Receiver) -> None:
    with full_backlog() as port, pytest.raises(CheckFailed, match="^No answer within 0.4 seconds, while connecting$"):
        await check_of(endpoint, 0.4).check("127.0.0.1", port, HASH)


@pytest.mark.parametrize("host", ["a..b", ".a", "a" * 64])
async def test_what_can_be_no_host_name_is_told(endpoint: Receiver, host: str) -> None:
    with pytest.raises(CheckFailed, match="has no address"):
        await check_of(endpoint).check(host, endpoint.port, HASH)


def test_a_few_endpoints_are_asked_at_once_of_a_project_and_in_all() -> None:
    slots = CheckSlots()
    with contextlib.ExitStack() as stack:
        for number in range(CHECKS):
            stack.enter_context(slots.taken(ProjectId(str(number // CHECKS_OF_PROJECT))))
            if number == CHECKS_OF_PROJECT - 1:
                with pytest.raises(Overloaded), slots.taken(ProjectId("0")):
                    pass
        with pytest.raises(Overloaded), slots.taken(ProjectId("x")):
            pass
    with slots.taken(ProjectId("0")):
        pass


@pytest.mark.parametrize(("behaviour", "step"), [(is_silent, "waiting for"), (drips, "reading")])
async def test_all_of_it_ends_in_time(endpoint: Receiver, behaviour: Behaviour, step: str) -> None:
    started = time.monotonic()

    assert await failure(endpoint, behaviour, 0.3) == f"No answer within 0.3 seconds, while {step} the answer"
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    "raw", [b"", b"hello\r\n\r\n", b"HTTP/1.1", b"\x16\x03" * 1000, b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000]
)
async def test_what_is_no_answer_is_told_in_one_line(endpoint: Receiver, raw: bytes) -> None:
    said = await failure(endpoint, sends(raw))

    assert said
    assert "\n" not in said
    assert len(said) < 300


async def test_a_body_that_ends_too_early_is_told(endpoint: Receiver) -> None:
    half = f"HTTP/1.1 200 OK\r\nContent-Length: 64\r\n\r\n{HASH[:32]}"

    assert "closed before the answer was whole" in await failure(endpoint, sends(half.encode()))


async def test_a_port_nobody_listens_on_is_told(endpoint: Receiver) -> None:
    with pytest.raises(CheckFailed, match="attempts failed|refused|Connect call failed"):
        await check_of(endpoint).check("127.0.0.1", 1, HASH)


async def test_a_certificate_for_another_name_is_refused(endpoint: Receiver) -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    check = EndpointCheck(Guard(LOOPBACK, resolve), trust(endpoint.ca))

    with pytest.raises(CheckFailed, match="certificate"):
        await check.check("receiver.example", endpoint.port, HASH)


async def test_a_certificate_of_an_unknown_authority_is_refused(endpoint: Receiver) -> None:
    with pytest.raises(CheckFailed, match="certificate"):
        await EndpointCheck(Guard(LOOPBACK), trust()).check("127.0.0.1", endpoint.port, HASH)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_without_leave_nothing_is_asked_of_this_machine(endpoint: Receiver, host: str) -> None:
    seen = len(endpoint.heads)

    with pytest.raises(CheckFailed, match="is not a public address"):
        await EndpointCheck(Guard(), trust(endpoint.ca)).check(host, endpoint.port, HASH)

    assert len(endpoint.heads) == seen


async def test_no_connection_stays_open(endpoint: Receiver) -> None:
    endpoint.behaviour = answers(HASH)

    await check_of(endpoint).check("127.0.0.1", endpoint.port, HASH)

    gc.collect()  # a forgotten connection would warn, and warnings fail tests
