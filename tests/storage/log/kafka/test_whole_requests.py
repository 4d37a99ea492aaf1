"""A request is whole in one batch by construction: nodes that publish requests of all sizes to one topic at once."""

import asyncio
import base64
import itertools

import pytest

from ams.core.messages import message
from ams.core.names import TopicId
from ams.storage.log.kafka.log import KafkaLog
from ams.storage.log.kafka.partition import partition_in
from tests.storage.log.engines import Kafka, new_topic
from tests.storage.log.kafka.stored import raw_batches

pytestmark = pytest.mark.kafka

SECONDS = 1.0
SIZES = (1, 100, 1000)
CALLERS = 6


def values(request: str, size: int) -> list[bytes]:
    return [f"{request}/{place}/{size}".encode() for place in range(size)]


async def publish(log: KafkaLog, topic: TopicId, caller: str, turn: int) -> list[tuple[int, int, str]]:
    """Publish requests of each size in turn; return where each went, how many messages it had, and its name."""
    answered = []
    until = asyncio.get_running_loop().time() + SECONDS
    while asyncio.get_running_loop().time() < until:
        size = SIZES[(turn + len(answered)) % len(SIZES)]
        request = f"{caller}-{len(answered)}"
        messages = [message(base64.b64encode(value).decode()) for value in values(request, size)]
        appended = await log.append(topic, messages)
        answered.append((appended.first, appended.count, request))
    return answered


def node(prefix: str, topic: TopicId, name: str) -> list[tuple[int, int, str]]:
    """Be a node with an event loop and connections of its own."""

    async def main() -> list[tuple[int, int, str]]:
        async with Kafka(prefix=prefix).opened() as log:
            callers = [publish(log, topic, f"{name}{number}", number) for number in range(CALLERS)]
            return list(itertools.chain(*await asyncio.gather(*callers)))

    return asyncio.run(main())


async def test_requests_of_several_nodes_are_each_whole_in_one_batch_where_they_were_said_to_be():
    engine = Kafka()
    async with engine.opened() as log:
        topic = await new_topic(log)
        told = await asyncio.gather(*(asyncio.to_thread(node, engine.prefix, topic, name) for name in "abc"))
        answered = sorted(itertools.chain(*told))
        bounds = await log.bounds(topic)
        partition = partition_in(engine.prefix, await log.name_of(topic))
        assert partition
        stored = await raw_batches(engine.servers, partition, bounds)

    firsts, counts, _ = zip(*answered, strict=True)
    assert set(counts) == set(SIZES)
    assert list(itertools.accumulate(counts, initial=0)) == [*firsts, bounds.end]
    batch_of = {base + place: number for number, (base, held) in enumerate(stored) for place in range(len(held))}
    assert all(batch_of[first] == batch_of[first + count - 1] for first, count, _ in answered)
    assert [value for _, held in stored for value in held] == [
        value for _, count, request in answered for value in values(request, count)
    ]
