import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from pathlib import Path

import pytest

from ams.app.moving.exporter import Installation
from ams.cli.installation import installation
from ams.core.clock import SystemClock
from ams.core.errors import Unavailable, Unusable
from ams.core.messages import Stored, message
from ams.core.settings import Settings
from ams.migrate.conversion import NO_MESSAGES, Documents, KafkaBounds
from ams.migrate.message_copy import TRIES, Copied, Copying, plan

NOW = SystemClock().wall()
WEEK = 7 * 86_400_000
UNREADABLE = None
MADE = {"_id": "5f5f5f5f5f5f5f5f5f5f5f5f", "created_on": datetime(2021, 1, 1)}
DOCUMENTS = Documents(
    projects=[{**MADE, "uuid": "P", "name": "EGI"}],
    users=[{**MADE, "uuid": "U", "name": "root", "token": "short", "service_roles": ["service_admin"]}],
    topics=[{**MADE, "project_uuid": "P", "name": "T", "msg_num": 3}],
    subscriptions=[{**MADE, "project_uuid": "P", "name": "S", "topic": "T", "offset": 1, "next_offset": 2}],
)


class Kafka:
    def __init__(self, *records: str | None) -> None:
        self.first, self.records = 0, list(records)
        self.other_partitions: dict[str, int] = {}

    def bounds(self, topic: str) -> KafkaBounds:
        if topic != "P.T" or not self.records:
            return NO_MESSAGES
        return KafkaBounds(self.first, len(self.records), WEEK, self.first)

    async def batches(self, topic: str, start: int, end: int, earliest: int = 0) -> AsyncIterator[Sequence[Stored]]:
        assert self.first <= start
        found = [
            Stored(offset, max(NOW, earliest), message(data).fragment)
            for offset, data in enumerate(self.records[:end])
            if offset >= start and data is not UNREADABLE
        ]
        if found:
            yield found


class World:
    def __init__(self, folder: Path) -> None:
        self.settings = Settings.load(
            {"data": str(folder), "min_free_bytes": 0, "reserve_bytes": 0}, {}, None, lambda _: None
        )
        self.kafka = Kafka("YQ==", "Yg==")
        self.documents = DOCUMENTS

    @contextlib.asynccontextmanager
    async def open_copying(self) -> AsyncIterator[tuple[Copying, Installation]]:
        async with installation(self.settings) as target:
            yield Copying(target, self.settings.data, self.kafka, lambda *_: None), target

    async def round(self) -> Copied:
        async with self.open_copying() as (copying, _):
            return await copying.round(plan(self.documents, self.kafka))

    async def finish(self) -> tuple[Copied, list[str]]:
        async with self.open_copying() as (copying, _):
            found = plan(self.documents, self.kafka, await copying.bounds())
            return await copying.finish(found), [each.done for each in found.oddities]

    async def stored_messages(self) -> list[tuple[int, str]]:
        async with installation(self.settings) as target:
            [topic] = await target.log.topics()
            following, end = await target.log.bounds(topic)
            read: list[Stored] = []
            while following < end:
                read += await target.log.read(topic, following, max_messages=100, max_bytes=1 << 20)
                following = read[-1].offset + 1
            return [(each.offset, each.fragment.decode().split(":")[1].strip('"')) for each in read]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "data")


async def test_a_wrong_database_is_refused_and_what_was_copied_stays(world: World) -> None:
    await world.round()
    world.documents = Documents()
    with pytest.raises(Unavailable, match="neither users nor projects"):
        await world.round()
    world.documents = DOCUMENTS
    world.kafka.records.append("Yw==")
    assert (await world.round()).messages == 1
    assert await world.stored_messages() == [(0, "YQ=="), (1, "Yg=="), (2, "Yw==")]


async def test_wrong_brokers_are_refused(world: World) -> None:
    await world.round()
    right, world.kafka = world.kafka, Kafka()
    with pytest.raises(Unavailable, match="are the brokers right"):
        await world.finish()
    world.documents = Documents(
        projects=DOCUMENTS.projects, users=DOCUMENTS.users, topics=[{**DOCUMENTS.topics[0], "msg_num": 0}]
    )
    with pytest.raises(Unusable, match="topic EGI/T was copied, and Kafka has nothing of it now"):
        await world.round()
    world.documents, world.kafka = DOCUMENTS, right
    await world.finish()
    assert await world.stored_messages() == [(0, "YQ=="), (1, "Yg==")]


async def test_a_topic_that_is_gone_and_comes_back_gets_a_log_of_its_own(world: World) -> None:
    await world.round()
    whole, world.documents = world.documents, Documents(projects=DOCUMENTS.projects, users=DOCUMENTS.users)
    await world.round()
    world.documents = whole
    world.kafka.records.append("Yw==")
    assert (await world.round()).messages == 3
    assert await world.stored_messages() == [(0, "YQ=="), (1, "Yg=="), (2, "Yw==")]


async def test_an_empty_message_at_the_end_is_one_like_others(world: World) -> None:
    for number in range(TRIES + 4):
        world.kafka.records.append("")
        assert (await world.round()).messages == (3 if number == 0 else 1)


async def test_what_stands_in_for_the_last_record_is_replaced_when_there_are_more(world: World) -> None:
    world.kafka.records.append(UNREADABLE)
    _, said = await world.finish()
    assert "an empty message stands at its end, 2" in said
    assert await world.stored_messages() == [(0, "YQ=="), (1, "Yg=="), (2, "")]
    await world.finish()
    assert await world.stored_messages() == [(0, "YQ=="), (1, "Yg=="), (2, "")]

    world.kafka.records.append("ZA==")
    await world.finish()
    assert await world.stored_messages() == [(0, "YQ=="), (1, "Yg=="), (3, "ZA==")]


async def test_a_topic_all_of_which_was_dropped_since_goes_on_at_its_end(world: World) -> None:
    await world.round()
    world.kafka.records += ["Yw==", "ZA=="]
    world.kafka.first = 4
    await world.finish()
    async with installation(world.settings) as target:
        [topic] = await target.log.topics()
        assert await target.log.bounds(topic) == (4, 4)
        [subscription] = await target.registry.subscriptions.all()
        assert (await target.cursors.position(subscription.id, topic)).offset == 4


async def test_messages_that_kafka_dropped_before_they_were_copied_are_told(world: World) -> None:
    await world.round()
    world.kafka.records += ["Yw==", "ZA=="]
    world.kafka.first = 3
    _, said = await world.finish()
    assert "1 messages were dropped by Kafka before they were copied, and are lost" in said
    assert await world.stored_messages() == [(0, "YQ=="), (1, "Yg=="), (3, "ZA==")]


async def test_what_both_sides_got_since_a_cut_that_failed_is_no_reason_to_lose_one(world: World) -> None:
    await world.finish()
    async with installation(world.settings) as target:
        [topic] = await target.log.topics()
        await target.log.append(topic, [message("bmV3")])
    world.kafka.records.append("b2xk")

    with pytest.raises(Unusable, match="the new service was used since it was filled"):
        await world.finish()
    assert await world.stored_messages() == [(0, "YQ=="), (1, "Yg=="), (2, "bmV3")]
