"""Topics on the brokers: visibility, creation and deletion, and retention of their messages."""

import asyncio

import pytest

from ams.core.clock import SystemClock
from ams.core.errors import LogUnavailable, TopicGone
from ams.core.names import TopicId, new_topic_id
from ams.storage.log.base import Bounds
from ams.storage.log.kafka.log import KafkaLog
from ams.storage.log.kafka.partition import Partition, partition_in, partition_of
from tests.storage.log.engines import HOUR, Kafka, all_fragments, fragments, texts
from tests.storage.log.kafka.stored import change_topic, make_topic, settings
from tests.storage.log.test_load import make_stored, yield_batches
from tests.support.waiting import PATIENCE_SECONDS, wait_until_async

pytestmark = pytest.mark.kafka

DAY = 24 * HOUR


async def create_topic(log: KafkaLog, label: str = "", retention: int | None = None) -> TopicId:
    topic = new_topic_id()
    await log.create(topic, retention, label=label)
    return topic


async def partition(engine: Kafka, log: KafkaLog, topic: TopicId) -> Partition:
    found = partition_in(engine.prefix, await log.name_of(topic))
    assert found
    return found


async def kept_as(engine: Kafka, where: Partition, wanted: dict[str, str]) -> None:
    """Wait until the brokers have a topic with these settings; they learn of a change one after the other."""

    async def is_kept() -> bool:
        return await settings(engine.servers, where, *wanted) == wanted

    await wait_until_async(is_kept)


async def test_installations_that_share_a_kafka_do_not_see_each_other_nor_the_topics_of_others(engine: Kafka) -> None:
    other = Kafka(prefix=engine.prefix + "-2")
    await make_topic(engine.servers, f"{engine.prefix}-foreign")
    await make_topic(engine.servers, f"{engine.prefix}.not.ours")

    async with engine.open_log() as log, other.open_log() as second:
        mine, theirs = await create_topic(log, "p.t"), await create_topic(second, "p.t")

        assert await log.topics() == {mine}
        assert await second.topics() == {theirs}
        with pytest.raises(TopicGone):
            await second.append(mine, texts("a"))


async def test_equal_names_and_names_longer_than_kafka_allows_are_topics_apart(log: KafkaLog) -> None:
    labels = ["one.t", "two.t", "x" * 255 + "." + "y" * 255, "x" * 255 + "." + "y" * 255]
    topics = [await create_topic(log, label) for label in labels]

    for number, topic in enumerate(topics):
        await log.append(topic, texts(f"{number:04d}"))

    assert await log.topics() == set(topics)
    assert [await all_fragments(log, topic) for topic in topics] == [fragments(texts(f"{n:04d}")) for n in range(4)]
    assert "one.t" in await log.name_of(topics[0])


async def test_a_topic_made_on_two_nodes_under_different_labels_is_there_once(engine: Kafka) -> None:
    async with engine.open_log() as log, engine.open_log() as second:
        topic = await create_topic(log, "p.t")
        await second.create(topic)
        assert await second.name_of(topic) == await log.name_of(topic)


async def test_a_topic_deleted_on_one_node_is_gone_on_another_and_its_waits_end(engine: Kafka) -> None:
    async with engine.open_log() as log, engine.open_log() as second:
        topic = await create_topic(log)
        await second.append(topic, texts("a"))
        waiting = asyncio.ensure_future(second.wait(topic, 1_000, 600))  # beyond what is appended until brokers know
        await asyncio.sleep(0.2)

        await log.drop(topic)

        async def append() -> None:
            await second.append(topic, texts("b"))

        with pytest.raises(TopicGone):  # brokers hear of it a moment after the controller has answered
            await wait_until_async(append)
        with pytest.raises(TopicGone):
            await second.read(topic, 0, max_messages=1, max_bytes=1)
        assert not await asyncio.wait_for(waiting, PATIENCE_SECONDS)


@pytest.mark.parametrize(("changes", "why"), [
    ({"min_insync_replicas": "2"}, None),
    ({"message_timestamp_type": "CreateTime"}, "message.timestamp.type is CreateTime, not LogAppendTime"),
    ({"cleanup_policy": "compact"}, "cleanup.policy is compact, not delete"),
    ({"max_message_bytes": "1000"}, "max.message.bytes is 1000, not 17825792"),
    ({"unclean_leader_election_enable": "true"}, "unclean.leader.election.enable is true, not false"),
])  # fmt: skip
async def test_a_topic_with_weaker_settings_than_promised_takes_no_messages(engine: Kafka, changes, why, log: KafkaLog):
    topic = await create_topic(log)
    await change_topic(engine.servers, await partition(engine, log, topic), **changes)

    async with engine.open_log() as second:
        assert await second.weak_topics() == ({topic: why} if why else {})
        if why:
            with pytest.raises(LogUnavailable, match="weaker settings than promised"):
                await second.append(topic, texts("a"))
            with pytest.raises(LogUnavailable):
                await second.append(topic, texts("a"), key="k")
            assert await second.bounds(topic) == Bounds(0, 0)


