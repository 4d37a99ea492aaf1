"""The sender over real TLS: errors of failed attempts, reuse of connections, and isolation of endpoints."""

import asyncio
import contextlib
import functools
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from ams.outgoing import address_guard
from ams.outgoing.address_guard import Guard, networks
from ams.push.endpoint_connection import Reply
from ams.push.endpoints import FAILURES_TO_OPEN, MAX_CONCURRENT
from ams.push.sender import (
    NO_HTTPS,
    TEXT_BYTES,
    CircuitOpen,
    EndpointAnswer,
    HttpSender,
    SendFailed,
    answer,
    excerpt,
    retry_after,
)
from tests.support.clock import ManualClock
from tests.support.memory import in_a_process
from tests.support.publishing import Publishing
from tests.support.receiving import Receiving
from tests.support.waiting import wait_until_async

trust = functools.cache(address_guard.trust)  # made once: there are many CAs to be read
LOOPBACK = networks("127.0.0.0/8", "push_allow")
BODY = b'{"message":{"data":"aGk="}}'
HEADERS = [("Content-Type", "application/json"), ("Authorization", "secret")]


@contextlib.asynccontextmanager
async def open_sender(receiving: Receiving, **more: object) -> AsyncIterator[HttpSender]:
    sender = HttpSender(Guard(LOOPBACK), trust(receiving.ca), **more)  # type: ignore[arg-type]  # tests name them freely
    async with wait_for_closing(receiving):  # a loop that ends before connections do complains of them
        try:
            yield sender
        finally:
            await sender.close()


@contextlib.asynccontextmanager
async def wait_for_closing(receiving: Receiving, kept: int = 0) -> AsyncIterator[Callable[[], int]]:
    """Wait until only so many of the connections opened meanwhile are open; yields a function that counts them.

    They close in later iterations of the loop, and in TLS's own time.
    """
    before = open_sockets(receiving)
    try:
        yield lambda: open_sockets(receiving) - before
    finally:
        await wait_until_async(lambda: open_sockets(receiving) <= before + kept)


@contextlib.asynccontextmanager
async def under_way(*posts: Coroutine[Any, Any, object]) -> AsyncIterator[list["asyncio.Task[object]"]]:
    """Let requests be made meanwhile, and cancel those that are not answered."""
    tasks = [asyncio.create_task(each) for each in posts]
    try:
        yield tasks
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def sender(receiving: Receiving) -> AsyncIterator[HttpSender]:
    async with open_sender(receiving) as sender:
        yield sender


async def post(sender: HttpSender, url: str, seconds: float = 60.0) -> EndpointAnswer:
    return await sender.send(url, HEADERS, BODY, seconds=seconds)


async def failure(sender: HttpSender, url: str, seconds: float = 60.0) -> str:
    with pytest.raises(SendFailed) as failed:
        await post(sender, url, seconds)
    said = str(failed.value)
    assert said.isprintable()
    assert 0 < len(said) <= 300
    return said


def open_sockets(receiving: Receiving) -> int:
    """Return this process's connections to the receiver; other parts of it may have their own."""
    ports = receiving.ports
    own = {str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()}
    lines = [each.split() for each in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(line[2].rpartition(":")[2], 16) in ports and f"socket:[{line[9]}]" in own for line in lines)


async def test_a_delivery_is_a_post_with_the_headers_given(receiving: Receiving, sender: HttpSender) -> None:
    assert await post(sender, receiving.url("/ok/a?b=c#d")) == EndpointAnswer(200, "")

    (came,) = receiving.requests()
    assert (came.method, came.target, came.body) == ("POST", "/ok/a?b=c", BODY.decode())
    assert came.headers["authorization"] == "secret"
    assert came.headers["host"] == f"127.0.0.1:{receiving.port}"
    assert came.headers["user-agent"].startswith("ams/")
    assert "accept-encoding" not in came.headers


@pytest.mark.parametrize(("path", "status", "text"), [
    ("/created", 201, ""), ("/accepted", 202, ""), ("/empty", 204, ""), ("/gone", 410, "gone"),
    ("/status/500?body=no+disk", 500, "no disk"), ("/redirect", 307, ""), ("/bomb", 500, ""),
    ("/status/422?body=" + "a" * 3000, 422, "a" * TEXT_BYTES),
    ("/status/400?body=%7B%22message%22%3A1%7D", 400, '{"message":1}'),
])  # fmt: skip
async def test_a_redirect_is_not_followed(receiving: Receiving, sender: HttpSender, path: str, status: int, text: str):
    answer = await post(sender, receiving.url(path))

    assert answer.status == status
    assert text in answer.text
    assert len(answer.text) <= TEXT_BYTES
    assert receiving.numbers().requests == 1


