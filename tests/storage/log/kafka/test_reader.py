import asyncio
import contextlib

import pytest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest

from ams.core.errors import TopicGone
from ams.core.messages import message, parse
from ams.core.names import Offset, new_topic_id
from ams.storage.log.base import Appended, Bounds
from ams.storage.log.kafka import follow
from ams.storage.log.kafka.partition import partition_of
from tests.storage.log.kafka import raw

pytestmark = pytest.mark.kafka

FOR_EVER = 600.0
"""Seconds of a wait that has to end by itself."""
PATIENCE = 60.0
ALL = {"max_messages": 10_000, "max_bytes": 16 * 2**20}


@pytest.fixture
async def node():
    async with raw.opened() as (_, reader):
        yield reader


@pytest.fixture
async def other():
    async with raw.opened() as (_, reader):
        yield reader


def values(messages):
    return [parse(each.fragment).data for each in messages]


def offsets(messages):
    return [each.offset for each in messages]


async def has_end(node, partition, end):
    """Wait until the marker of a transaction is written, which comes a moment after its end."""
    async with asyncio.timeout(10):
        while await node.end(partition) < end:
            await asyncio.sleep(0.02)


async def test_a_topic_is_read_from_any_offset_and_to_its_end(node):
    partition = await raw.make()
    await raw.produce(partition, [b"%d" % number for number in range(300)])
    assert offsets(await node.read(partition, Offset(0), **ALL)) == list(range(300))
    assert offsets(await node.read(partition, Offset(120), max_messages=3, max_bytes=1 << 20)) == [120, 121, 122]
    assert offsets(await node.read(partition, Offset(298), **ALL)) == [298, 299]
    assert await node.read(partition, Offset(300), **ALL) == []
    assert await node.read(partition, Offset(1000), **ALL) == []
    assert await node.bounds(partition) == Bounds(Offset(0), Offset(300))


async def test_settled_bounds_are_those_of_a_topic_whose_messages_all_brokers_have(node):
    partition = await raw.make(first=Offset(1000))
    await raw.produce(partition, [b"a", b"b", b"c"])
    assert await node.settled(partition) == Bounds(Offset(1000), Offset(1003))


async def test_offsets_begin_where_the_place_says(node):
    partition = await raw.make(first=Offset(1000))
    await raw.produce(partition, [b"a", b"b", b"c"])
    assert offsets(await node.read(partition, Offset(0), **ALL)) == [1000, 1001, 1002]
    assert offsets(await node.read(partition, Offset(1002), **ALL)) == [1002]
    assert await node.bounds(partition) == Bounds(Offset(1000), Offset(1003))
    assert await node.offset_at(partition, 0) == 1000
    assert await node.wait(partition, Offset(1002), 1.0)


async def test_at_least_one_message_is_read_whatever_its_size(node):
    partition = await raw.make()
    await raw.produce(partition, [b"x" * 100_000, b"y" * 100_000])
    assert offsets(await node.read(partition, Offset(0), max_messages=10, max_bytes=1000)) == [0]
    assert offsets(await node.read(partition, Offset(1), max_messages=10, max_bytes=1000)) == [1]
    assert offsets(await node.read(partition, Offset(0), max_messages=10, max_bytes=300_000)) == [0, 1]


async def test_what_another_node_published_a_moment_ago_is_read(node):
    partition = await raw.make()
    async with raw.producer() as made:
        for number in range(30):
            sent = await made.send_and_wait(partition.name, b"%d" % number)
            found = await node.read(partition, Offset(number), **ALL)
            assert offsets(found) == [sent.offset]


async def test_reads_at_the_tail_hold_what_this_node_appended(node):
    partition = await raw.make()
    assert await node.read(partition, Offset(0), **ALL) == []
    fragments = [message(text).fragment for text in ("QQ==", "Qg==")]
    await raw.produce(partition, [b"A", b"B"])
    node.appended(partition, Appended(Offset(0), 2, 5), fragments)
    assert [
        each.fragment for each in await node.read(partition, Offset(0), max_messages=2, max_bytes=1 << 20)
    ] == fragments


async def test_a_read_holds_no_more_than_what_came_before_a_gap_in_memory(node):
    partition = await raw.make()
    await node.read(partition, Offset(0), **ALL)
    await raw.produce(partition, [b"A", b"B", b"C"])
    node.appended(partition, Appended(Offset(2), 1, 5), [message("Qw==").fragment])
    assert values(await node.read(partition, Offset(0), **ALL)) == ["QQ==", "Qg==", "Qw=="]


async def test_who_reads_on_and_on_gets_every_message_once(node):
    partition = await raw.make()
    await raw.produce(partition, [b"%06d" % number + b"x" * 500 for number in range(9000)], linger_ms=5)
    found, start = [], Offset(0)
    while batch := await node.read(partition, start, max_messages=100, max_bytes=1 << 20):
        found += batch
        start = Offset(batch[-1].offset + 1)
    assert offsets(found) == list(range(9000))
    assert len({each.fragment for each in found}) == 9000


