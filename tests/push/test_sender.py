"""The sender over real TLS: what failed attempts say, what connections become, and that nobody delays others."""

import asyncio
import contextlib
import functools
import resource
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ams.core.clock import ManualClock
from ams.outgoing import guard
from ams.outgoing.guard import Guard, networks
from ams.push.circuit import FAILURES
from ams.push.endpoints import AT_ONCE
from ams.push.sender import NO_HTTPS, CircuitOpen, EndpointAnswer, HttpSender, SendFailed
from tests.support.publishing import Publishing
from tests.support.receiving import Receiving
from tests.support.waiting import wait_until_async

trust = functools.cache(guard.trust)
"""Made once: there are many CAs to be read."""
LOOPBACK = networks("127.0.0.0/8", "push_allow")
BODY = b'{"message":{"data":"aGk="}}'
HEADERS = [("Content-Type", "application/json"), ("Authorization", "secret")]


@contextlib.asynccontextmanager
async def sending(receiving: Receiving, **more: object) -> AsyncIterator[HttpSender]:
    sender = HttpSender(Guard(LOOPBACK), trust(receiving.ca), **more)  # type: ignore[arg-type]  # tests name them freely
    async with ends(receiving):  # a loop that ends before connections do complains of them
        try:
            yield sender
        finally:
            await sender.close()


@contextlib.asynccontextmanager
async def ends(receiving: Receiving, kept: int = 0) -> AsyncIterator[Callable[[], int]]:
    """Wait until only so many of the connections are open that are made meanwhile; yields what counts these.

    They end in turns of the loop, and in TLS's own time.
    """
    before = open_sockets(receiving)
    try:
        yield lambda: open_sockets(receiving) - before
    finally:
        await wait_until_async(lambda: open_sockets(receiving) <= before + kept)


@contextlib.asynccontextmanager
async def under_way(*posts: Coroutine[Any, Any, object]) -> AsyncIterator[list["asyncio.Task[object]"]]:
    """Let requests be made meanwhile, and call off those that are not answered."""
    tasks = [asyncio.create_task(each) for each in posts]
    try:
        yield tasks
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def sender(receiving: Receiving) -> AsyncIterator[HttpSender]:
    async with sending(receiving) as sender:
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
    """Return how many connections to the receiver this process has: others in it may have some of their own."""
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


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [("/created", 201, ""), ("/accepted", 202, ""), ("/empty", 204, ""), ("/gone", 410, "gone"),
     ("/status/500?body=no+disk", 500, "no disk"), ("/redirect", 307, ""),
     ("/mattermost", 400, '"message": "Unable to parse incoming data"')],
)  # fmt: skip
async def test_every_answer_is_told_and_no_redirect_is_followed(
    receiving: Receiving, sender: HttpSender, path: str, status: int, text: str
) -> None:
    answer = await post(sender, receiving.url(path))

    assert answer.status == status
    assert text in answer.text
    assert receiving.numbers().requests == 1


async def test_when_to_come_again_is_told(receiving: Receiving, sender: HttpSender) -> None:
    assert (await post(sender, receiving.url("/status/429?retry-after=7"))).retry_after == 7
    assert (await post(sender, receiving.url("/status/429?retry-after=soon"))).retry_after is None


async def test_a_bomb_stays_bytes(receiving: Receiving, sender: HttpSender) -> None:
    answer = await post(sender, receiving.url("/bomb"))

    assert answer.status == 500
    assert len(answer.text) <= 2048