@pytest.mark.parametrize(("name", "said"), [
    ("expired", "TLS: certificate has expired"),
    ("other-name", "TLS: IP address mismatch, certificate is not valid for '127.0.0.1'."),
    ("unknown-ca", "TLS: unable to get local issuer certificate"),
    ("tls-1.0", "TLS: the endpoint has no TLS 1.2 or newer"), ("tls-1.1", "TLS: the endpoint has no TLS 1.2 or newer"),
    ("alert", "TLS: the endpoint has no TLS 1.2 or newer"),
    ("plain", "TLS: the endpoint does not speak TLS on this port"),
    ("reset", "TLS: the connection was reset during the handshake"), ("refused", "The connection was refused"),
])  # fmt: skip
async def test_a_failed_connection_has_its_cause(receiving: Receiving, sender: HttpSender, name: str, said: str):
    async with wait_for_closing(receiving):
        assert await failure(sender, receiving.bad(name)) == said


NO_ANSWERS = {
    "/garbage": "The answer is not HTTP/1.1: illegal status line", "/half": "closed before the answer was whole",
    "/nothing": "The connection was closed without an answer", "/big-head": "The answer is too long",
    "/interim": "The answer is too long", "/endless": "The answer is too long",
    "/huge": "The answer is too long", "/long/1000000": "The answer is too long",
    "/upgrade": "The endpoint wants to speak another protocol",
}  # fmt: skip


def failures_traced(base: str, ca: str, pid: int) -> dict[str, tuple[str, int]]:
    return uvloop.run(_failures_traced(Receiving(base, ca, pid)))


async def _failures_traced(receiving: Receiving) -> dict[str, tuple[str, int]]:
    """Return by path the failure of a delivery, and its peak memory."""
    found = {}
    async with open_sender(receiving) as sender:
        for path in NO_ANSWERS:
            await post(sender, receiving.url())  # whose connection is used for it
            tracemalloc.start()
            said = await failure(sender, receiving.url(path))
            found[path] = said, tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    return found


def test_what_is_no_answer_is_told_and_costs_little(receiving: Receiving) -> None:
    found = in_a_process(failures_traced, receiving.base, receiving.ca, receiving.pid)

    assert {path for path, (said, _) in found.items() if NO_ANSWERS[path] not in said} == set()
    assert {path: peak for path, (_, peak) in found.items() if peak >= 2_000_000} == {}


@pytest.mark.parametrize("path", ["/hang", "/drip?every=0.05"])
async def test_all_of_it_ends_in_time(receiving: Receiving, sender: HttpSender, path: str) -> None:
    async with wait_for_closing(receiving):
        await post(sender, receiving.url())  # on whose connection it is asked

        said = await failure(sender, receiving.url(path), 2)

    assert said == "No answer within 2 seconds, while waiting for the answer"


@pytest.mark.parametrize(("name", "step"), [("silent", "agreeing on TLS"), ("swallow", "connecting")])
async def test_a_hanging_connect_ends_in_time(receiving: Receiving, sender: HttpSender, name: str, step: str) -> None:
    async with wait_for_closing(receiving):
        assert await failure(sender, receiving.bad(name), 3) == f"No answer within 3 seconds, while {step}"


async def test_plain_http_goes_to_this_machine_if_permitted(receiving: Receiving, publishing: Publishing) -> None:
    bodies: list[bytes] = []
    url = publishing.answers("/in?a=b", lambda body: bodies.append(body) or b"")
    async with open_sender(receiving, local_http=True) as sender:
        for each in (url, url, url.replace("127.0.0.1", "localhost")):
            assert (await post(sender, each)).status == 200
        assert await failure(sender, url.replace("127.0.0.1", "10.0.0.1")) == NO_HTTPS
    async with open_sender(receiving) as sender:
        assert await failure(sender, url) == NO_HTTPS

    assert bodies == [BODY] * 3


@pytest.mark.parametrize("url", [
    "http://127.0.0.1/hooks/x", "ftp://127.0.0.1/", "hooks/x", "", "https://", "https:///x", "https://h:0/",
    "https://h:x/", "https://h/a b", "https://h\\@i/", "https://ü.example/", "https://user:s3cret@127.0.0.1/",
])  # fmt: skip
async def test_what_is_no_https_url_is_told(sender: HttpSender, url: str) -> None:
    assert await failure(sender, url) == "The URL is no https URL; deliveries go to those only"
    assert sender.circuit(url) == "closed"


