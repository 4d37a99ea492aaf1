"""The fast lane: which requests take it, its cache of heads, and waiting; test_two_ways.py compares its answers."""

import asyncio
import gc
import json
import re
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from ams.core.telemetry import REQUEST
from ams.http import fast_lane
from ams.http.audit import Auditor
from ams.http.fast_lane import LaneExchange
from ams.http.messages import MessageReader
from ams.service.delivery import Deliverer
from ams.service.tallies import Counts
from ams.storage.cursors.embedded import EmbeddedCursors
from ams.web.request_reader import MAX_REQUESTS_ALONE
from tests.support.held_disk import HeldDisk
from tests.support.hot_packets import ACKNOWLEDGE, ALLOWED, ID, KEY, MESSAGE, NOW, PUBLISH, PULL, STRICT, post_packet
from tests.support.line import Line
from tests.support.loop_time import pass_loop_time
from tests.support.schedulers import at_once
from tests.support.two_ways import Way, one_way, request
from tests.support.waiting import some_turns, wait_until_async

PUBLISHED, PULL_LATER = post_packet(PUBLISH, MESSAGE), post_packet(PULL, b"{}")
HOT_REQUESTS = [(PUBLISH, MESSAGE), (PULL, NOW), (ACKNOWLEDGE, ID)]


@pytest.fixture
async def way(tmp_path: Path) -> AsyncIterator[Way]:
    async with one_way(tmp_path / "data", lane=True, keep_alive_seconds=75.0) as opened:
        yield opened


@pytest.fixture
async def warm_way(tmp_path: Path) -> AsyncIterator[Way]:
    """A service with waiting pulls, cached heads of a publish and a pull, and no message."""
    async with one_way(tmp_path / "data", lane=True, pull_wait=0.3, keep_alive_seconds=75.0) as opened:
        await opened.send_packets([PUBLISHED])
        await opened.send_packets([post_packet(PULL, NOW)])
        await opened.send_packets([request("POST", "/projects/P/subscriptions/S:acknowledge", ID)])
        yield opened


async def statuses(way: Way, *packets: bytes) -> list[int]:
    return [int((await way.send_packets([packet]))[0].split()[1]) for packet in packets]


async def test_a_request_takes_the_lane_when_its_head_is_known(way: Way) -> None:
    hot = (PUBLISHED, post_packet(PULL, NOW), post_packet(ACKNOWLEDGE, ID))
    assert await statuses(way, *hot * 3) == [200] * 9
    assert way.on_lane == 6


@pytest.mark.parametrize("headers", [
    b"Origin: https://example.org", b"Connection: close", b"Expect: something",
    b"Connection: Upgrade\r\nUpgrade: h2c",
])  # fmt: skip
async def test_these_requests_never_take_the_lane(way: Way, headers: bytes) -> None:
    assert await statuses(way, *[post_packet(PUBLISH, MESSAGE, KEY + headers + b"\r\n")] * 3) == [200] * 3
    assert way.on_lane == 0


async def test_messages_that_a_schema_soon_allows_take_the_lane_and_others_do_not(way: Way) -> None:
    allowed, number = (post_packet(STRICT, b'{"messages":[{"data":"%b"}]}' % data) for data in (ALLOWED, b"MQ=="))

    assert await statuses(way, *[allowed] * 3, number) == [200, 200, 200, 400]
    assert way.on_lane == 2
    await way.send_packets([request("PUT", "/projects/P/schemas/X", '{"schema":{"type":"number"}}')])
    assert await statuses(way, allowed, number, number) == [400, 200, 200]
    assert way.on_lane == 4


@pytest.mark.parametrize(("size", "arrived"), [(len(MESSAGE), -5), (200_000, 1000)], ids=["late", "in the middle"])
async def test_a_head_whose_rights_are_gone_does_not_let_its_body_in(way: Way, size: int, arrived: int) -> None:
    packet = way.with_tokens(post_packet(PUBLISH, MESSAGE + b" " * (size - len(MESSAGE))))
    assert await statuses(way, packet, packet) == [200] * 2
    line, protocol = way.connect()
    if size == len(MESSAGE):  # it begins to arrive before they go; of a large one nothing is gathered after it
        protocol.data_received(packet[:arrived])
    await way.send_packets([request("DELETE", "/projects/P/topics/T")])
    protocol.data_received(packet[arrived:] if size == len(MESSAGE) else packet[:arrived])
    await wait_until_async(lambda: bool(line.written))

    assert line.written.startswith(b"HTTP/1.1 404")
    protocol.connection_lost(None)


