"""Requests on the lane that end without an answer, and limits of a client's cost there; both as over ASGI."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ams.service.tallies import Counts
from ams.web.connection import MAX_PIPELINED_REQUESTS
from tests.support.held_disk import HeldDisk
from tests.support.hot_packets import KEY, MESSAGE, NOW, PUBLISH, PULL, post_packet
from tests.support.line import Line
from tests.support.schedulers import AllWaits, at_once
from tests.support.two_ways import SERVICE_TOKEN, Way, one_way, request
from tests.support.waiting import wait_until_async

ADMIN = b"x-api-key: %b\r\n" % SERVICE_TOKEN.encode()
PUBLISH_REQUEST = post_packet(PUBLISH, MESSAGE, ADMIN)
PULL_REQUEST = post_packet(PULL, b'{"maxMessages":"10","returnImmediately":"true"}', ADMIN)
LARGE_PUBLISH = post_packet(
    PUBLISH, b'{"messages":[%b]}' % b",".join([b'{"data":"%b"}' % (b"QUFB" * 20_000)] * 3), ADMIN
)


@pytest.fixture
def disk() -> HeldDisk:
    return HeldDisk()


@pytest.fixture(
    params=[
        pytest.param((True, at_once), id="lane"), pytest.param((False, at_once), id="asgi"),
        pytest.param((True, AllWaits), id="lane in turns", marks=pytest.mark.long),
        pytest.param((False, AllWaits), id="asgi in turns", marks=pytest.mark.long),
    ]
)  # fmt: skip
async def way(request: pytest.FixtureRequest, tmp_path: Path, disk: HeldDisk) -> AsyncIterator[Way]:
    """A service with cached heads; at the end no resource may be left."""
    failed: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failed.append(context))
    lane, scheduler = request.param
    async with one_way(tmp_path / "data", lane=lane, files=disk, scheduler=scheduler()) as way:
        for each in (PUBLISH_REQUEST, PULL_REQUEST, PUBLISH_REQUEST):
            await way.send_packets([each])
        yield way
        disk.release()
        await wait_until_async(lambda: way.held_resources() == (0, 0, 0, 0))
    gc.collect()
    assert failed == []
    assert (way.on_lane > 0) == lane
    assert way.port.scheduler._held_bytes == 0


def stop(way: Way) -> None:
    for connection in list(way.port.connections):
        connection.prepare_stop()


def end_patience(way: Way) -> None:
    for exchange in list(way.port.exchanges):
        exchange.cancel()


async def end_of(way: Way) -> int:
    return max(bounds.end for bounds in (await way.made.log.all_bounds()).values())


@pytest.mark.parametrize("missing", [0, 10])
async def test_a_publish_begun_before_a_stop_is_stored_and_answered(way: Way, disk: HeldDisk, missing: int) -> None:
    arrived = len(PUBLISH_REQUEST) - missing
    disk.hold()
    line, protocol = await way.begin(PUBLISH_REQUEST[:arrived])
    assert line.written == b""
    stop(way)
    assert not line.is_closed
    if missing:
        protocol.data_received(PUBLISH_REQUEST[arrived:])
    disk.release()
    await wait_until_async(lambda: line.is_closed)

    assert line.written.startswith(b"HTTP/1.1 200")
    assert b"\r\nconnection: close\r\n" in line.written
    assert line.written.endswith(b'{"messageIds":["2"]}')
    assert await end_of(way) == 3
    protocol.connection_lost(None)


async def test_a_publish_whose_body_does_not_come_is_refused_at_the_end_of_a_stop(way: Way) -> None:
    line, protocol = await way.begin(PUBLISH_REQUEST[:-10])
    stop(way)
    await asyncio.sleep(0)
    end_patience(way)
    await wait_until_async(lambda: bool(line.written))

    assert line.written.startswith(b"HTTP/1.1 503")
    assert b"The service is stopping" in line.written
    protocol.connection_lost(None)
    assert await end_of(way) == 2


@pytest.mark.parametrize("headers", [b"", b"Idempotency-Key: k\r\n"])
@pytest.mark.parametrize("count", [1, 3])
async def test_publishes_that_outlast_a_stop_are_refused(way: Way, disk: HeldDisk, headers: bytes, count: int) -> None:
    disk.hold()
    asked = [await way.begin(post_packet(PUBLISH, MESSAGE, ADMIN + headers)) for _ in range(count)]
    stop(way)
    end_patience(way)
    await wait_until_async(lambda: all(line.is_closed for line, _ in asked))

    for line, protocol in asked:
        assert line.written.startswith(b"HTTP/1.1 503")
        assert b"The service is stopping" in line.written
        assert b"\r\nconnection: close\r\n" in line.written
        protocol.connection_lost(None)
    assert way.made.api.answered[5] == count
    disk.is_broken = True
    disk.release()
    await wait_until_async(lambda: way.made.log.refusal is not None)


@pytest.mark.parametrize("first_leaves", [False, True])
async def test_a_publish_behind_another_with_its_key_gets_the_same_answer(way: Way, disk: HeldDisk, first_leaves: bool):
    keyed = post_packet(PUBLISH, MESSAGE, ADMIN + b"Idempotency-Key: k\r\n")
    disk.hold()
    asked = [await way.begin(keyed) for _ in range(3)]
    if first_leaves:
        asked[0][0].close()
        asked[0][1].connection_lost(ConnectionResetError())
    disk.release()
    await wait_until_async(lambda: all(line.written for line, _ in asked[1:]))

    assert {line.written.partition(b"\r\n\r\n")[2] for line, _ in asked[1:]} == {b'{"messageIds":["2"]}'}
    for _, protocol in asked[int(first_leaves) :]:
        protocol.connection_lost(None)
    assert await end_of(way) == 3


async def test_a_disk_that_fails_is_said_to_all_who_wait(way: Way, disk: HeldDisk) -> None:
    disk.hold()
    asked = [await way.begin(PUBLISH_REQUEST) for _ in range(3)]
    disk.is_broken = True
    disk.release()
    await wait_until_async(lambda: all(line.written for line, _ in asked))

    assert [line.written[9:12] for line, _ in asked] == [b"500"] * 3
    for _, protocol in asked:
        protocol.connection_lost(None)


@pytest.mark.parametrize("ending", ["a stop", "the client leaves"])
async def test_an_unread_answer_is_given_up_at_the_end_of_a_stop_or_with_its_client(way: Way, ending: str) -> None:
    for _ in range(3):
        await way.send_packets([LARGE_PUBLISH])
    line, protocol = way.connect()
    line.is_deaf = True
    protocol.data_received(PULL_REQUEST)
    await wait_until_async(lambda: way.held_resources()[1] > 0)
    if ending == "a stop":
        stop(way)
        end_patience(way)
        await wait_until_async(lambda: line.is_closed)
        protocol.connection_lost(None)
    else:
        line.close()
        protocol.connection_lost(ConnectionResetError())
    await wait_until_async(lambda: way.held_resources() == (0, 0, 0, 0))


@pytest.mark.parametrize("arrived", [
    *(PUBLISH_REQUEST[:end] for end in (5, -len(MESSAGE), -len(MESSAGE) + 1, -1)),
    LARGE_PUBLISH[: len(LARGE_PUBLISH) // 2],
], ids=["line", "head", "a byte of the body", "all but a byte", "half of a large one"])  # fmt: skip
async def test_a_client_that_leaves_before_its_request_is_whole_stores_nothing(way: Way, arrived: bytes) -> None:
    _, protocol = await way.begin(arrived)
    protocol.connection_lost(None)
    await wait_until_async(lambda: way.held_resources() == (0, 0, 0, 0))
    assert await end_of(way) == 2


async def test_a_client_that_leaves_before_it_is_let_in_takes_no_place_of_its_project(way: Way) -> None:
    for _ in range(3):
        _, protocol = way.connect()
        protocol.data_received(request("GET", "/projects/P"))
        protocol.connection_lost(None)
    await wait_until_async(lambda: way.held_resources() == (0, 0, 0, 0))

    answer, _ = await way.send_packets([request("GET", "/projects/P:quotas")])
    quotas = json.loads(answer.rpartition(b"\r\n\r\n")[2])["quotas"]
    assert [each["used"] for each in quotas if each["name"] == "connections"] == [1]  # that of the question


@pytest.mark.parametrize("behind", [b"", PUBLISH_REQUEST * 2 + PUBLISH_REQUEST[:-10]])
async def test_a_client_that_leaves_has_only_its_first_message_stored(way: Way, disk: HeldDisk, behind: bytes) -> None:
    answered = way.made.api.answered[2]
    disk.hold()
    line, protocol = await way.begin(PUBLISH_REQUEST + behind)
    line.close()
    protocol.connection_lost(ConnectionResetError())
    disk.release()
    await wait_until_async(lambda: way.held_resources() == (0, 0, 0, 0))

    assert line.written == b""
    assert await end_of(way) == 3
    assert way.made.api.answered[2] == answered + 1


async def test_an_error_in_a_group_is_of_one_request(way: Way, disk: HeldDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    other = PUBLISH_REQUEST.replace(b"topics/T:", b"topics/Other:")
    await way.send_packets([other])
    note = Counts.note_publish

    def fail(counts: Counts, topic: Any, appended: Any) -> None:
        if topic.name == "Other":
            raise ArithmeticError("planted")
        note(counts, topic, appended)

    monkeypatch.setattr(Counts, "note_publish", fail)
    disk.hold()
    asked = [await way.begin(each) for each in (PUBLISH_REQUEST, PUBLISH_REQUEST, other, PUBLISH_REQUEST)]
    disk.release()
    await wait_until_async(lambda: all(line.written for line, _ in asked))

    assert [line.written[9:12] for line, _ in asked] == [b"200", b"200", b"500", b"200"]
    assert not any(line.is_closed for line, _ in asked)
    assert b"planted" not in asked[2][0].written
    for line, protocol in asked:
        line.written = b""
        protocol.data_received(post_packet(PULL, NOW, ADMIN))
        await wait_until_async(lambda line=line: bool(line.written))
        assert line.written.startswith(b"HTTP/1.1 200")
        protocol.connection_lost(None)


# Limits

SIZES = 150, 200, 200, 250, 150  # KiB of bodies
PULL_BODY = b'{"maxMessages":"9","returnImmediately":"true"}'
KIB = 1024
SETTINGS: dict[str, Any] = {
    "max_message_bytes": 100_000, "max_body_bytes": 900 * KIB, "max_buffered_bytes": 900 * KIB,
    "max_unread_bytes": 900_000, "max_header_bytes": 4096,
}  # fmt: skip


@pytest.fixture
def seconds() -> float:
    """Return the seconds that the service waits for a client."""
    return 30.0


@pytest.fixture(params=[True, False], ids=["lane", "asgi"])
async def limited_way(request: pytest.FixtureRequest, tmp_path: Path, seconds: float) -> AsyncIterator[Way]:
    made = one_way(tmp_path / "data", lane=request.param, request_seconds=seconds, **SETTINGS)
    async with made as way:
        for headers in (KEY, ADMIN):
            await way.send_packets([post_packet(PUBLISH, MESSAGE, headers)])
            await way.send_packets([post_packet(PULL, NOW, headers)])
        yield way
        await wait_until_async(lambda: way.held_resources() == (0, 0, 0, 0))


def large_publish(size: int, headers: bytes = KEY) -> bytes:
    count = size // (50 * KIB)
    return post_packet(
        PUBLISH, b'{"messages":[%b]}' % b",".join([b'{"data":"%b"}' % (b"QUFB" * 12_800)] * count), headers
    )


@pytest.mark.parametrize("seconds", [0.3])
@pytest.mark.parametrize("size", [len(MESSAGE), 80 * KIB])
async def test_a_body_that_comes_too_slowly_is_refused(limited_way: Way, size: int) -> None:
    said_ = post_packet(PUBLISH, MESSAGE + b" " * (size - len(MESSAGE)))
    line, protocol = await limited_way.begin(said_[: -size // 2])
    while not line.written:
        await asyncio.sleep(0.02)
        protocol.data_received(b" ")

    assert line.written.startswith(b"HTTP/1.1 400")
    assert b"Request took too long to arrive" in line.written
    assert line.is_closed
    protocol.connection_lost(None)


async def test_the_largest_body_of_the_largest_holder_goes_when_memory_is_short(limited_way: Way) -> None:
    greedy = [await limited_way.begin(large_publish(size * KIB)[:-100]) for size in SIZES]
    await asyncio.sleep(0)
    modest, other = await limited_way.begin(large_publish(150 * KIB, ADMIN))
    await wait_until_async(lambda: bool(modest.written))
    assert modest.written.startswith(b"HTTP/1.1 200")
    other.connection_lost(None)
    await wait_until_async(lambda: any(line.written for line, _ in greedy))
    ended = [number for number, (line, _) in enumerate(greedy) if line.written]
    assert [greedy[number][0].written[9:12] for number in ended] == [b"503"] * len(ended)
    assert 1 <= len(ended) <= 2
    assert 3 in ended  # the largest
    for number, (line, protocol) in enumerate(greedy):
        if number not in ended:
            protocol.data_received(large_publish(SIZES[number] * KIB)[-100:])
            await wait_until_async(lambda line=line: bool(line.written))
            assert line.written.startswith(b"HTTP/1.1 200")
        protocol.connection_lost(None)


async def test_bodies_on_the_lane_and_over_asgi_share_one_memory(limited_way: Way) -> None:
    """Chunked bodies are for ASGI."""
    chunk = large_publish(200 * KIB).partition(b"\r\n\r\n")[2][:-100]
    begun = b"POST %b HTTP/1.1\r\nHost: x\r\n%bTransfer-Encoding: chunked\r\n\r\n" % (PUBLISH, KEY)
    asked = []
    for _ in range(5):
        asked.append(await limited_way.begin(large_publish(200 * KIB)[:-100]))
        asked.append(await limited_way.begin(begun + b"%x\r\n%b\r\n" % (len(chunk), chunk)))
        await asyncio.sleep(0.002)
    await wait_until_async(lambda: sum(bool(line.written) for line, _ in asked) >= 6)
    held = limited_way.held_resources()[0]
    refused = [line.written[9:12] for line, _ in asked if line.written]

    assert refused == [b"503"] * len(refused)
    assert held <= 900 * KIB + 10
    for _, protocol in asked:
        protocol.connection_lost(None)


async def connect_deaf(way: Way, scheme: str = "http") -> tuple[Line, Any]:
    """Publish much, and start to send it to a client that reads nothing."""
    for _ in range(4):
        await way.send_packets([large_publish(200 * KIB)])
    line, protocol = way.connect()
    line.is_deaf, protocol.is_secure = True, scheme == "https"
    protocol.data_received(way.with_tokens(post_packet(PULL, PULL_BODY)))
    await wait_until_async(lambda: way.held_resources()[1] > 300_000)
    return line, protocol


@pytest.mark.parametrize("seconds", [5.0])
async def test_answers_that_are_not_read_take_memory_of_their_project_until_patience_ends(limited_way: Way) -> None:
    line, protocol = await connect_deaf(limited_way)
    other, other_protocol = await limited_way.begin(post_packet(PULL, PULL_BODY, ADMIN))
    await wait_until_async(lambda: bool(other.written))
    assert other.written.startswith(b"HTTP/1.1 200")
    assert len(other.written) < 200_000  # as much as the other leaves free
    other_protocol.connection_lost(None)
    await wait_until_async(lambda: line.is_aborted)
    protocol.connection_lost(ConnectionResetError())
    await wait_until_async(lambda: limited_way.held_resources() == (0, 0, 0, 0))
    answer, _ = await limited_way.send_packets([post_packet(PULL, PULL_BODY)])

    assert answer.startswith(b"HTTP/1.1 200")
    assert len(answer) > 300_000


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_an_answer_that_is_read_late_is_whole(limited_way: Way, scheme: str) -> None:
    line, protocol = await connect_deaf(limited_way, scheme)
    while limited_way.port.exchanges:
        line.read_output()
        line.is_deaf = True
        await asyncio.sleep(0.001)
    whole, _ = await limited_way.send_packets([post_packet(PULL, PULL_BODY)])

    assert line.written.partition(b"\r\n\r\n")[2] == whole.partition(b"\r\n\r\n")[2]
    protocol.connection_lost(None)


async def test_a_burst_is_answered_up_to_a_number(limited_way: Way) -> None:
    answers, is_closed = await limited_way.send_packets([post_packet(PULL, NOW) * (3 * MAX_PIPELINED_REQUESTS)])
    assert answers.count(b"HTTP/1.1 200") >= MAX_PIPELINED_REQUESTS
    assert answers.count(b"HTTP/1.1 503") == 1
    assert is_closed