@pytest.mark.parametrize("value", ["a\r\nX: y", " a", "a\x00", "☃"])
async def test_a_header_that_cannot_be_sent_is_told(receiving: Receiving, sender: HttpSender, value: str) -> None:
    with pytest.raises(SendFailed, match="header"):
        await sender.send(receiving.url(), [("Authorization", value)], BODY, seconds=5)

    assert receiving.numbers().requests == 0


@pytest.mark.parametrize("host", ["localhost", "2130706433", "[::1]", "[::ffff:127.0.0.1]"])
async def test_without_leave_nothing_is_sent_to_this_machine(receiving: Receiving, host: str) -> None:
    sender = HttpSender(Guard(), trust(receiving.ca))

    for _ in range(FAILURES_TO_OPEN + 1):  # reported each time, so that the reason stays in sight
        assert "is not a public address" in await failure(sender, f"https://{host}:{receiving.port}/ok")

    assert receiving.numbers().requests == 0


async def test_connections_are_used_again_unless_they_are_closed(receiving: Receiving, sender: HttpSender) -> None:
    for path in ("/ok", "/status/503?body=x", "/long/1000", "/long/60000", "/empty", "/close", "/created"):
        await post(sender, receiving.url(path))

    first, *between, last = (each.connection for each in receiving.requests())
    assert set(between) == {first}
    assert last != first


async def test_a_connection_closed_while_idle_costs_no_attempt(receiving: Receiving, sender: HttpSender) -> None:
    for _ in range(3):
        async with wait_for_closing(receiving):
            assert (await post(sender, receiving.url("/stale"))).status == 200

    assert receiving.numbers().requests == 3


@pytest.mark.parametrize(("path", "times"), [("/nothing", 2), ("/half", 1)])
async def test_a_lost_request_is_sent_once_more(receiving: Receiving, sender: HttpSender, path: str, times: int):
    await post(sender, receiving.url("/ok"))
    await failure(sender, receiving.url(path))

    assert [each.path for each in receiving.requests()] == ["/ok", *[path] * times]


async def test_idle_connections_are_closed(receiving: Receiving) -> None:
    async with open_sender(receiving, idle_seconds=3.0) as sender, wait_for_closing(receiving) as opened:
        await asyncio.gather(*(post(sender, receiving.url("/slow/20")) for _ in range(5)))
        assert opened() == 5


async def test_an_endpoint_is_asked_so_much_at_once(receiving: Receiving, sender: HttpSender) -> None:
    answers = await asyncio.gather(*(post(sender, receiving.url("/slow/20")) for _ in range(MAX_CONCURRENT * 3)))

    assert {each.status for each in answers} == {200}
    assert len({each.connection for each in receiving.requests()}) == MAX_CONCURRENT


async def test_waiting_for_others_counts_as_time(receiving: Receiving, sender: HttpSender) -> None:
    hang = receiving.url("/hang")
    async with (wait_for_closing(receiving) as opened,
                under_way(*(failure(sender, hang) for _ in range(MAX_CONCURRENT)))):  # fmt: skip
        await wait_until_async(lambda: opened() == MAX_CONCURRENT)

        said = await failure(sender, hang, 0.2)

    assert said == "No answer within 0.2 seconds, while waiting for others to be done"


async def test_an_endpoint_is_not_slowed_by_another_of_its_host(receiving: Receiving, sender: HttpSender) -> None:
    bad = [receiving.url(f"/hang/{number}") for number in range(3)]
    asked = (failure(sender, url, 600) for url in bad for _ in range(MAX_CONCURRENT + 1))
    async with wait_for_closing(receiving, kept=1) as opened, under_way(*asked) as hanging:
        await wait_until_async(lambda: opened() == MAX_CONCURRENT * len(bad))

        assert (await post(sender, receiving.url("/ok/beside"), 60)).status == 200
        assert not any(each.done() for each in hanging)

    await asyncio.gather(*(failure(sender, url, 0.3) for url in bad for _ in range(FAILURES_TO_OPEN)))
    assert [sender.circuit(url) for url in bad] == ["open"] * 3
    assert (await post(sender, receiving.url("/ok/beside"), 60)).status == 200


async def test_a_request_that_is_called_off_leaves_nothing_open(receiving: Receiving, sender: HttpSender) -> None:
    urls = [receiving.url("/hang"), receiving.url("/drip"), receiving.bad("silent"), receiving.bad("swallow")]
    async with wait_for_closing(receiving) as opened, under_way(*(post(sender, url, 60) for url in urls)):
        await wait_until_async(lambda: opened() == len(urls))


