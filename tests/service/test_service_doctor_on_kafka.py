"""What the doctor of the service finds on real brokers whose topics somebody changed behind the service's back."""

import pytest

from ams.core.names import TopicId, TopicName, new_topic_id
from ams.service.retention import LossTotal
from ams.service.service_doctor import ServiceDoctor, shared
from ams.storage.log.kafka.partition import partition_in
from ams.wire.service import Finding
from tests.storage.log.engines import Kafka
from tests.storage.log.kafka.stored import change_topic
from tests.support.use_cases import TOPIC, UseCases

OTHER = TopicName("other")


@pytest.fixture
async def use_cases(use_cases: UseCases) -> UseCases:
    """A registry with two topics and a subscription; their logs are on Kafka once a test makes them there."""
    await use_cases.engines.topics.create(use_cases.caller, OTHER)
    return use_cases


async def identity(use_cases: UseCases, name: TopicName) -> TopicId:
    return (await use_cases.publisher.topic(use_cases.caller, name)).id


async def test_what_was_done_behind_the_back_is_told_with_the_command_that_helps(
    use_cases: UseCases, kafka_servers: str
) -> None:
    engine = Kafka(kafka_servers)
    weak, orphan = await identity(use_cases, TOPIC), new_topic_id()
    registry, cursors = use_cases.engines.registry, use_cases.engines.cursors
    async with engine.opened() as log:
        await log.create(weak, label="P.t")
        await log.create(orphan, label="P.old")
        name = await log.name_of(orphan)
        where = partition_in(engine.prefix, await log.name_of(weak))
        assert where
        await change_topic(engine.servers, where, cleanup_policy="compact")
        doctor = ServiceDoctor(
            registry, log, cursors, LossTotal(log, cursors), shared(lambda log: f"remove {log}"), again_after=0.0
        )

        found = await doctor.look()

    assert name.startswith(f"{engine.prefix}.P.old.")
    assert found == [
        Finding(
            True,
            "projects/P/topics/t is kept less safely than promised, so it is closed to publishers:"
            " cleanup.policy is compact, not delete.",
        ),
        Finding(
            True,
            "The log of projects/P/topics/other is gone with all its messages: delete the topic and make it again.",
        ),
        Finding(
            True,
            f"The log {name} belongs to no topic: unless a topic is being made or a project deleted right now,"
            f" remove it: remove {name}",
        ),
    ]