@pytest.mark.parametrize(
    ("name", "said"),
    [("expired", "TLS: certificate has expired"),
     ("other-name", "TLS: IP address mismatch, certificate is not valid for '127.0.0.1'."),
     ("unknown-ca", "TLS: unable to get local issuer certificate"),
     ("tls-1.0", "TLS: the endpoint has no TLS 1.2 or newer"), ("tls-1.1", "TLS: the endpoint has no TLS 1.2 or newer"),
     ("alert", "TLS: the endpoint has no TLS 1.2 or newer"),
     ("plain", "TLS: the endpoint does not speak TLS on this port"),
     ("reset", "TLS: the connection was reset during the handshake"), ("refused", "The connection was refused")],
)  # fmt: skip
async def test_what_cannot_be_talked_to_is_told_by_its_cause(
    receiving: Receiving, sender: HttpSender, name: str, said: str
) -> None:
    async with ends(receiving):
        assert await failure(sender, receiving.bad(name)) == said


@pytest.mark.parametrize(
    ("path", "said"),
    [("/garbage", "The answer is not HTTP/1.1: illegal status line"), ("/half", "closed before the answer was whole"),
     ("/nothing", "The connection was closed without an answer"), ("/big-head", "The answer is too long"),
     ("/interim", "The answer is too long"), ("/endless", "The answer is too long"),
     ("/huge", "The answer is too long"), ("/long/1000000", "The answer is too long"),
     ("/upgrade", "The endpoint wants to speak another protocol")],
)  # fmt: skip
async def test_what_is_no_answer_is_told_and_costs_little(
    receiving: Receiving, sender: HttpSender, path: str, said: str
) -> None:
    async with ends(receiving):
        await post(sender, receiving.url())  # whose connection is used for it
        began = resource.getrusage(resource.RUSAGE_THREAD).ru_utime
        tracemalloc.start()

        assert said in await failure(sender, receiving.url(path))

        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 2_000_000
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_utime - began < 2


@pytest.mark.parametrize("path", ["/hang", "/drip?every=0.05"])
async def test_all_of_it_ends_in_time(receiving: Receiving, sender: HttpSender, path: str) -> None:
    async with ends(receiving):
        await post(sender, receiving.url())  # on whose connection it is asked

        said = await failure(sender, receiving.url(path), 0.5)

    assert said == "No answer within 0.5 seconds, while waiting for the answer"


@pytest.mark.parametrize(("name", "step"), [("silent", "agreeing on TLS"), ("swallow", "connecting")])
async def test_a_connection_that_is_never_made_ends_in_time(
    receiving: Receiving, sender: HttpSender, name: str, step: str
) -> None:
    async with ends(receiving):
        assert await failure(sender, receiving.bad(name), 1.5) == f"No answer within 1.5 seconds, while {step}"


async def test_plain_http_goes_to_this_machine_only_and_only_where_it_is_permitted(
    receiving: Receiving, publishing: Publishing
) -> None:
    bodies: list[bytes] = []
    url = publishing.answers("/in?a=b", lambda body: bodies.append(body) or b"")
    async with sending(receiving, local_http=True) as sender:
        for each in (url, url, url.replace("127.0.0.1", "localhost")):
            assert (await post(sender, each)).status == 200
        assert await failure(sender, url.replace("127.0.0.1", "10.0.0.1")) == NO_HTTPS
    async with sending(receiving) as sender:
        assert await failure(sender, url) == NO_HTTPS

    assert bodies == [BODY] * 3


async def test_a_refusal_with_a_long_body_is_still_a_refusal(receiving: Receiving, sender: HttpSender) -> None:
    answer = await post(sender, receiving.url("/status/422?body=" + "a" * 3000))

    assert (answer.status, len(answer.text)) == (422, 2048)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/hooks/x", "ftp://127.0.0.1/", "hooks/x", "", "https://", "https:///x", "https://h:0/",
     "https://h:x/", "https://h/a b", "https://h\\@i/", "https://ü.example/", "https://user:s3cret@127.0.0.1/"],
)  # fmt: skip
async def test_what_is_no_https_url_is_told(sender: HttpSender, url: str) -> None:
    assert await failure(sender, url) == "The URL is no https URL; deliveries go to those only"
    assert sender.circuit(url) == "closed"


