"""Outgoing requests: limits on their answers, addresses and time, and their contents."""

import asyncio
import contextlib
import functools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httpcore
import pytest

from ams.authn.certificates import revocation
from ams.core.push_config import MATTERMOST
from ams.outgoing import address_guard
from ams.outgoing.address_guard import ALL_NETWORKS, Guard, networks
from ams.outgoing.client import (
    IDLE_SECONDS,
    AnswerTooLong,
    HttpClient,
    NotReached,
    RequestFailed,
    Response,
    TimedOut,
    authority,
    new_request,
)
from ams.push.delivery_request import Deliveries, new_secret
from ams.push.endpoints import EndpointCheck
from ams.push.sender import HttpSender
from ams.push.upstream import Target
from tests.push.keepers import make_pulled, target
from tests.support.loop_time import pass_loop_time
from tests.support.publishing import Publishing
from tests.support.receiver import Behaviour, Receiver, answers, receiver, sends
from tests.support.waiting import some_turns

LOOPBACK = Guard(networks("127.0.0.0/8", "push_allow"))
trust = functools.cache(address_guard.trust)


@pytest.fixture(scope="module")
def other_receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    with receiver(tmp_path_factory.mktemp("ca"), answers("")) as running:
        yield running


async def test_a_file_is_fetched_and_counted(publishing: Publishing) -> None:
    client = HttpClient(LOOPBACK)
    assert await client.get(publishing.puts("/a?b=c", b"x" * 300_000)) == b"x" * 300_000
    assert await client.post(publishing.answers("/p", lambda body: body * 2), b"abc", "text/plain") == b"abcabc"
    assert (client.requests, client.failures) == (2, 0)


async def test_a_file_that_is_too_long_is_not_taken(publishing: Publishing) -> None:
    with pytest.raises(AnswerTooLong):
        await HttpClient(LOOPBACK, most_bytes=1000).get(publishing.puts("/long", bytes(1001)))


async def test_a_host_that_is_slow_is_not_waited_for(publishing: Publishing) -> None:
    publishing.held.clear()
    client = HttpClient(LOOPBACK, seconds=0.1)

    with pytest.raises(TimedOut, match=r"^it took too long$"):
        await client.get(publishing.puts("/slow", b"data"))
    assert (client.requests, client.failures) == (1, 1)


@pytest.mark.parametrize("url", [
    "ldap://127.0.0.1/", "file:///etc/passwd", "http://", "http://127.0.0.1:1/", "http://127.0.0.1:99999/",
    "http://[::1]/", "http://10.0.0.1/", "http://a b/", "http://\u00e9\u00e9..x/", "http://127.0.0.1:{port}/missing",
    "http://127.0.0.1:{port}/a b\r\nX: y", "https://127.0.0.1:{port}/", "http://" + "a" * 300 + "/",
])  # fmt: skip
async def test_what_cannot_be_fetched_is_one_error(publishing: Publishing, url: str) -> None:
    client = HttpClient(LOOPBACK)
    with pytest.raises(RequestFailed):
        await client.get(url.replace("{port}", str(publishing.port)))
    assert client.failures == 1


async def test_credentials_in_a_url_are_neither_sent_nor_shown(publishing: Publishing) -> None:
    url = publishing.puts("/there", b"data").replace("://", "://user:s3cret@")
    with pytest.raises(RequestFailed, match=r"^its URL has a user and password in it, which are not sent$"):
        await HttpClient(LOOPBACK).get(url)
    assert not publishing.asked["/there"]


async def test_redirects_are_not_followed(publishing: Publishing) -> None:
    publishing.puts("/there", b"data")
    url = publishing.puts("/here", publishing.url("/there").encode())
    publishing.statuses["/here"] = 302

    with pytest.raises(RequestFailed, match="the answer was 302"):
        await HttpClient(LOOPBACK).get(url)
    assert not publishing.asked["/there"]


async def test_addresses_that_the_guard_refuses_are_not_connected_to(publishing: Publishing) -> None:
    url = publishing.puts("/a", b"data")

    with pytest.raises(RequestFailed, match=r"^127\.0\.0\.1 is not a public address$"):
        await HttpClient(Guard()).get(url)
    assert not publishing.asked["/a"]
    assert await HttpClient(Guard(ALL_NETWORKS)).get(url) == b"data"


async def test_the_next_address_is_tried_when_one_does_not_answer(publishing: Publishing) -> None:
    async def resolve(_host: str, _port: int) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    client = HttpClient(Guard(ALL_NETWORKS, resolve))

    assert await client.get(publishing.puts("/a", b"data").replace("127.0.0.1", "localhost")) == b"data"


async def test_a_certificate_of_an_unknown_ca_is_not_believed(other_receiver: Receiver) -> None:
    other_receiver.behaviour = answers("data")
    url = f"https://localhost:{other_receiver.port}/"

    with pytest.raises(RequestFailed, match="certificate verify failed"):
        await HttpClient(LOOPBACK).get(url)
    assert await HttpClient(LOOPBACK, trust(other_receiver.ca)).get(url) == b"data"
    assert await HttpClient(LOOPBACK, address_guard.trust(verify=False)).get(url) == b"data"