async def test_a_topic_with_fewer_copies_than_promised_takes_no_messages(engine: Kafka) -> None:
    async with engine.open_log() as log:
        topic = await create_topic(log)

    async with engine.open_log(replication=3, min_isr=2) as log:
        why = "kept by 1 brokers, not 3; min.insync.replicas is 1, not 2"
        with pytest.raises(LogUnavailable):
            await log.append(topic, texts("a"))
        assert await log.weak_topics() == {topic: why}

    async with engine.open_log() as log:
        assert (await log.append(topic, texts("a"))).first == 0


async def test_a_topic_made_right_by_hand_takes_messages_again_once_it_is_looked_at(engine: Kafka, log: KafkaLog):
    topic = await create_topic(log)
    where = await partition(engine, log, topic)
    await change_topic(engine.servers, where, cleanup_policy="compact")
    assert topic in await log.weak_topics()

    await change_topic(engine.servers, where, cleanup_policy="delete")
    assert (await log.weak_topics(), (await log.append(topic, texts("a"))).first) == ({}, 0)


async def test_a_topic_somebody_made_for_us_is_held_to_the_same(engine: Kafka) -> None:
    where = partition_of(engine.prefix, new_topic_id(), "made.by-hand")
    await make_topic(engine.servers, where.name)

    async with engine.open_log() as log:
        assert await log.topics() == {where.topic}
        with pytest.raises(LogUnavailable):
            await log.append(where.topic, texts("a"))


async def test_a_cluster_of_fewer_brokers_than_copies_makes_no_topic(engine: Kafka) -> None:
    async with engine.open_log(replication=3) as log:
        with pytest.raises(LogUnavailable):
            await log.create(new_topic_id())
        assert await log.topics() == frozenset()


async def test_ages_are_kept_by_the_brokers_and_known_to_every_node(engine: Kafka) -> None:
    async with engine.open_log(retention=7 * DAY) as log:
        usual, own = await create_topic(log), await create_topic(log, retention=2 * DAY)
        assert (await log.retention(usual), await log.retention(own)) == (None, 2 * DAY)
        await log.set_retention(usual, HOUR)
        await log.set_retention(own, None)

    async def are_known() -> bool:
        async with engine.open_log(retention=7 * DAY) as log:
            return (await log.retention(usual), await log.retention(own)) == (HOUR, None)

    await wait_until_async(are_known)  # a broker learns of them from its controller, a moment later
    async with engine.open_log(retention=7 * DAY) as log:
        await kept_as(engine, await partition(engine, log, usual), {"retention.ms": str(HOUR), "segment.ms": "600000"})
        week = {"retention.ms": str(7 * DAY), "segment.ms": str(7 * DAY // 8)}
        await kept_as(engine, await partition(engine, log, own), week)


async def test_a_new_default_is_told_to_the_brokers_for_topics_that_go_by_it(engine: Kafka) -> None:
    """An age that happened to be the default is still the topic's own."""
    async with engine.open_log(retention=DAY) as log:
        usual, own, same = (
            await create_topic(log), await create_topic(log, retention=HOUR), await create_topic(log, retention=DAY),
        )  # fmt: skip

    async with engine.open_log(retention=7 * DAY) as log:
        assert await log.retention(same) == DAY
        await log.weak_topics()
        for topic, age in ((usual, 7 * DAY), (own, HOUR), (same, DAY)):
            await kept_as(engine, await partition(engine, log, topic), {"retention.ms": str(age)})


async def test_a_topic_that_one_list_lacks_is_not_gone_yet(engine: Kafka) -> None:
    """A restarted broker may not know yet about topics made while it was down."""
    async with engine.open_log() as log, engine.open_log() as second:
        topic = await create_topic(log)
        await second.append(topic, texts("a"))
        waiting = asyncio.ensure_future(second.wait(topic, 1, 600))
        await asyncio.sleep(0.2)
        now = asyncio.get_running_loop().time()

        second._topics._take({}, now)
        assert (await second.append(topic, texts("b"))).first == 1
        assert await waiting

        waiting = asyncio.ensure_future(second.wait(topic, 2, 600))
        await asyncio.sleep(0.2)
        second._topics._take({}, now)
        second._topics._take({}, now + 2)
        assert not await asyncio.wait_for(waiting, PATIENCE_SECONDS)


async def test_a_shorter_age_holds_for_all_messages_at_once(log: KafkaLog) -> None:
    topic = await create_topic(log)
    await log.load(topic, yield_batches(make_stored(0, [SystemClock().wall() - HOUR] * 2)))
    assert len(await log.read(topic, 0, max_messages=9, max_bytes=999)) == 2  # from now on its tail is in memory
    await log.append(topic, texts("c"))

    await log.set_retention(topic, HOUR // 2)

    assert [each.offset for each in await log.read(topic, 0, max_messages=9, max_bytes=99)] == [2]
    assert await log.bounds(topic) == Bounds(2, 3)
    assert await all_fragments(log, topic) == fragments(texts("c"))
    assert (await log.totals(topic)).messages == 3
