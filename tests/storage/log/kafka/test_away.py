"""Kafka away: at the start, and under way; nothing hangs, everything comes back by itself."""

import asyncio
import socket

import pytest
import structlog

from ams.core.clock import SystemClock
from ams.core.errors import LogUnavailable
from ams.core.names import new_topic_id
from ams.storage.log.kafka.log import KafkaLog
from ams.storage.log.kafka.options import KafkaOptions
from cluster.kafka import Brokers
from tests.storage.log.engines import Kafka, all_fragments, fragments, new_topic, texts
from tests.storage.log.idempotency_store import MemoryIdempotencyStore

pytestmark = pytest.mark.kafka


@pytest.fixture
def nowhere():
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


async def test_without_a_broker_the_log_opens_says_why_it_refuses_and_closes(nowhere: str):
    async with asyncio.timeout(5), Kafka(servers=nowhere, prefix="p").opened() as log:
        assert "127.0.0.1" in log.away
        assert log.refusal == log.away
        began = asyncio.get_running_loop().time()
        for call in (
            log.topics(),
            log.create(new_topic_id()),
            log.append(new_topic_id(), texts("a")),
            log.append(new_topic_id(), texts("a"), key="k"),
            log.bounds(new_topic_id()),
            log.weak(),
        ):
            with pytest.raises(LogUnavailable, match="^Backend Error$"):
                await call
        assert asyncio.get_running_loop().time() - began < 1


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory):
    with Brokers(tmp_path_factory.mktemp("broker"), ways=["node"]) as brokers:
        yield brokers


def options(broker: Brokers) -> KafkaOptions:
    return Kafka(servers=broker.servers_by("node"), prefix="away").options()


@pytest.fixture
async def log(broker: Brokers):
    log = await KafkaLog.open(options(broker), MemoryIdempotencyStore(SystemClock()))
    yield log
    await log.close()


async def answers_again(log: KafkaLog, topic) -> int:
    """Return where an append goes that is tried until it is answered."""
    async with asyncio.timeout(15):
        while True:
            try:
                return (await log.append(topic, texts("back"))).first
            except LogUnavailable:
                await asyncio.sleep(0.1)


async def test_a_broker_that_stands_still_for_a_while_is_waited_for(broker: Brokers, log: KafkaLog):
    topic = await new_topic(log)
    await log.append(topic, texts("aaaa"))
    broker.freeze(1)
    waiting = [asyncio.ensure_future(log.append(topic, texts(f"b{n:03d}"))) for n in range(5)]
    await asyncio.sleep(1.5)
    assert not any(each.done() for each in waiting)

    broker.thaw(1)

    assert [each.first for each in await asyncio.gather(*waiting)] == [1, 2, 3, 4, 5]
    assert await all_fragments(log, topic) == fragments(texts("aaaa", *(f"b{n:03d}" for n in range(5))))


async def test_when_all_of_kafka_is_cut_off_calls_fail_within_a_second_and_all_comes_back(
    broker: Brokers, log: KafkaLog
):
    topic = await new_topic(log)
    await log.append(topic, texts("aaaa"))
    [link] = broker.links("node")
    link.cut()
    under_way = asyncio.ensure_future(log.append(topic, texts("lost")))
    began = asyncio.get_running_loop().time()
    with pytest.raises(LogUnavailable):
        await under_way
    for call in (log.append(topic, texts("b")), log.bounds(topic), log.topics()):
        with pytest.raises(LogUnavailable):
            await call
    assert asyncio.get_running_loop().time() - began < 2
    assert log.away is not None

    link.restore()

    assert await answers_again(log, topic) == 1
    assert log.away is None
    assert await all_fragments(log, topic) == fragments(texts("aaaa", "back"))


async def test_a_log_opened_before_its_broker_finds_it_when_it_is_there(broker: Brokers):
    [link] = broker.links("node")
    link.cut()
    log = await KafkaLog.open(options(broker), MemoryIdempotencyStore(SystemClock()))
    assert log.away is not None

    link.restore()

    async with asyncio.timeout(10):
        while log.away is not None:
            await asyncio.sleep(0.05)
    topic = await new_topic(log)
    assert (await log.append(topic, texts("a"))).first == 0
    await log.close()


async def test_that_kafka_went_and_came_back_is_said_once_each(broker: Brokers, log: KafkaLog):
    [link] = broker.links("node")
    with structlog.testing.capture_logs() as lines:
        link.cut()
        with pytest.raises(LogUnavailable):
            await log.topics()
        await asyncio.sleep(2.5)
        link.restore()
        async with asyncio.timeout(10):
            while not any(line["event"] == "kafka.back" for line in lines):
                await asyncio.sleep(0.05)

    error_text = [line["event"] for line in lines if line["event"] in ("kafka.away", "kafka.back")]
    assert error_text == ["kafka.away", "kafka.back"]