async def test_an_endpoint_that_does_not_answer_is_left_alone_for_a_while(receiving: Receiving) -> None:
    clock = ManualClock()
    url = receiving.bad("refused")
    async with open_sender(receiving, clock=clock, chance=lambda: 0.5) as sender:
        for _ in range(FAILURES_TO_OPEN):
            assert await failure(sender, url) == "The connection was refused"
        assert sender.circuit(url) == "open"

        with pytest.raises(CircuitOpen) as left_alone:
            await post(sender, url)
        assert left_alone.value.seconds == 1.0

        clock.advance(1000)
        assert sender.circuit(url) == "half-open"
        assert await failure(sender, url) == "The connection was refused"
        assert sender.circuit(url) == "open"
        assert (await post(sender, receiving.url())).status == 200


async def test_an_endless_answer_opens_the_circuit_but_no_refusal_does(receiving: Receiving, sender: HttpSender):
    for _ in range(FAILURES_TO_OPEN):
        await post(sender, receiving.url("/status/500"))
    assert sender.circuit(receiving.url("/status/500")) == "closed"

    for _ in range(FAILURES_TO_OPEN):
        await failure(sender, receiving.url("/endless"))
    assert sender.circuit(receiving.url("/endless")) == "open"


async def test_a_probe_that_is_called_off_leaves_it_to_others(receiving: Receiving) -> None:
    clock = ManualClock()
    url = receiving.url(f"/mute/{FAILURES_TO_OPEN}/b?hang")
    async with open_sender(receiving, clock=clock) as sender:
        for _ in range(FAILURES_TO_OPEN):
            await failure(sender, url)
        clock.advance(2000)
        async with under_way(post(sender, url, 60)):
            await wait_until_async(lambda: receiving.numbers().requests > FAILURES_TO_OPEN)
            with pytest.raises(CircuitOpen):
                await post(sender, url)

        assert (await post(sender, url)).status == 200
        assert sender.circuit(url) == "closed"


async def test_a_large_body_arrives_whole(receiving: Receiving, sender: HttpSender) -> None:
    body = b"a" * 5_000_000

    assert (await sender.send(receiving.url(), HEADERS, body, seconds=10)).status == 200

    assert len(receiving.requests()[0].body) == len(body)


# Answers: printable excerpts, and `Retry-After` (RFC 9110, 10.2.3)

NOW = datetime(1994, 11, 6, 8, 49, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(("said", "seconds"), [
    (b"0", 0.0), (b"120", 120.0), (b" 7 ", 7.0), (b"Sun, 06 Nov 1994 08:49:37 GMT", 37.0),
    (b"Sunday, 06-Nov-94 08:49:37 GMT", 37.0), (b"Sun Nov  6 08:49:37 1994", 37.0),
    (b"Sun, 06 Nov 1994 08:48:00 GMT", 0.0),
])  # fmt: skip
def test_seconds_and_dates_are_understood(said: bytes, seconds: float) -> None:
    assert retry_after([said], NOW) == seconds


@pytest.mark.parametrize(
    "said", [b"", b"soon", b"-1", b"1.5", b"\xb2", b"1e9", b"99 Nov 1994", b"1" * 65, b"Sun, 99 Nov 1994 25:00:00 GMT"]
)
def test_garbage_says_nothing_nor_does_whoever_says_it_twice(said: bytes) -> None:
    assert retry_after([said], NOW) is None
    assert retry_after([b"1", said], NOW) is None


@given(st.binary(max_size=80))
def test_whatever_is_said_is_no_error(said: bytes) -> None:
    found = retry_after([said], NOW)

    assert found is None or found >= 0


@given(st.binary(max_size=5000))
def test_an_excerpt_is_one_short_line(body: bytes) -> None:
    said = excerpt(body)

    assert said.isprintable()
    assert len(said) <= TEXT_BYTES


def test_an_excerpt_is_the_beginning_of_the_text() -> None:
    assert excerpt("<p>\r\n  übel\x1b[31m\x00 </p>".encode()) == "<p> übel[31m </p>"


def test_a_success_has_no_text_and_a_refusal_has() -> None:
    assert answer(Reply(201, [], b"thanks", ""), NOW).text == ""
    assert answer(Reply(503, [(b"Retry-After", b"9")], b"busy", ""), NOW) == (503, "busy", 9.0)


@pytest.mark.parametrize(("coding", "text"), [(b"gzip", ""), (b"GZIP", ""), (b"identity", "busy"), (b" ", "busy")])
def test_what_is_compressed_has_no_text(coding: bytes, text: str) -> None:
    assert answer(Reply(503, [(b"content-ENCODING", coding)], b"busy", ""), NOW).text == text