async def test_many_who_read_on_side_by_side_each_get_every_message(node):
    partition = await raw.make()
    await raw.produce(partition, [b"%06d" % number + b"x" * 500 for number in range(4000)], linger_ms=5)

    async def read_on(step):
        found, start = [], Offset(0)
        while batch := await node.read(partition, start, max_messages=step, max_bytes=1 << 20):
            found += batch
            start = Offset(batch[-1].offset + 1)
        return offsets(found)

    for found in await asyncio.gather(*(read_on(step) for step in (100, 100, 100, 70, 300))):
        assert found == list(range(4000))


async def test_large_reads_are_put_together_of_several_fetches(node):
    partition = await raw.make()
    await raw.produce(partition, [b"x" * 10_000] * 1200, linger_ms=5)
    found = await node.read(partition, Offset(0), **ALL)
    assert offsets(found) == list(range(1200))


async def test_a_read_below_the_oldest_begins_there(node, other):
    partition = await raw.make()
    await raw.produce(partition, [b"%d" % number for number in range(10)])
    await node.read(partition, Offset(0), max_messages=1, max_bytes=1 << 20)
    await raw.delete_before(partition, 4)
    assert await node.bounds(partition) == Bounds(Offset(4), Offset(10))
    assert offsets(await other.read(partition, Offset(0), **ALL)) == list(range(4, 10))
    await raw.delete_before(partition, 10)
    assert await other.bounds(partition) == Bounds(Offset(10), Offset(10))
    assert await node.last_time(partition) is None
    waiting = asyncio.create_task(other.wait(partition, Offset(3), 5.0))
    await asyncio.sleep(0.3)
    assert not waiting.done()
    await raw.produce(partition, [b"new"])
    assert await waiting


async def test_holes_are_read_over(node):
    partition = await raw.make()
    await raw.produce(partition, [b"before"])
    async with raw.producer(transactional_id=f"holes-{partition.name}") as made, made.transaction():
        await made.send_and_wait(partition.name, b"within")
    await has_end(node, partition, 3)
    assert offsets(await node.read(partition, Offset(0), **ALL)) == [0, 1]
    assert await node.read(partition, Offset(2), **ALL) == []
    assert await node.last_time(partition) is not None
    await raw.produce(partition, [b"after"])
    assert offsets(await node.read(partition, Offset(1), **ALL)) == [1, 3]
    assert offsets(await node.read(partition, Offset(2), **ALL)) == [3]


async def test_a_wait_does_not_end_for_a_hole(node):
    partition = await raw.make()
    async with raw.producer(transactional_id=f"hole-{partition.name}") as made, made.transaction():
        await made.send_and_wait(partition.name, b"x")
    await has_end(node, partition, 2)
    assert await node.wait(partition, Offset(0), 1.0)
    waiting = asyncio.create_task(node.wait(partition, Offset(1), FOR_EVER))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not await node.wait(partition, Offset(1), 0.3)


async def test_times_are_looked_up_by_the_broker(node):
    partition = await raw.make()
    assert await node.offset_at(partition, 0) is None
    assert await node.last_time(partition) is None
    for value in (b"1", b"2", b"3"):
        await raw.produce(partition, [value])
    found = await node.read(partition, Offset(0), **ALL)
    for each in found:
        assert await node.offset_at(partition, each.time) == next(one.offset for one in found if one.time >= each.time)
    assert await node.offset_at(partition, found[-1].time + 1) is None
    assert await node.offset_at(partition, -5) == 0
    assert await node.last_time(partition) == found[-1].time


async def test_foreign_messages_are_read(node):
    partition = await raw.make()
    async with raw.producer() as made:
        await made.send_and_wait(partition.name, None, key=b"key")
        await made.send_and_wait(partition.name, b"\xff", headers=[("h", b"\xff"), ("n", b""), ("n", b"2")])
    found = await node.read(partition, Offset(0), **ALL)
    assert [each.fragment for each in found] == [message("").fragment, message("/w==", {"h": "�", "n": "2"}).fragment]


async def test_a_wait_ends_with_a_publish_through_another_node(node):
    partition = await raw.make()
    async with raw.producer() as made:
        waiting = asyncio.create_task(node.wait(partition, Offset(0), FOR_EVER))
        await asyncio.sleep(0.2)
        await made.send_and_wait(partition.name, b"x")
        async with asyncio.timeout(PATIENCE):
            assert await waiting