@pytest.mark.parametrize("value", ["a\r\nX: y", " a", "a\x00", "☃"])
async def test_a_header_that_cannot_be_sent_is_told(receiving: Receiving, sender: HttpSender, value: str) -> None:
    with pytest.raises(SendFailed, match="header"):
        await sender.send(receiving.url(), [("Authorization", value)], BODY, seconds=5)

    assert receiving.numbers().requests == 0


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0", "[::1]",
     "[::ffff:127.0.0.1]", "[fe80::1%25lo]", "[64:ff9b::7f00:1]"],
)  # fmt: skip
async def test_without_leave_nothing_is_sent_to_this_machine(receiving: Receiving, host: str) -> None:
    sender = HttpSender(Guard(), trust(receiving.ca))

    for _ in range(FAILURES + 1):  # always told, so that the reason stays in sight
        assert "is not a public address" in await failure(sender, f"https://{host}:{receiving.port}/ok")

    assert receiving.numbers().requests == 0


async def test_connections_are_used_again(receiving: Receiving, sender: HttpSender) -> None:
    for path in ("/ok", "/status/503?body=x", "/long/1000", "/long/60000", "/empty", "/created"):
        await post(sender, receiving.url(path))

    assert len({each.connection for each in receiving.requests()}) == 1


async def test_a_connection_that_is_to_be_closed_is_not_used_again(receiving: Receiving, sender: HttpSender) -> None:
    await post(sender, receiving.url("/close"))
    await post(sender, receiving.url("/ok"))

    assert len({each.connection for each in receiving.requests()}) == 2


async def test_a_connection_closed_by_the_other_side_while_idle_costs_no_attempt(
    receiving: Receiving, sender: HttpSender
) -> None:
    for _ in range(3):
        async with ends(receiving):
            assert (await post(sender, receiving.url("/stale"))).status == 200

    assert receiving.numbers().requests == 3


async def test_a_request_into_a_connection_that_just_ends_is_sent_once_more(
    receiving: Receiving, sender: HttpSender
) -> None:
    await post(sender, receiving.url("/ok"))

    assert await failure(sender, receiving.url("/nothing")) == "The connection was closed without an answer"

    assert [each.path for each in receiving.requests()] == ["/ok", "/nothing", "/nothing"]


async def test_a_request_that_was_answered_in_part_is_not_sent_again(receiving: Receiving, sender: HttpSender) -> None:
    await post(sender, receiving.url("/ok"))
    await failure(sender, receiving.url("/half"))

    assert [each.path for each in receiving.requests()] == ["/ok", "/half"]


async def test_idle_connections_are_closed(receiving: Receiving) -> None:
    async with sending(receiving, idle_seconds=3.0) as sender, ends(receiving) as opened:
        await asyncio.gather(*(post(sender, receiving.url("/slow/20")) for _ in range(5)))
        assert opened() == 5


async def test_an_endpoint_is_asked_so_much_at_once(receiving: Receiving, sender: HttpSender) -> None:
    answers = await asyncio.gather(*(post(sender, receiving.url("/slow/20")) for _ in range(AT_ONCE * 3)))

    assert {each.status for each in answers} == {200}
    assert len({each.connection for each in receiving.requests()}) == AT_ONCE


async def test_waiting_for_others_counts_as_time(receiving: Receiving, sender: HttpSender) -> None:
    hang = receiving.url("/hang")
    async with ends(receiving) as opened, under_way(*(failure(sender, hang) for _ in range(AT_ONCE))):
        await wait_until_async(lambda: opened() == AT_ONCE)

        said = await failure(sender, hang, 0.2)

    assert said == "No answer within 0.2 seconds, while waiting for others to be done"