async def test_a_connection_is_kept_after_an_immediate_pull(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with one_way(tmp_path / "data", lane=True, request_seconds=20.0, keep_alive_seconds=75.0) as way:
        line, protocol = way.connect()
        for count in range(1, 4):
            protocol.data_received(way.with_tokens(post_packet(PULL, NOW)))
            await wait_until_async(lambda count=count: line.written.count(b"HTTP/1.1 200") == count)
            pass_loop_time(monkeypatch, 40.0)
            await some_turns()

        assert way.on_lane == 2
        assert not line.is_closed
        protocol.connection_lost(None)


async def test_a_connection_that_ended_leaves_nothing_for_the_collector(way: Way) -> None:
    """Over TLS each has a quarter of a megabyte of buffers."""
    await statuses(way, *[PUBLISHED] * 3)
    gc.disable()
    try:
        line, protocol = way.connect()
        ended = weakref.ref(protocol)
        protocol.data_received(way.with_tokens(PUBLISHED))
        await wait_until_async(lambda: line.written.startswith(b"HTTP/1.1 200"))
        protocol.connection_lost(None)
        line.protocol = protocol = None  # type: ignore[assignment]
        await wait_until_async(lambda: ended() is None)
    finally:
        gc.enable()
    assert way.on_lane == 3


async def test_a_bug_ends_one_connection(way: Way, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    large = post_packet(PUBLISH, b'{"messages":[%b]}' % b",".join([b'{"data":"%b"}' % (b"QUFB" * 20_000)] * 10))
    wanted = post_packet(PULL, b'{"maxMessages":"20","returnImmediately":"true"}')
    await statuses(way, large, large, wanted)
    monkeypatch.setattr(LaneExchange, "_send_rest", AsyncMock(side_effect=RuntimeError("a defect")))
    before = way.on_lane
    line, protocol = way.connect()
    protocol.data_received(way.with_tokens(wanted))
    await wait_until_async(lambda: line.is_closed)
    protocol.connection_lost(None)

    assert way.on_lane == before + 1
    assert await statuses(way, request("GET", "/version")) == [200]
    said_of_it: Any = capsys.readouterr()
    assert "request.failed" in said_of_it.out + said_of_it.err


# Cached heads

DIFFERING_FIELDS = (b"traceparent: 00-%032x-%016x-01\r\n", b"X-Forwarded-For: 192.0.2.%d:%d\r\n", b"Date: %d %d\r\n")


@pytest.mark.parametrize(("target", "body"), HOT_REQUESTS)
async def test_unread_fields_may_differ_and_so_may_the_key_of_a_publish(way: Way, target: bytes, body: bytes) -> None:
    await way.send_packets([PUBLISHED, post_packet(PULL, NOW, KEY + b"Authorization: other\r\n")])
    heads = way.made.lane.fast._heads
    for field in (*DIFFERING_FIELDS, *[b"Idempotency-Key: %d-%d\r\n"] * (target == PUBLISH)):
        before = way.on_lane
        heads.clear()
        for number in range(5):
            answer, _ = await way.send_packets([post_packet(target, body, KEY + field % (number, number))])
            assert answer.startswith(b"HTTP/1.1 200")

        assert (way.on_lane, len(heads._entries)) == (before + 4, 1), field


class NotingName(bytes):
    """A header field's name that notes its comparisons."""

    compared: set[Any]
    __hash__ = bytes.__hash__

    def __eq__(self, other: object) -> bool:
        self.compared.add(other)
        return super().__eq__(other)


@pytest.mark.parametrize(("target", "body"), HOT_REQUESTS)
async def test_every_field_that_hot_routes_read_is_known_to_the_lane(way: Way, target: bytes, body: bytes) -> None:
    """Over ASGI; a field found by its hash would have to be in a set that the lane has too."""
    name = NotingName(b"traceparent")
    name.compared = set()
    await way.send_packets([PUBLISHED, post_packet(PULL, NOW)])
    headers = [(name, b"x"), (b"x-api-key", way.with_tokens(KEY).split()[1])]
    scope = {"type": "http", "method": "POST", "path": target.decode(), "query_string": b"", "headers": headers}
    scope |= {"client": ("127.0.0.1", 1), "state": {}}
    coming = [{"body": body[:1], "more_body": True}, {"body": body[1:]}]
    receive, send = AsyncMock(side_effect=[{"type": "http.request"} | each for each in coming]), AsyncMock()
    await way.made.lane.asgi(scope, receive, send)

    assert send.call_args_list[0].args[0]["status"] == 200
    assert {b"x-api-key", b"authorization", b"origin"} <= name.compared <= fast_lane._READ_FIELDS


async def test_what_the_service_notes_by_itself_does_not_make_heads_unknown(warm_way: Way) -> None:
    before, on_lane = warm_way.made.registry.invalidations.generation, warm_way.on_lane
    await warm_way.send_packets([PUBLISHED])
    await warm_way.made.counting.round()
    await warm_way.send_packets([PUBLISHED])

    assert warm_way.made.registry.invalidations.generation == before
    assert warm_way.on_lane == on_lane + 2


# Waiting requests


@pytest.fixture
def far_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make reads of positions asynchronous, as with a database on another machine."""
    found = EmbeddedCursors.position

    async def find_later(cursors: EmbeddedCursors, *place: Any) -> Any:
        await asyncio.sleep(0)
        return await found(cursors, *place)

    monkeypatch.setattr(EmbeddedCursors, "position", find_later)


@pytest.mark.usefixtures("far_positions")
async def test_a_pull_that_finds_nothing_after_it_asked_waits_for_a_message(warm_way: Way) -> None:
    nothing, _ = await warm_way.send_packets([PULL_LATER])
    assert nothing.endswith(b'\r\n\r\n{"receivedMessages":[]}'), nothing

    pulling = asyncio.ensure_future(warm_way.send_packets([PULL_LATER]))
    await wait_until_async(lambda: warm_way.made.deliverer.waiting == 1)
    await warm_way.send_packets([PUBLISHED])

    found, is_closed = await pulling
    assert b"200 OK" in found
    assert b'"messageId":"1"' in found
    assert not is_closed
    assert warm_way.on_lane == 3
    assert warm_way.held_resources() == (0, 0, 0, 0)


@pytest.mark.usefixtures("far_positions")
@pytest.mark.parametrize("leaves", [True, False], ids=["leaves while it waits", "ends its side before it waits"])
async def test_a_pull_ends_with_its_client(warm_way: Way, leaves: bool) -> None:
    line, protocol = warm_way.connect()
    protocol.data_received(warm_way.with_tokens(PULL_LATER))
    if leaves:
        await wait_until_async(lambda: warm_way.made.deliverer.waiting == 1)
        protocol.connection_lost(None)
    else:
        assert protocol.eof_received()
    await wait_until_async(lambda: not warm_way.port.exchanges)

    assert line.written == b""
    assert warm_way.made.deliverer.waiting == 0
    if not leaves:
        assert line.is_closed
        protocol.connection_lost(None)
    assert warm_way.held_resources() == (0, 0, 0, 0)


@pytest.mark.usefixtures("far_positions")
async def test_requests_behind_a_pull_that_waits_are_answered_after_it(warm_way: Way) -> None:
    answers, _ = await warm_way.send_packets([PULL_LATER + PUBLISHED + post_packet(PULL, NOW)])
    places = [answers.index(each) for each in (b'"receivedMessages":[]', b'"messageIds":["1"]', b'"messageId":"1"')]
    assert places == sorted(places)


PARALLEL = "/projects/P/subscriptions/W"


@pytest.mark.parametrize(("verb", "told"), [
    ("DELETE", b"Subscription doesn't exist"), ("detach", b"Subscription is detached"), ("nack", b'"ackId"'),
    ("seek", b'"ackId"'),
])  # fmt: skip
async def test_a_waiting_pull_of_a_parallel_subscription_is_woken(tmp_path: Path, verb: str, told: bytes) -> None:
    async with one_way(tmp_path / "data", lane=True, pull_wait=30) as way:
        pull = f"/v1{PARALLEL}:pull".encode()
        await way.send_packets([request("PUT", PARALLEL, b'{"topic": "projects/P/topics/T", "type": "parallel"}')])
        await way.send_packets([request("POST", PARALLEL + ":modifyAcl", b'{"authorized_users":["u"]}')])
        await way.send_packets([PUBLISHED])
        leased, _ = await way.send_packets([post_packet(pull, NOW)])
        pulling = asyncio.create_task(way.send_packets([post_packet(pull, b"{}")]))
        await wait_until_async(lambda: way.made.deliverer.waiting == 1)
        ids = re.findall('"ackId":"([^"]+)"', leased.decode())
        body = json.dumps({"nack": {"ackIds": ids}, "seek": {"offset": 0}}.get(verb, {})).encode()
        method, path = ("DELETE", PARALLEL) if verb == "DELETE" else ("POST", f"{PARALLEL}:{verb}")
        await way.send_packets([request(method, path, body)])

        assert told in (await pulling)[0]


async def test_many_pulls_in_one_packet_give_others_a_turn(warm_way: Way) -> None:
    await warm_way.send_packets([PUBLISHED])
    turns, before = 0, warm_way.on_lane
    answering = asyncio.ensure_future(warm_way.send_packets([post_packet(PULL, NOW) * 60]))
    while not answering.done():
        turns += 1
        await asyncio.sleep(0)
    answers, _ = await answering

    assert answers.count(b'"messageId":"1"') == 60
    assert warm_way.on_lane - before <= MAX_REQUESTS_ALONE
    assert turns > 60 - MAX_REQUESTS_ALONE


class NotingLine(Line):
    """A line that notes the owner of each write."""

    def __init__(self, name: str, answered: list[str]) -> None:
        super().__init__()
        self._name, self._answered = name, answered

    def write(self, data: Any) -> None:
        super().write(data)
        self._answered.append(self._name)


async def test_a_group_is_answered_in_turns_of_its_projects(tmp_path: Path) -> None:
    many, disk, scheduler, answered = 200, HeldDisk(), at_once(), list[str]()
    async with one_way(tmp_path / "data", lane=True, files=disk, scheduler=scheduler) as way:
        await way.send_packets([request("POST", "/projects/Q", "{}")])
        await way.send_packets([request("PUT", "/projects/Q/topics/T")])
        packets = {name: request("POST", f"/projects/{name}/topics/T:publish", MESSAGE) for name in "PQ"}
        for each in [*packets.values()] * 2:  # then both heads are known
            await way.send_packets([each])
        known = way.on_lane
        disk.hold()
        protocols = []
        for name in "P" * many + "Q":
            _, protocol = way.connect(NotingLine(name, answered))
            protocol.data_received(packets[name])
            protocols.append(protocol)
        scheduler._clock = iter(range(10**6)).__next__  # from now on each look at the clock finds that a share is over
        disk.release()
        await wait_until_async(lambda: len(answered) == many + 1)

        assert way.on_lane == known + many + 1
        # Some are answered before the first look at the clock, and those of a group that had begun by then.
        assert answered.index("Q") < many / 2
        for each in protocols:
            each.connection_lost(None)


# The request id, which is in every line of the log about the request


def requests_at(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, known: list[bytes] | None = None
) -> list[bytes]:
    """Note the request ids of calls of a function."""
    function, found = getattr(place, name), [] if known is None else known

    def note_request(*given: Any, **named: Any) -> Any:
        found.append(REQUEST.get())
        return function(*given, **named)

    monkeypatch.setattr(place, name, note_request)
    return found


async def test_a_late_error_is_logged_as_that_of_its_request(warm_way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    known = requests_at(monkeypatch, Auditor, "turned_away")
    monkeypatch.setattr(Counts, "note_publish", Mock(side_effect=ArithmeticError("planted")))
    answer, _ = await warm_way.send_packets([post_packet(PUBLISH, MESSAGE, KEY + b"X-Request-Id: mine-9\r\n")])

    assert answer.startswith(b"HTTP/1.1 500")
    assert b"x-request-id: mine-9" in answer
    assert b'"message":"Internal error' in answer
    assert known == [b"mine-9"]
    assert warm_way.held_resources() == (0, 0, 0, 0)


@pytest.mark.usefixtures("far_positions")
async def test_what_is_logged_names_the_request_at_every_step(warm_way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    known = requests_at(monkeypatch, Counts, "note_publish")
    requests_at(monkeypatch, MessageReader, "read_small", known)
    pulls = requests_at(monkeypatch, Deliverer, "pull")
    before = warm_way.on_lane
    await warm_way.send_packets([PULL_LATER])
    for number in (1, 2):
        await warm_way.send_packets([post_packet(PUBLISH, MESSAGE, KEY + b"X-Request-Id: mine-%d\r\n" % number)])
    await warm_way.send_packets([PUBLISHED])
    assert warm_way.on_lane == before + 4
    assert known[:4] == [b"mine-1", b"mine-1", b"mine-2", b"mine-2"]
    assert known[4] == known[5] != b"mine-2"
    assert len(pulls) > 1  # it begins to wait
    assert len(set(pulls)) == 1
    assert b"" not in pulls

    await warm_way.send_packets([post_packet(PUBLISH, b"{")])  # begins anew over ASGI
    assert known[6] == known[7] not in known[:6]
    assert REQUEST.get() == b""
