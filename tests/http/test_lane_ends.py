"""How requests on the lane end otherwise than by their answer: a stop, a client that leaves, an error; as over ASGI."""

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ams.service.counting import Counts
from tests.support.held_disk import HeldDisk
from tests.support.hot_packets import MESSAGE, NOW, PUBLISH, PULL, said
from tests.support.line import Line
from tests.support.rounds import AllWaits, at_once
from tests.support.two_ways import SERVICE_TOKEN, Way, one_way, until

_PACKET = 32 * 1024
ADMIN = b"x-api-key: %b\r\n" % SERVICE_TOKEN.encode()
PUBLISHED = said(PUBLISH, MESSAGE, ADMIN)
PULLED = said(PULL, b'{"maxMessages":"10","returnImmediately":"true"}', ADMIN)
LARGE = said(PUBLISH, b'{"messages":[%b]}' % b",".join([b'{"data":"%b"}' % (b"QUFB" * 20_000)] * 3), ADMIN)


@pytest.fixture
def disk() -> HeldDisk:
    return HeldDisk()


@pytest.fixture(
    params=[(True, at_once), (False, at_once), (True, AllWaits), (False, AllWaits)],
    ids=["lane", "asgi", "lane in turns", "asgi in turns"],
)
async def way(request: pytest.FixtureRequest, tmp_path: Path, disk: HeldDisk) -> AsyncIterator[Way]:
    """A service whose heads are known, and at the end of which nothing may be left."""
    failed: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failed.append(context))
    lane, rounds = request.param
    async with one_way(tmp_path / "data", lane=lane, files=disk, rounds=rounds()) as way:
        for each in (PUBLISHED, PULLED, PUBLISHED):
            await way.told([each])
        yield way
        disk.release()
        await until(lambda: way.kept() == (0, 0, 0, 0))
    gc.collect()
    assert failed == []
    assert (way.on_lane > 0) == lane
    assert way.rounds._held_bytes == 0


def stop(way: Way) -> None:
    """Do what uvicorn does when a stop begins."""
    for connection in list(way.state.connections):
        connection.shutdown()


def end_patience(way: Way) -> None:
    """Do what uvicorn does when its patience ends."""
    for task in way.state.tasks:
        task.cancel(msg="Task cancelled, timeout graceful shutdown exceeded")


async def under_way(way: Way, packet: bytes) -> tuple[Line, Any]:
    """Send something in packets as a network has them, and give it some turns after each."""
    line, protocol = way.connect()
    for at in range(0, len(packet), _PACKET):
        protocol.data_received(packet[at : at + _PACKET])
        for _ in range(10):
            await asyncio.sleep(0)
    return line, protocol


async def end_of(way: Way) -> int:
    [most, *_] = sorted([bounds.end for bounds in (await way.made.log.all_bounds()).values()], reverse=True)
    return most


async def test_a_publish_that_waits_for_the_disk_at_a_stop_is_stored_and_answered(way: Way, disk: HeldDisk) -> None:
    disk.hold()
    line, protocol = await under_way(way, PUBLISHED)
    assert line.written == b""
    stop(way)
    assert not line.is_closed
    disk.release()
    await until(lambda: line.is_closed)

    assert line.written.startswith(b"HTTP/1.1 200")
    assert b"\r\nconnection: close\r\n" in line.written
    assert line.written.endswith(b'{"messageIds":["2"]}')
    assert await end_of(way) == 3
    protocol.connection_lost(None)


async def test_a_publish_whose_body_arrives_at_a_stop_is_stored_and_answered(way: Way) -> None:
    line, protocol = await under_way(way, PUBLISHED[:-10])
    stop(way)
    assert not line.is_closed
    protocol.data_received(PUBLISHED[-10:])
    await until(lambda: line.is_closed)

    assert line.written.startswith(b"HTTP/1.1 200")
    assert b"\r\nconnection: close\r\n" in line.written
    protocol.connection_lost(None)


async def test_a_publish_whose_body_does_not_come_is_refused_at_the_end_of_a_stop(way: Way) -> None:
    line, protocol = await under_way(way, PUBLISHED[:-10])
    stop(way)
    await asyncio.sleep(0)
    end_patience(way)
    await until(lambda: bool(line.written))

    assert line.written.startswith(b"HTTP/1.1 503")
    assert b"The service is stopping" in line.written
    protocol.connection_lost(None)
    assert await end_of(way) == 2


async def test_a_publish_that_the_disk_keeps_waiting_is_refused_at_the_end_of_a_stop(way: Way, disk: HeldDisk) -> None:
    disk.hold()
    line, protocol = await under_way(way, PUBLISHED)
    stop(way)
    end_patience(way)
    await until(lambda: line.is_closed)

    assert line.written.startswith(b"HTTP/1.1 503")
    assert b"The service is stopping" in line.written
    assert b"\r\nconnection: close\r\n" in line.written
    assert way.made.api.answered[5] == 1
    protocol.connection_lost(None)


@pytest.mark.parametrize("headers", [b"", b"Idempotency-Key: k\r\n"])
async def test_nobody_misses_that_a_disk_fails_after_the_end_of_a_stop(
    way: Way, disk: HeldDisk, headers: bytes
) -> None:
    disk.hold()
    line, protocol = await under_way(way, said(PUBLISH, MESSAGE, ADMIN + headers))
    stop(way)
    end_patience(way)
    await until(lambda: line.is_closed)
    assert line.written.startswith(b"HTTP/1.1 503")
    protocol.connection_lost(None)
    disk.is_broken = True
    disk.release()
    await until(lambda: way.made.log.refusal is not None)


