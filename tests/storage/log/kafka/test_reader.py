import asyncio
import contextlib

import pytest

from ams.core.messages import message, parse
from ams.storage.log.base import Appended, Bounds
from ams.storage.log.kafka import reader
from ams.storage.log.kafka.connection import ASK, KafkaConnection
from tests.storage.log.kafka import stored
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.kafka

ENDLESS_SECONDS = 600.0  # seconds of a wait that has to end by itself
PATIENCE_SECONDS = 60.0
READ_LIMITS = {"max_messages": 10_000, "max_bytes": 16 * 2**20}


@pytest.fixture
async def node():
    async with stored.open_reader() as (_, reader):
        yield reader


@pytest.fixture
async def other_reader():
    async with stored.open_reader() as (_, reader):
        yield reader


@pytest.fixture
def request_lanes(monkeypatch):
    """Return the lanes of all requests to brokers, which are answered soon."""
    asked, send = [], KafkaConnection.send

    def note_lane(self, node, request, lane=ASK):
        asked.append(lane)
        return send(self, node, request, lane)

    monkeypatch.setattr(KafkaConnection, "send", note_lane)
    monkeypatch.setitem(reader.WAIT_MS, reader.LONG_POLL, 20)
    return asked


async def goes_on(waiting, questions):
    """Return whether a wait continues after the answers to two more requests about its topic."""
    enough = questions.count(reader.LONG_POLL) + 3
    await wait_until_async(lambda: waiting.done() or questions.count(reader.LONG_POLL) >= enough)
    return not waiting.done()


def values(messages):
    return [parse(each.fragment).data for each in messages]


def offsets(messages):
    return [each.offset for each in messages]


async def transaction(node, partition, end):
    """Store a message in a transaction, and wait for its marker: a gap, which comes a moment after the commit."""
    async with stored.producer(transactional_id=f"hole-{partition.name}") as made, made.transaction():
        await made.send_and_wait(partition.name, b"within")

    async def is_marked():
        return await node.end(partition) >= end

    await wait_until_async(is_marked)


async def test_what_another_node_published_a_moment_ago_is_read(node) -> None:
    partition = await stored.make()
    async with stored.producer() as made:
        for number in range(30):
            sent = await made.send_and_wait(partition.name, b"%d" % number)
            assert offsets(await node.read(partition, number, **READ_LIMITS)) == [sent.offset]


async def test_reads_at_the_tail_hold_what_this_node_appended(node) -> None:
    partition = await stored.make()
    assert await node.read(partition, 0, **READ_LIMITS) == []
    fragments = [message(text).fragment for text in ("QQ==", "Qg==")]
    await stored.produce(partition, [b"A", b"B"])
    node.cache_appended(partition, Appended(0, 2, 5), fragments)
    assert [each.fragment for each in await node.read(partition, 0, max_messages=2, max_bytes=1 << 20)] == fragments


async def test_a_read_holds_no_more_than_what_came_before_a_gap_in_memory(node) -> None:
    partition = await stored.make()
    await node.read(partition, 0, **READ_LIMITS)
    await stored.produce(partition, [b"A", b"B", b"C"])
    node.cache_appended(partition, Appended(2, 1, 5), [message("Qw==").fragment])
    assert values(await node.read(partition, 0, **READ_LIMITS)) == ["QQ==", "Qg==", "Qw=="]


async def read_on(node, partition, step):
    found, start = [], 0
    while batch := await node.read(partition, start, max_messages=step, max_bytes=1 << 20):
        found += batch
        start = batch[-1].offset + 1
    return found


async def test_who_reads_on_and_on_and_side_by_side_gets_every_message_once(node) -> None:
    partition = await stored.make()
    await stored.produce(partition, [b"%06d" % number + b"x" * 500 for number in range(5000)], linger_ms=5)
    for found in await asyncio.gather(*(read_on(node, partition, step) for step in (100, 100, 100, 70, 300))):
        assert offsets(found) == list(range(5000))
        assert len({each.fragment for each in found}) == 5000


