"""A request is whole in one batch by construction: nodes that publish requests of all sizes to one topic at once."""

import asyncio
import base64
import itertools
from typing import NamedTuple

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


class Answered(NamedTuple):
    request: str
    first: int
    count: int


def values(request: str, size: int) -> list[bytes]:
    return [f"{request}/{partition}/{size}".encode() for partition in range(size)]


async def publish(log: KafkaLog, topic: TopicId, caller: str, turn: int) -> list[Answered]:
    """Publish requests of each size in turn; return where each went."""
    answered = []
    until = asyncio.get_running_loop().time() + SECONDS
    for number in itertools.count():
        if asyncio.get_running_loop().time() > until:
            return answered
        size = SIZES[(turn + number) % len(SIZES)]
        request = f"{caller}-{number}"
        messages = [message(base64.b64encode(value).decode()) for value in values(request, size)]
        appended = await log.append(topic, messages)
        answered.append(Answered(request, appended.first, appended.count))
    raise AssertionError("unreachable")


def node(prefix: str, topic: TopicId, name: str) -> list[Answered]:
    """Be a node with an event loop and connections of its own."""

    async def main() -> list[Answered]:
        async with Kafka(prefix=prefix).opened() as log:
            callers = [publish(log, topic, f"{name}{number}", number) for number in range(CALLERS)]
            return list(itertools.chain(*await asyncio.gather(*callers)))

    return asyncio.run(main())


async def test_requests_of_several_nodes_are_each_whole_in_one_batch_where_they_were_said_to_be():
    engine = Kafka()
    async with engine.opened() as log:
        topic = await new_topic(log)
        told = await asyncio.gather(*(asyncio.to_thread(node, engine.prefix, topic, name) for name in "abc"))
        answered = sorted(itertools.chain(*told), key=lambda each: each.first)
        bounds = await log.bounds(topic)
        partition = partition_in(engine.prefix, await log.name_of(topic))
        assert partition
        stored = await raw_batches(engine.servers, partition, bounds)

    assert {each.count for each in answered} == set(SIZES)
    assert [each.first for each in answered] == list(
        itertools.accumulate((each.count for each in answered[:-1]), initial=0)
    )
    assert bounds.end == answered[-1].first + answered[-1].count
    batch_of = {
        base + partition: number for number, (base, held) in enumerate(stored) for partition in range(len(held))
    }
    assert all(batch_of[each.first] == batch_of[each.first + each.count - 1] for each in answered)
    sent = [value for each in answered for value in values(each.request, each.count)]
    assert [value for _, held in stored for value in held] == sent
