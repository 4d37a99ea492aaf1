"""Arriving bodies: whole, decoded, within their limits, a little at a time, and within a shared memory limit."""

import asyncio
import contextlib
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from ams.core.errors import BadRequest, Overloaded, TooLarge
from ams.core.fair_share import MAX_UNCOUNTED_BYTES
from ams.http.limits import Bodies, ClientLeft, affordable_bytes
from ams.web.connection import HttpConnection
from ams.web.fair_scheduler import MAX_HELD_BYTES
from ams.web.request_reader import MAX_PARTS_PER_TURN, SLICE_BYTES
from ams.wire.actions import SMALL_BODY
from tests.support.line import LineServer
from tests.support.served import SERVICE_TOKEN, InProcessService, in_process_service
from tests.support.waiting import PATIENCE_SECONDS, wait_until_async

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Reading = asyncio.Task[bytes]

BIG_BYTES = 2 * MAX_UNCOUNTED_BYTES
DISCONNECT_EVENT: Event = {"type": "http.disconnect"}


def more_event(body: bytes) -> Event:
    return {"type": "http.request", "body": body, "more_body": True}


def last_event(body: bytes) -> Event:
    return {"type": "http.request", "body": body}


def send_events(*events: Event) -> Receive:
    coming = iter(events)

    async def receive() -> Event:
        for event in coming:
            return event
        await asyncio.Event().wait()
        raise AssertionError

    return receive


@pytest.mark.parametrize(("events", "body"), [
    ([last_event(b"0123456789")], b"0123456789"), ([more_event(b"01"), more_event(b""), last_event(b"23")], b"0123"),
    ([{"type": "http.request"}], b""),
])  # fmt: skip
async def test_a_body_is_read_whole_in_whatever_pieces_it_comes(events: list[Event], body: bytes) -> None:
    assert await Bodies(10, 100, 1).read([(b"content-length", b"x")], send_events(*events)) == body


@pytest.mark.parametrize(
    ("length", "events", "error"),
    [(b"", [last_event(b"01234567890")], TooLarge), (b"", [more_event(b"0123456789"), more_event(b"0")], TooLarge),
     (b"11", [more_event(b"0")], TooLarge), (b"", [more_event(b"0")], BadRequest),
     (b"", [DISCONNECT_EVENT], ClientLeft),
     (b"", [more_event(b"0"), DISCONNECT_EVENT], ClientLeft)],
    ids=["too large", "too large in pieces", "announced too large", "slow", "client left", "client left in the middle"],
)  # fmt: skip
async def test_a_large_or_missing_body_is_refused(length: bytes, events: list[Event], error: type[Exception]) -> None:
    with pytest.raises(error):
        await Bodies(10, 100, 0.01 if error is BadRequest else 60).read(
            [(b"content-length", length)], send_events(*events)
        )


# Memory of all bodies


def send_pieces(*sizes: int) -> Receive:
    *first, end = sizes
    return send_events(*[more_event(b"x" * size) for size in first], last_event(b"x" * end))


@contextlib.asynccontextmanager
async def begin_bodies(bodies: Bodies, *asked: tuple[list[int], tuple[str, str]]) -> AsyncIterator[list[Reading]]:
    """Start bodies of these holders that stop after pieces of these sizes."""
    begun = []
    for sizes, holders in asked:
        half_sent = send_events(*[more_event(b"x" * size) for size in sizes])
        begun.append(asyncio.create_task(bodies.read([], half_sent, None, holders)))
    await asyncio.sleep(0)
    yield begun
    for each in begun:
        each.cancel()


async def test_what_is_held_until_it_is_stored_counts_against_what_arrives_but_for_small_bodies() -> None:
    bodies = Bodies(max_body=10 * BIG_BYTES, max_buffered=3 * BIG_BYTES, seconds=60)
    with bodies.hold_body(2 * BIG_BYTES), pytest.raises(Overloaded):
        await bodies.read([], send_pieces(BIG_BYTES, BIG_BYTES))
    assert len(await bodies.read([], send_pieces(BIG_BYTES, BIG_BYTES))) == 2 * BIG_BYTES

    with bodies.hold_body((3 * BIG_BYTES), ("A", "a")):
        assert (
            len(await bodies.read([], send_pieces(MAX_UNCOUNTED_BYTES - 1, 1), None, ("B", "b"))) == MAX_UNCOUNTED_BYTES
        )