@pytest.mark.parametrize("first_leaves", [False, True])
async def test_a_publish_behind_another_with_its_key_gets_the_same_answer(
    way: Way, disk: HeldDisk, first_leaves: bool
) -> None:
    keyed = said(PUBLISH, MESSAGE, ADMIN + b"Idempotency-Key: k\r\n")
    disk.hold()
    asked = [await under_way(way, keyed) for _ in range(3)]
    if first_leaves:
        asked[0][0].close()
        asked[0][1].connection_lost(ConnectionResetError())
    disk.release()
    await until(lambda: all(line.written for line, _ in asked[1:]))

    assert {line.written.partition(b"\r\n\r\n")[2] for line, _ in asked[1:]} == {b'{"messageIds":["2"]}'}
    for _, protocol in asked[int(first_leaves) :]:
        protocol.connection_lost(None)
    assert await end_of(way) == 3


@pytest.mark.parametrize("count", [1, 3])
async def test_publishes_with_one_key_that_wait_at_the_end_of_a_stop_are_all_refused(
    way: Way, disk: HeldDisk, count: int
) -> None:
    keyed = said(PUBLISH, MESSAGE, ADMIN + b"Idempotency-Key: k\r\n")
    disk.hold()
    asked = [await under_way(way, keyed) for _ in range(count)]
    stop(way)
    end_patience(way)
    await until(lambda: all(line.is_closed for line, _ in asked))

    assert [line.written[9:12] for line, _ in asked] == [b"503"] * count
    for _, protocol in asked:
        protocol.connection_lost(None)


async def test_a_disk_that_fails_is_said_to_all_who_wait(way: Way, disk: HeldDisk) -> None:
    disk.hold()
    asked = [await under_way(way, PUBLISHED) for _ in range(3)]
    disk.is_broken = True
    disk.release()
    await until(lambda: all(line.written for line, _ in asked))

    assert [line.written[9:12] for line, _ in asked] == [b"500"] * 3
    for _, protocol in asked:
        protocol.connection_lost(None)


async def test_an_answer_that_is_not_read_is_given_up_at_the_end_of_a_stop(way: Way) -> None:
    for _ in range(3):
        await way.told([LARGE])
    line, protocol = way.connect()
    line.is_deaf = True
    protocol.data_received(PULLED)
    await until(lambda: way.kept()[1] > 0)
    stop(way)
    end_patience(way)
    await until(lambda: line.is_closed)
    protocol.connection_lost(None)


@pytest.mark.parametrize("arrived", [5, -len(MESSAGE), -len(MESSAGE) + 1, -1])
async def test_a_client_that_leaves_before_its_request_is_whole_stores_nothing(way: Way, arrived: int) -> None:
    _, protocol = await under_way(way, PUBLISHED[:arrived])
    protocol.connection_lost(None)
    await until(lambda: way.kept() == (0, 0, 0, 0))

    assert await end_of(way) == 2


async def test_a_client_that_leaves_a_large_body_frees_its_memory(way: Way) -> None:
    await way.told([LARGE])
    line, protocol = await under_way(way, LARGE[: len(LARGE) // 2])
    await until(lambda: way.kept()[0] > 0)
    line.close()
    protocol.connection_lost(ConnectionResetError())
    await until(lambda: way.kept() == (0, 0, 0, 0))


async def test_a_client_that_leaves_while_its_message_is_stored_has_it_stored(way: Way, disk: HeldDisk) -> None:
    answered = way.made.api.answered[2]
    disk.hold()
    line, protocol = await under_way(way, PUBLISHED)
    line.close()
    protocol.connection_lost(ConnectionResetError())
    disk.release()
    await until(lambda: way.kept() == (0, 0, 0, 0))

    assert line.written == b""
    assert await end_of(way) == 3
    assert way.made.api.answered[2] == answered + 1


async def test_a_client_that_leaves_with_requests_behind_one_that_is_stored(way: Way, disk: HeldDisk) -> None:
    disk.hold()
    line, protocol = await under_way(way, PUBLISHED * 3 + PUBLISHED[:-10])
    line.close()
    protocol.connection_lost(ConnectionResetError())
    disk.release()
    await until(lambda: way.kept() == (0, 0, 0, 0))

    assert await end_of(way) == 3


async def test_a_client_that_leaves_within_a_large_answer_frees_its_memory(way: Way) -> None:
    for _ in range(3):
        await way.told([LARGE])
    line, protocol = way.connect()
    line.is_deaf = True
    protocol.data_received(PULLED)
    await until(lambda: way.kept()[1] > 0)
    line.close()
    protocol.connection_lost(ConnectionResetError())
    await until(lambda: way.kept() == (0, 0, 0, 0))


async def test_an_error_in_one_answer_of_a_group_is_that_of_one_request(
    way: Way, disk: HeldDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = PUBLISHED.replace(b"topics/T:", b"topics/Other:")
    await way.told([other])
    note = Counts.note_publish

    def fail(counts: Counts, topic: Any, appended: Any) -> None:
        if topic.name == "Other":
            raise ArithmeticError("planted")
        note(counts, topic, appended)

    monkeypatch.setattr(Counts, "note_publish", fail)
    disk.hold()
    asked = [await under_way(way, each) for each in (PUBLISHED, PUBLISHED, other, PUBLISHED)]
    disk.release()
    await until(lambda: all(line.written for line, _ in asked))

    assert [line.written[9:12] for line, _ in asked] == [b"200", b"200", b"500", b"200"]
    assert not any(line.is_closed for line, _ in asked)
    assert b"planted" not in asked[2][0].written
    for line, protocol in asked:
        line.written = b""
        protocol.data_received(said(PULL, NOW, ADMIN))
        await until(lambda line=line: bool(line.written))
        assert line.written.startswith(b"HTTP/1.1 200")
        protocol.connection_lost(None)
