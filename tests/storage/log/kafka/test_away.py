"""Kafka down, at the start and later: nothing hangs, everything recovers by itself."""

import asyncio
import contextlib
import socket

import pytest
from structlog.testing import capture_logs

from ams.core.errors import LogUnavailable
from ams.core.names import TopicId, new_topic_id
from ams.storage.log.kafka.log import KafkaLog
from local_cluster.kafka import Brokers
from tests.storage.log.engines import Kafka, all_fragments, fragments, new_topic, texts
from tests.support.loop_time import pass_loop_time
from tests.support.waiting import PATIENCE_SECONDS, some_turns, wait_until_async

pytestmark = pytest.mark.kafka


@pytest.fixture
def unused_address():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


async def test_without_a_broker_the_log_opens_says_why_it_refuses_and_closes(unused_address: str) -> None:
    async with (
        asyncio.timeout(PATIENCE_SECONDS), Kafka(servers=unused_address, prefix="p").open_log(patience=600.0) as log,
    ):  # fmt: skip
        assert "127.0.0.1" in log.away
        assert log.refusal == log.away
        for call in (
            log.topics(), log.create(new_topic_id()), log.append(new_topic_id(), texts("a")),
            log.append(new_topic_id(), texts("a"), key="k"), log.bounds(new_topic_id()),
            log.wait(new_topic_id(), 0, 600.0), log.weak_topics(),
        ):  # fmt: skip
            with pytest.raises(LogUnavailable, match="^Backend Error$"):
                await call


async def test_a_password_is_not_in_what_the_log_says(unused_address: str) -> None:
    async with Kafka(servers=unused_address, prefix="p").open_log(user="u", password="pass-word") as log:
        assert "pass-word" not in log.refusal


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory):
    with Brokers(tmp_path_factory.mktemp("broker"), ways=["node"]) as brokers:
        yield brokers


def open_log(broker: Brokers, **changes: float) -> contextlib.AbstractAsyncContextManager[KafkaLog]:
    return Kafka(servers=broker.servers_by("node"), prefix="away").open_log(**({"patience": 600.0} | changes))


@pytest.fixture
async def log(broker: Brokers):
    async with open_log(broker) as log:
        yield log


async def answers_again(log: KafkaLog, topic) -> int:
    async def append_text() -> tuple[int] | None:
        with contextlib.suppress(LogUnavailable):
            return ((await log.append(topic, texts("back"))).first,)
        return None

    return (await wait_until_async(append_text))[0]


@pytest.mark.long
async def test_it_waits_for_a_broker(broker: Brokers, log: KafkaLog, topic: TopicId, monkeypatch: pytest.MonkeyPatch):
    await log.append(topic, texts("aaaa"))
    broker.freeze(1)
    waiting = [asyncio.ensure_future(log.append(topic, texts(f"b{n:03d}"))) for n in range(5)]
    await some_turns()
    pass_loop_time(monkeypatch, 3.0)
    await some_turns()
    assert not any(each.done() for each in waiting)

    broker.thaw(1)

    assert [each.first for each in await asyncio.gather(*waiting)] == [1, 2, 3, 4, 5]
    assert await all_fragments(log, topic) == fragments(texts("aaaa", *(f"b{n:03d}" for n in range(5))))


@pytest.mark.long
async def test_a_broker_that_stands_still_too_long_is_given_up_and_found_again(broker: Brokers) -> None:
    async with open_log(broker, patience=1.0, request_timeout=1.5) as log:
        topic = await new_topic(log)

        async def is_given_up() -> bool:
            with pytest.raises(LogUnavailable):
                await log.bounds(topic)
            return log.away is not None

        broker.freeze(1)
        try:
            await wait_until_async(is_given_up)
        finally:
            broker.thaw(1)

        await answers_again(log, topic)
        assert log.away is None


@pytest.mark.long
async def test_when_kafka_is_cut_off_calls_fail_and_all_comes_back(broker: Brokers, log: KafkaLog, topic: TopicId):
    def list_events() -> list[str]:
        return [each["event"] for each in lines if each["event"] in ("kafka.away", "kafka.back")]

    await log.append(topic, texts("aaaa"))
    waiting = asyncio.ensure_future(log.wait(topic, 9, 600.0))
    await asyncio.sleep(0.2)
    [link] = broker.links("node")
    with capture_logs() as lines:
        link.cut()
        under_way = asyncio.ensure_future(log.append(topic, texts("lost")))
        async with asyncio.timeout(PATIENCE_SECONDS):
            for call in (under_way, waiting, log.append(topic, texts("b")), log.bounds(topic), log.topics()):
                with pytest.raises(LogUnavailable):
                    await call
        assert log.away is not None
        await wait_until_async(list_events)

        link.restore()

        assert await answers_again(log, topic) == 1
        assert log.away is None
        await wait_until_async(lambda: list_events() == ["kafka.away", "kafka.back"])
    assert await all_fragments(log, topic) == fragments(texts("aaaa", "back"))


@pytest.mark.long
async def test_a_log_opened_before_its_broker_finds_it_when_it_is_there(broker: Brokers) -> None:
    [link] = broker.links("node")
    link.cut()
    async with open_log(broker) as log:
        assert log.away is not None

        link.restore()

        await wait_until_async(lambda: log.away is None)
        assert (await log.append(await new_topic(log), texts("a"))).first == 0