async def test_an_endpoint_is_a_whole_url_so_what_hangs_beside_it_costs_it_nothing(
    receiving: Receiving, sender: HttpSender
) -> None:
    """As hooks of many projects at one chat server: neither their places nor their circuits are shared."""
    bad = [receiving.url(f"/hang/{number}") for number in range(3)]
    asked = (failure(sender, url, 600) for url in bad for _ in range(AT_ONCE + 1))
    async with ends(receiving, kept=1) as opened, under_way(*asked) as hanging:
        await wait_until_async(lambda: opened() == AT_ONCE * len(bad))

        assert (await post(sender, receiving.url("/ok/beside"), 60)).status == 200
        assert not any(each.done() for each in hanging)

    await asyncio.gather(*(failure(sender, url, 0.3) for url in bad for _ in range(FAILURES)))
    assert [sender.circuit(url) for url in bad] == ["open"] * 3
    assert (await post(sender, receiving.url("/ok/beside"), 60)).status == 200


async def test_endpoints_that_hang_do_not_delay_others(receiving: Receiving, sender: HttpSender) -> None:
    paths = ("/hang", "/drip", "/endless", "/garbage")
    bad = [url + paths[number % 4] for number, url in enumerate(receiving.more(""))]
    asked = (post(sender, url, 600) for url in bad for _ in range(3))
    async with ends(receiving, kept=1) as opened, under_way(*asked) as hanging:
        await wait_until_async(lambda: opened() > 0)

        for _ in range(20):
            assert (await post(sender, receiving.url(), 60)).status == 200
        assert any(not each.done() for each in hanging)


async def test_a_request_that_is_called_off_leaves_nothing_open(receiving: Receiving, sender: HttpSender) -> None:
    urls = [receiving.url("/hang"), receiving.url("/drip"), receiving.bad("silent"), receiving.bad("swallow")]
    async with ends(receiving) as opened, under_way(*(post(sender, url, 60) for url in urls)):
        await wait_until_async(lambda: opened() == len(urls))


async def test_an_endpoint_that_does_not_answer_is_left_alone_for_a_while(receiving: Receiving) -> None:
    clock = ManualClock()
    url = receiving.bad("refused")
    async with sending(receiving, clock=clock, chance=lambda: 0.5) as sender:
        for _ in range(FAILURES):
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


async def test_an_answer_without_an_end_opens_the_circuit_and_a_refusal_does_not(
    receiving: Receiving, sender: HttpSender
) -> None:
    for _ in range(FAILURES):
        await post(sender, receiving.url("/status/500"))
    assert sender.circuit(receiving.url("/status/500")) == "closed"

    for _ in range(FAILURES):
        await failure(sender, receiving.url("/endless"))
    assert sender.circuit(receiving.url("/endless")) == "open"


async def test_any_answer_closes_the_circuit(receiving: Receiving) -> None:
    clock = ManualClock()
    url = receiving.url(f"/mute/{FAILURES}/a")
    async with sending(receiving, clock=clock) as sender:
        for _ in range(FAILURES):
            await failure(sender, url)
        assert sender.circuit(url) == "open"
        clock.advance(2000)

        assert (await post(sender, url)).status == 200

        assert sender.circuit(url) == "closed"


async def test_a_probe_that_is_called_off_leaves_it_to_others(receiving: Receiving) -> None:
    clock = ManualClock()
    url = receiving.url(f"/mute/{FAILURES}/b?hang")
    async with sending(receiving, clock=clock) as sender:
        for _ in range(FAILURES):
            await failure(sender, url)
        clock.advance(2000)
        async with under_way(post(sender, url, 60)):
            await wait_until_async(lambda: receiving.numbers().requests > FAILURES)
            with pytest.raises(CircuitOpen):
                await post(sender, url)

        assert (await post(sender, url)).status == 200


async def test_a_large_body_arrives_whole(receiving: Receiving, sender: HttpSender) -> None:
    body = b"a" * 5_000_000

    assert (await sender.send(receiving.url(), HEADERS, body, seconds=10)).status == 200

    assert len(receiving.requests()[0].body) == len(body)