async def test_a_read_below_the_oldest_begins_there(node, other_reader, request_lanes) -> None:
    partition = await stored.make()
    await stored.produce(partition, [b"%d" % number for number in range(10)])
    await node.read(partition, 0, max_messages=1, max_bytes=1 << 20)
    await stored.delete_before(partition, 4)
    assert await node.bounds(partition) == Bounds(4, 10)
    assert offsets(await other_reader.read(partition, 0, **READ_LIMITS)) == list(range(4, 10))
    await stored.delete_before(partition, 10)
    assert await other_reader.bounds(partition) == Bounds(10, 10)
    assert await node.last_time(partition) is None
    waiting = asyncio.create_task(other_reader.wait(partition, 3, ENDLESS_SECONDS))
    assert await goes_on(waiting, request_lanes)
    await stored.produce(partition, [b"new"])
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await waiting


async def test_holes_are_read_over(node) -> None:
    partition = await stored.make()
    await stored.produce(partition, [b"before"])
    await transaction(node, partition, 3)
    assert offsets(await node.read(partition, 0, **READ_LIMITS)) == [0, 1]
    assert await node.read(partition, 2, **READ_LIMITS) == []
    assert await node.last_time(partition) is not None
    await stored.produce(partition, [b"after"])
    assert offsets(await node.read(partition, 1, **READ_LIMITS)) == [1, 3]
    assert offsets(await node.read(partition, 2, **READ_LIMITS)) == [3]


async def test_a_wait_does_not_end_for_a_hole(node, request_lanes) -> None:
    partition = await stored.make()
    await transaction(node, partition, 2)
    assert await node.wait(partition, 0, PATIENCE_SECONDS)
    waiting = asyncio.create_task(node.wait(partition, 1, ENDLESS_SECONDS))
    assert await goes_on(waiting, request_lanes)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not await node.wait(partition, 1, 0.3)


async def test_a_wait_ends_with_the_message_it_is_for_published_through_another_node(node, request_lanes) -> None:
    partition = await stored.make()
    async with stored.producer() as made:
        waiting = asyncio.create_task(node.wait(partition, 1, ENDLESS_SECONDS))
        assert await goes_on(waiting, request_lanes)
        await made.send_and_wait(partition.name, b"x")
        assert await goes_on(waiting, request_lanes)
        await made.send_and_wait(partition.name, b"y")
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await waiting


async def test_a_new_wait_is_followed_while_another_topic_is_waited_on(monkeypatch, request_lanes) -> None:
    """The other topic's request takes longer than the new waits last: they cannot be waiting for it."""
    monkeypatch.setitem(reader.WAIT_MS, reader.LONG_POLL, int(ENDLESS_SECONDS * 1000))
    quiet, busy = await stored.make(), await stored.make()
    async with stored.open_reader(request_timeout=2 * ENDLESS_SECONDS) as (_, node), stored.producer() as made:
        waiting = asyncio.create_task(node.wait(quiet, 0, ENDLESS_SECONDS))
        await wait_until_async(lambda: request_lanes.count(reader.LONG_POLL))
        await made.send_and_wait(busy.name, b"first")
        for number in range(1, 20):
            asked = len(request_lanes)
            wait = asyncio.create_task(node.wait(busy, number, PATIENCE_SECONDS))
            await wait_until_async(lambda asked=asked: len(request_lanes) > asked)
            await made.send_and_wait(busy.name, b"x")
            assert await wait
        assert not waiting.done()
    assert not await waiting


async def test_a_cancelled_read_harms_no_other(node) -> None:
    partition = await stored.make()
    await stored.produce(partition, [b"x"])
    reads = [asyncio.create_task(node.read(partition, 0, **READ_LIMITS)) for _ in range(6)]
    await asyncio.sleep(0)
    for each in reads[::2]:
        each.cancel()
    for each in reads[1::2]:
        assert offsets(await each) == [0]
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*reads[::2])