async def test_a_refused_body_leaves_nothing_counted() -> None:
    bodies = Bodies(max_body=BIG_BYTES, max_buffered=2 * BIG_BYTES, seconds=60)

    for _ in range(10):
        with pytest.raises(TooLarge):
            await bodies.read([], send_pieces(BIG_BYTES, BIG_BYTES // 2, BIG_BYTES // 2))

    assert len(await bodies.read([], send_pieces(BIG_BYTES // 2, BIG_BYTES // 2))) == BIG_BYTES


async def test_routes_other_than_publish_take_small_bodies_only() -> None:
    bodies = Bodies(max_body=4 * SMALL_BODY, max_buffered=8 * SMALL_BODY, seconds=60)
    with pytest.raises(TooLarge):
        await bodies.read([], send_pieces(SMALL_BODY, 1), SMALL_BODY)
    assert len(await bodies.read([], send_pieces(SMALL_BODY, 1))) == SMALL_BODY + 1


async def test_the_largest_holder_is_ended_first_when_another_needs_memory() -> None:
    bodies = Bodies(max_body=10 * BIG_BYTES, max_buffered=6 * BIG_BYTES, seconds=60)
    async with begin_bodies(
        bodies, ([BIG_BYTES, BIG_BYTES], ("A", "a")), ([BIG_BYTES, 3 * BIG_BYTES], ("A", "a"))
    ) as greedy:
        assert len(await bodies.read([], send_pieces(BIG_BYTES, BIG_BYTES), None, ("B", "b"))) == 2 * BIG_BYTES
        with pytest.raises(Overloaded):
            await greedy[1]
        assert not greedy[0].done()


async def test_the_first_part_of_a_body_counts_before_the_next_one_comes() -> None:
    bodies = Bodies(max_body=10 * BIG_BYTES, max_buffered=3 * BIG_BYTES, seconds=60)
    async with begin_bodies(bodies, ([2 * BIG_BYTES], ("A", "a"))) as [waiting]:
        assert len(await bodies.read([], send_pieces(BIG_BYTES, BIG_BYTES), None, ("B", "b"))) == 2 * BIG_BYTES
        with pytest.raises(Overloaded):
            await waiting


async def test_a_body_that_was_ended_gives_its_memory_back_once() -> None:
    bodies = Bodies(max_body=10 * BIG_BYTES, max_buffered=6 * BIG_BYTES, seconds=60)
    async with begin_bodies(bodies, ([BIG_BYTES, 3 * BIG_BYTES], ("A", "a"))) as [greedy]:
        assert len(await bodies.read([], send_pieces(BIG_BYTES, 2 * BIG_BYTES), None, ("B", "b"))) == 3 * BIG_BYTES
        with pytest.raises(Overloaded):
            await greedy

    with bodies.hold_body((6 * BIG_BYTES), ("C", "c")), pytest.raises(Overloaded):
        await bodies.read([], send_pieces(BIG_BYTES, 1), None, ("D", "d"))


async def test_a_body_over_the_limit_ends_no_other_and_the_largest_holder_itself_is_refused() -> None:
    bodies = Bodies(max_body=4 * BIG_BYTES, max_buffered=4 * BIG_BYTES, seconds=60)
    async with begin_bodies(bodies, ([BIG_BYTES, MAX_UNCOUNTED_BYTES], ("B", "b"))) as [small]:
        for size, error in ((4 * BIG_BYTES, TooLarge), (3 * BIG_BYTES, Overloaded)):
            with pytest.raises(error):
                await bodies.read([], send_pieces(BIG_BYTES, size), None, ("A", "a"))
            await asyncio.sleep(0)
            assert not small.done()


async def test_a_user_who_asks_in_many_projects_is_one_holder() -> None:
    bodies = Bodies(max_body=10 * BIG_BYTES, max_buffered=4 * BIG_BYTES, seconds=60)
    async with begin_bodies(
        bodies, *[([BIG_BYTES, MAX_UNCOUNTED_BYTES], (project, "a")) for project in "ABCD"]
    ) as greedy:
        assert [type(each.exception()) for each in greedy if each.done()] == [Overloaded, Overloaded]
        assert (
            len(await bodies.read([], send_pieces(BIG_BYTES, BIG_BYTES // 2), None, ("E", "b"))) == 3 * BIG_BYTES // 2
        )


async def test_a_holder_of_requests_that_came_whole_has_as_much_as_it_leaves_free() -> None:
    bodies = Bodies(max_body=10 * BIG_BYTES, max_buffered=4 * BIG_BYTES, seconds=60)
    with bodies.count_request(2 * BIG_BYTES, ("P", "anna")):
        for holders in (("P", "anna"), ("P", "berta"), ("Q", "anna")):
            with pytest.raises(Overloaded):
                bodies.count_request(BIG_BYTES, holders)
        with (
            bodies.count_request(2 * BIG_BYTES, ("Q", "berta")),
            bodies.count_request(MAX_UNCOUNTED_BYTES, ("P", "anna")),
        ):
            pass
    with bodies.count_request(4 * BIG_BYTES, ("P", "anna")):
        pass


def test_a_budget_is_a_part_of_the_memory_that_the_process_may_take() -> None:
    assert [affordable_bytes(1000, most=most) for most in (80, -5, 2**40)] == [10, 0, 1000]
    assert affordable_bytes(1000) == 1000


@pytest.mark.parametrize(("kind", "verb", "left"), [
    ("ordered", "acknowledge", 0), ("parallel", "acknowledge", 0), ("parallel", "nack", 10_000),
    ("parallel", "modifyAckDeadline", 0),
])  # fmt: skip
def test_11_1_a_large_pull_is_answered_in_one_body(service: InProcessService, kind: str, verb: str, left: int) -> None:
    topic = f"/projects/{(kind + verb).ljust(60, 'p')}/topics/t"
    path = topic.replace("topics/t", "subscriptions/" + "s" * 90)
    service.ask("POST", topic.partition("/topics")[0], {})
    service.ask("PUT", topic)
    service.ask("PUT", path, {"topic": topic[1:], "type": kind})
    service.ask("POST", f"{topic}:publish", {"messages": [{"data": "aGk="}] * 10_000})
    pulled = service.ask("POST", f"{path}:pull", {"maxMessages": "10000"})["receivedMessages"]
    ids = [each["ackId"] for each in pulled]

    assert sum(map(len, ids)) > 2**20
    service.ask("POST", f"{path}:{verb}", {"ackIds": ids, "ackDeadlineSeconds": 600})
    again = service.ask("POST", f"{path}:pull", {"maxMessages": "10000", "returnImmediately": "true"})
    assert len(again["receivedMessages"]) == left


# Bodies in gzip

MESSAGE = json.dumps({"messages": [{"data": "aGVsbG8="}]}).encode()
ZIPPED_MESSAGE = gzip.compress(MESSAGE)
LIMIT = 100_000


@pytest.fixture(scope="module")
def small_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessService]:
    with in_process_service(Path(tmp_path_factory.mktemp("gzip")) / "data", max_body_bytes=LIMIT) as service:
        service.ask("POST", "/projects/P", {})
        service.ask("PUT", "/projects/P/topics/T")
        yield service


def publish(service: InProcessService, body: bytes, coding: str | None = "gzip") -> tuple[int, str]:
    fields = {"x-api-key": SERVICE_TOKEN} | ({} if coding is None else {"content-encoding": coding})
    url = f"{service.run.base_url}/v1/projects/P/topics/T:publish"
    answer = httpx.post(url, content=body, headers=fields, trust_env=False, timeout=PATIENCE_SECONDS)
    return answer.status_code, answer.json().get("error", {}).get("message", "")


DONE_ANSWER = (200, "")
CODING_REFUSAL = (415, "Content-Encoding can only be gzip")
NO_GZIP = (400, "Request body is not gzip")


@pytest.mark.parametrize(("coding", "body", "answer"), [
    *((coding, ZIPPED_MESSAGE, DONE_ANSWER) for coding in ("gzip", "GZIP", "x-gzip")),
    ("gzip", gzip.compress(MESSAGE[:9]) + gzip.compress(MESSAGE[9:]), DONE_ANSWER),
    *(("gzip", gzip.compress(b" " * size + MESSAGE), DONE_ANSWER)
      for size in (65_535, 65_536, 65_537, LIMIT - len(MESSAGE))),
    *((coding, MESSAGE, DONE_ANSWER) for coding in ("identity", "", None)),
    *((coding, ZIPPED_MESSAGE, CODING_REFUSAL) for coding in ("br", "deflate", "zstd", "gzip, gzip", "gzip, identity")),
    *(("gzip", gzip.compress(b" " * size), (413, "Message size is too large")) for size in (LIMIT + 1, 50_000_000)),
    *(("gzip", body, NO_GZIP) for body in (MESSAGE, gzip.compress(b"") * 5000, ZIPPED_MESSAGE[:-3],
                                           ZIPPED_MESSAGE + b"more",
                                           zlib.compress(MESSAGE), b"\x1f\x8b")),
], ids=range(24))  # fmt: skip
def test_only_gzip_is_read(small_service: InProcessService, coding: str | None, body: bytes, answer: tuple[int, str]):
    for _ in range(3):  # then the head is known
        assert publish(small_service, body, coding) == answer
    assert publish(small_service, ZIPPED_MESSAGE) == DONE_ANSWER


# Bodies in tiny chunks are read a little at a time, and not at all once their request is answered

HEAD = b"POST /v1/projects/P/topics/T:publish HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
KEY = b"x-api-key: %b\r\n" % SERVICE_TOKEN.encode()
CHUNK, TINY = b"3\r\nabc\r\n", b"1\r\na\r\n"
PACKET = 2**18  # bytes
CHUNKS = CHUNK * (PACKET // len(CHUNK))
TEXTS = (b"Request body has more framing than data: send larger chunks", b"Request trailer is too large")


class CountingConnection(HttpConnection):
    parts = 0  # taken of bodies

    def take_body(self, body: bytes) -> None:
        self.parts += 1
        super().take_body(body)


class CountingApp:
    def __init__(self, *, reads: bool) -> None:
        self.received = 0
        self._reads = reads
        self.line, self.connection = LineServer(self, connection=CountingConnection).connect()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while self._reads:
            event = await receive()
            self.received += len(event.get("body", b""))
            if not event.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
async def reader() -> AsyncIterator[CountingApp]:
    world = CountingApp(reads=True)
    yield world
    world.connection.connection_lost(None)


async def test_a_packet_of_many_chunks_is_read_in_many_turns(reader: CountingApp) -> None:
    chunks = PACKET // len(CHUNK)
    reader.connection.data_received(HEAD + b"\r\n" + CHUNKS + b"0\r\n\r\n")

    assert 0 < reader.connection.parts <= MAX_PARTS_PER_TURN + SLICE_BYTES // len(CHUNK)
    assert reader.line.is_paused
    await wait_until_async(lambda: reader.line.written.endswith(b"ok"))
    assert (reader.received, reader.connection.parts) == (3 * chunks, chunks)
    assert not reader.line.is_paused


async def test_a_body_whose_length_was_said_is_not_cut_but_what_follows_it_is(reader: CountingApp) -> None:
    head = HEAD.replace(b"Transfer-Encoding: chunked", b"Content-Length: %d" % PACKET)

    reader.connection.data_received(head + b"\r\n" + b"x" * (PACKET - 1))
    reader.connection.data_received(b"x" + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert reader.connection.parts <= 3
    await wait_until_async(lambda: reader.line.written.count(b"ok") == 2)

    reader.connection.data_received(head.replace(b"%d" % PACKET, b"9") + b"\r\n" + b"x" * 9 + HEAD + b"\r\n" + CHUNKS)
    assert reader.connection.parts <= 3 + MAX_PARTS_PER_TURN + SLICE_BYTES


async def test_a_body_in_chunks_is_not_read_on_when_its_request_is_answered() -> None:
    world = CountingApp(reads=False)
    world.connection.data_received(HEAD + b"\r\n" + CHUNKS)
    await wait_until_async(lambda: world.line.written.endswith(b"ok"))
    assert b"\r\nconnection: close\r\n" in world.line.written
    read = world.connection.parts

    for _ in range(3):
        world.connection.data_received(CHUNKS)
        await asyncio.sleep(0)

    assert world.connection.parts == read
    world.connection.connection_lost(None)


async def test_who_sends_tiny_chunks_while_much_waits_is_refused(reader: CountingApp) -> None:
    assert reader.connection.port.scheduler.hold_bytes(MAX_HELD_BYTES)
    reader.connection.data_received(HEAD + b"\r\n" + CHUNKS)
    assert reader.line.written.startswith(b"HTTP/1.1 503")


@pytest.mark.parametrize("is_let_in", [True, False])
@pytest.mark.parametrize("body", [
    TINY * 40_000, b"1;%b\r\na\r\n" % (b"x" * 60_000), b"".join(b"1;%b\r\na\r\n" % (b"x" * 900) for _ in range(90)),
])  # fmt: skip
def test_more_framing_than_data_is_refused(service: InProcessService, body: bytes, is_let_in: bool) -> None:
    """Its sender reads the answer, though it sent more."""
    with service.connect(PATIENCE_SECONDS) as client:
        client.sendall(HEAD + (KEY if is_let_in else b"x-api-key: wrong\r\n") + b"\r\n" + body)
        answer = b""
        while part := client.recv(65536):
            answer += part

    assert b"\r\nconnection: close\r\n" in answer
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 401", b"HTTP/1.1 404"))
    assert not answer.startswith(b"HTTP/1.1 400") or any(text in answer for text in TEXTS)