async def test_a_wait_ends_at_once_with_a_publish_of_this_node(node):
    partition = await raw.make()
    waiting = asyncio.create_task(node.wait(partition, Offset(0), 5.0))
    await asyncio.sleep(0.05)
    node.appended(partition, Appended(Offset(0), 1, 5), [message("QQ==").fragment])
    assert await asyncio.wait_for(waiting, 0.5)


async def test_a_new_wait_is_followed_while_another_topic_is_waited_on(monkeypatch):
    """The question about the other topic is out for longer than the new waits last: they cannot be waiting for it."""
    monkeypatch.setitem(follow.WAIT_MS, follow.LONG, int(FOR_EVER * 1000))
    quiet, busy = await raw.make(), await raw.make()
    async with raw.opened(request_timeout=2 * FOR_EVER) as (_, node), raw.producer() as made:
        waiting = asyncio.create_task(node.wait(quiet, Offset(0), FOR_EVER))
        await asyncio.sleep(0.2)
        await made.send_and_wait(busy.name, b"first")
        for number in range(1, 20):
            wait = asyncio.create_task(node.wait(busy, Offset(number), PATIENCE))
            await asyncio.sleep(0.02)
            await made.send_and_wait(busy.name, b"x")
            assert await wait
        assert not waiting.done()
    assert not await waiting


async def test_a_wait_for_a_message_that_is_there_ends_at_once(node):
    partition = await raw.make()
    await raw.produce(partition, [b"x"])
    async with asyncio.timeout(PATIENCE):
        assert await node.wait(partition, Offset(0), FOR_EVER)


async def test_a_wait_beyond_the_end_ends_with_the_message_it_is_for(node):
    partition = await raw.make()
    await raw.produce(partition, [b"x"])
    waiting = asyncio.create_task(node.wait(partition, Offset(2), 8.0))
    await asyncio.sleep(0.3)
    await raw.produce(partition, [b"y"])
    await asyncio.sleep(0.3)
    assert not waiting.done()
    await raw.produce(partition, [b"z"])
    assert await waiting


async def test_a_wait_of_no_time_and_one_in_vain_are_false(node):
    partition = await raw.make()
    assert not await node.wait(partition, Offset(0), 0.0)
    assert not await node.wait(partition, Offset(0), 0.1)


async def test_waits_end_when_the_topic_is_forgotten_or_the_reader_closes():
    partition = await raw.make()
    async with raw.opened() as (_, reader):
        forgotten = asyncio.create_task(reader.wait(partition, Offset(0), 30.0))
        await asyncio.sleep(0.1)
        reader.forget(partition)
        assert not await asyncio.wait_for(forgotten, 1.0)
        closed = asyncio.create_task(reader.wait(partition, Offset(0), 30.0))
        await asyncio.sleep(0.1)
    assert not await asyncio.wait_for(closed, 1.0)


async def test_a_topic_deleted_elsewhere_is_gone_and_its_waits_end(node):
    partition = await raw.make()
    await node.read(partition, Offset(0), **ALL)
    waiting = asyncio.create_task(node.wait(partition, Offset(0), 30.0))
    await asyncio.sleep(0.1)
    await raw.delete(partition)
    assert not await asyncio.wait_for(waiting, 5.0)
    with pytest.raises(TopicGone):
        await node.read(partition, Offset(0), **ALL)
    with pytest.raises(TopicGone):
        await node.bounds(partition)


async def test_an_unknown_topic_is_gone(node):
    with pytest.raises(TopicGone):
        await node.end(partition_of("raw", new_topic_id()))


async def test_a_cancelled_read_harms_no_other(node):
    partition = await raw.make()
    await raw.produce(partition, [b"x"])
    reads = [asyncio.create_task(node.read(partition, Offset(0), **ALL)) for _ in range(6)]
    await asyncio.sleep(0)
    for each in reads[::2]:
        each.cancel()
    for each in reads[1::2]:
        assert offsets(await each) == [0]
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*reads[::2])


async def test_two_nodes_read_the_same(node, other):
    partition = await raw.make()
    await raw.produce(partition, [b"%d" % number for number in range(50)])
    assert await node.read(partition, Offset(0), **ALL) == await other.read(partition, Offset(0), **ALL)


async def test_no_question_for_an_end_waits_behind_a_batch_that_others_fetch(monkeypatch):
    partition = await raw.make()
    await raw.produce(partition, [b"a", b"b"])
    async with raw.opened() as (connection, reader):
        lanes, send = {}, connection.send

        async def noted(node, request, lane):
            lanes.setdefault(type(request), set()).add(lane)
            return await send(node, request, lane)

        monkeypatch.setattr(connection, "send", noted)
        await reader.read(partition, Offset(0), max_messages=1, max_bytes=99)
        await reader.read(partition, Offset(1), **ALL)
        await reader.end(partition)

        assert lanes[FetchRequest]
        assert lanes[OffsetRequest]
        assert not lanes[FetchRequest] & lanes[OffsetRequest]