@pytest.mark.parametrize(("behaviour", "reason"), [
    (sends(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\ncut"), "closed connection without sending complete"),
    (sends(b"HTTP/1.1 200 OK\r\nContent-Le"), "without sending a response"),
    (sends(b"SSH-2.0-OpenSSH_9.2\r\n"), "illegal status line"),
])  # fmt: skip
async def test_half_an_answer_is_none(other_receiver: Receiver, behaviour: Behaviour, reason: str) -> None:
    other_receiver.behaviour = behaviour
    with pytest.raises(RequestFailed, match=reason):
        await HttpClient(LOOPBACK, trust(other_receiver.ca)).get(f"https://localhost:{other_receiver.port}/")


Reply = Callable[[asyncio.StreamWriter, int], Awaitable[None]]  # answers the request with this number on a connection


class Origin:
    def __init__(self, reply: Reply, client: HttpClient) -> None:
        self.reply, self.client = reply, client
        self.connections = 0
        self.port = 0
        self.server: asyncio.Server
        self.going_on: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.going_on.add(asyncio.current_task())  # type: ignore[arg-type]  # there is one
        count = 0
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                count += 1
                await self.reply(writer, count)
        writer.close()

    async def ask(self) -> Response:
        host = authority(b"http", b"127.0.0.1", self.port)
        url = httpcore.URL(scheme=b"http", host=b"127.0.0.1", port=self.port, target=b"/")
        return await self.client.ask(httpcore.Request("GET", url, headers=[(b"Host", host)]))


@contextlib.asynccontextmanager
async def serve_replies(reply: Reply, **options: Any) -> AsyncIterator[Origin]:
    origin = Origin(reply, HttpClient(LOOPBACK, **options))
    origin.server = server = await asyncio.start_server(origin.serve, "127.0.0.1", 0)
    origin.port = server.sockets[0].getsockname()[1]
    async with server:
        yield origin
        await origin.client.close()
    await asyncio.gather(*origin.going_on)


def whole_answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def says_its_number(writer: asyncio.StreamWriter, number: int) -> None:
    writer.write(whole_answer(b"%d" % number))


async def test_one_connection_serves_one_request_after_another_whatever_their_status() -> None:
    async def refuse(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(whole_answer(b"%d" % number).replace(b"200 OK", b"404 Not Found"))

    async with serve_replies(refuse) as origin:
        assert [await origin.ask() for _ in range(3)] == [
            Response(404, each, ((b"Content-Length", b"1"),)) for each in (b"1", b"2", b"3")
        ]
    assert origin.connections == 1


@pytest.mark.parametrize("stray", [whole_answer(b"of another request"), bytes(200_000)])
@pytest.mark.parametrize("later", [False, True])
async def test_what_comes_behind_an_answer_is_no_answer_to_the_next_request(stray: bytes, later: bool) -> None:
    has_said_all = asyncio.Event()

    async def says_more(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(whole_answer(b"%d" % number))
        if later:
            await some_turns()
        writer.write(stray)
        has_said_all.set()

    async with serve_replies(says_more) as origin:
        said = []
        for _ in range(3):
            has_said_all.clear()
            said.append((await origin.ask()).body)
            await has_said_all.wait()
            await some_turns()
    assert set(said) <= {b"1", b"2", b"3"}


async def test_a_connection_that_is_closed_when_it_is_used_again_is_made_anew() -> None:
    async def answer_once(writer: asyncio.StreamWriter, number: int) -> None:
        if number == 1:
            await says_its_number(writer, number)
        else:
            writer.close()

    async with serve_replies(answer_once) as origin:
        assert [(await origin.ask()).body for _ in range(3)] == [b"1"] * 3
    assert origin.connections == 3
    assert (origin.client.requests, origin.client.failures) == (3, 0)


async def test_a_request_is_not_sent_again_when_something_of_an_answer_came() -> None:
    async def answer_half(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(whole_answer(b"1") if number == 1 else b"HTTP/1.1 200")
        if number == 2:
            writer.close()

    async with serve_replies(answer_half) as origin:
        await origin.ask()

        with pytest.raises(RequestFailed, match="without sending"):
            await origin.ask()
    assert origin.connections == 1


async def test_an_idle_connection_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve_replies(says_its_number) as origin:
        await origin.ask()
        pass_loop_time(monkeypatch, IDLE_SECONDS)
        await some_turns()

        assert (await origin.ask()).body == b"1"
    assert origin.connections == 2


async def test_what_was_not_sent_at_all_is_told_from_what_may_have_been_done(monkeypatch: pytest.MonkeyPatch) -> None:
    async def close_writer(writer: asyncio.StreamWriter, _number: int) -> None:
        writer.close()

    async with serve_replies(close_writer) as origin:
        with pytest.raises(RequestFailed) as failed:
            await origin.ask()
        assert not isinstance(failed.value, NotReached)
    with pytest.raises(NotReached):
        await origin.ask()

    async def hang(_self: HttpClient, _url: httpcore.URL) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(HttpClient, "_connect", hang)
    origin.client = HttpClient(LOOPBACK, connect_seconds=0.01)
    with pytest.raises(NotReached, match="no connection in time"):
        await origin.ask()


async def test_what_was_sent_on_a_kept_connection_may_have_been_done_although_there_is_no_other() -> None:
    async def dies_at_the_second(writer: asyncio.StreamWriter, number: int) -> None:
        if number == 1:
            await says_its_number(writer, number)
            return
        origin.server.close()
        writer.close()

    async with serve_replies(dies_at_the_second) as origin:
        await origin.ask()

        with pytest.raises(RequestFailed, match="it ended on a request") as failed:
            await origin.ask()

    assert not isinstance(failed.value, NotReached)


async def test_only_so_many_requests_go_to_one_place_at_a_time() -> None:
    async def answer_slowly(writer: asyncio.StreamWriter, number: int) -> None:
        await asyncio.sleep(0.01)
        await says_its_number(writer, number)

    async with serve_replies(answer_slowly, at_once=3) as origin:
        await asyncio.gather(*(origin.ask() for _ in range(9)))
    assert origin.connections == 3


HASH = "ab" * 32


async def send_delivery(other: Receiver, target: Target) -> None:
    deliveries = Deliveries(target)
    delivery = deliveries.delivery([make_pulled(1)], attempt=1, now=1)
    sender = HttpSender(LOOPBACK, trust(other.ca))
    await sender.send(deliveries.url, delivery.headers, delivery.body, seconds=60)
    await sender.close()


async def a_signed_list(other: Receiver, url: str) -> None:
    secrets = [new_secret(), new_secret()]
    await send_delivery(other, target(endpoint=url, max_messages=5, secrets=secrets, header_value="a value"))


async def a_post_to_mattermost(other: Receiver, url: str) -> None:
    await send_delivery(other, target(type=MATTERMOST, mattermost_url=url, header_value="a value"))


async def an_ownership_check(other: Receiver, _: str) -> None:
    other.behaviour = answers(HASH)
    await EndpointCheck(LOOPBACK, trust(other.ca)).check("localhost", other.port, HASH)


async def a_file(other: Receiver, url: str) -> None:
    await HttpClient(LOOPBACK, tls=trust(other.ca)).get(url)


async def a_question_about_a_certificate(other: Receiver, url: str) -> None:
    await HttpClient(LOOPBACK, tls=trust(other.ca)).post(url, b"question", revocation.MEDIA_TYPE)


@pytest.mark.parametrize(
    "kind", [a_signed_list, a_post_to_mattermost, an_ownership_check, a_file, a_question_about_a_certificate]
)
async def test_headers_go_out_once(other_receiver: Receiver, kind: Callable[[Receiver, str], Awaitable[None]]) -> None:
    other_receiver.heads.clear()
    other_receiver.behaviour = answers("ok")

    await kind(other_receiver, f"https://localhost:{other_receiver.port}/path?query")

    assert other_receiver.heads
    for head in other_receiver.heads:
        first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
        names = Counter(line.partition(b":")[0].lower() for line in lines)
        assert set(names.values()) == {1}, f"{first!r} has {names}"
        assert {b"host", b"user-agent"} <= set(names)
        assert (b"content-length" in names) is first.startswith(b"POST ")


URL = httpcore.URL(scheme=b"https", host=b"a.example", port=8443, target=b"/")


def test_what_every_request_has_cannot_be_sent_again_in_other_letters() -> None:
    again = [(each, b"other") for each in (b"host", b"content-Length", b"connection", b"X-A", b"x-a")]
    made = new_request("POST", URL, [(b"x-A", b"1"), *again], b"body", closes=True)
    assert [name for name, _ in made.headers] == [b"Host", b"User-Agent", b"Content-Length", b"Connection", b"x-A"]
    assert b"other" not in dict(made.headers).values()


def test_a_request_may_say_by_whom_it_is_once_and_a_post_without_a_body_says_so() -> None:
    made = new_request("GET", URL, [(b"USER-AGENT", b"one"), (b"user-agent", b"two")], b"")
    assert [value for name, value in made.headers if name.lower() == b"user-agent"] == [b"one"]
    assert b"Content-Length" not in dict(made.headers)
    assert (b"Content-Length", b"0") in new_request("POST", URL, [], b"").headers


@pytest.mark.parametrize(("scheme", "host", "port", "shown"), [
    (b"https", b"a.example", 443, b"a.example"), (b"https", b"a.example", 80, b"a.example:80"),
    (b"http", b"a.example", 80, b"a.example"), (b"https", b"::1", 443, b"[::1]"),
    (b"https", b"::1", 8443, b"[::1]:8443"),
])  # fmt: skip
def test_the_host_header_names_only_another_port(scheme: bytes, host: bytes, port: int, shown: bytes) -> None:
    assert authority(scheme, host, port) == shown
