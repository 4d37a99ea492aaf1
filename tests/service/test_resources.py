"""Projects, topics and subscriptions over the engines: what no single request shows. Their routes: contract 7 to 9."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ams.access.admission import Caller
from ams.core.errors import AlreadyExists, AmsError, InvalidInput, LogUnavailable, NotFound, QuotaExceeded, Unusable
from ams.core.messages import message
from ams.core.names import Offset, SchemaName, SubscriptionId, SubscriptionName, TopicId, TopicName, new_topic_id
from ams.service.topics import Topics
from ams.storage.registry.records import Schema, SchemaContent, Subscription, Topic
from tests.support.administration import make_project, make_user
from tests.support.engines import Engines, open_engines

T, S = TopicName("T"), SubscriptionName("S")
REFERENCE = "projects/P/topics/T"
X = "projects/P/schemas/X"


async def fill_project(engines: Engines) -> tuple[Topic, Subscription]:
    caller = await engines.caller()
    return await engines.topics.create(caller, T), await engines.subscriptions.create(caller, S, REFERENCE)


async def is_empty(engines: Engines) -> bool:
    return not await engines.log.topics() and not await engines.cursors.subscriptions()


async def test_u12_a_deleted_project_leaves_nothing(engines: Engines, caller: Caller) -> None:
    await fill_project(engines)

    await engines.projects.delete(caller)

    assert await is_empty(engines)


async def test_what_cannot_be_dropped_now_keeps_nothing_else(
    engines: Engines, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, _ = await fill_project(engines)
    await engines.topics.create(caller, TopicName("T2"))
    drop = engines.log.drop

    async def fail_for_one(topic: TopicId) -> None:
        if topic == kept.id:
            raise LogUnavailable
        await drop(topic)

    monkeypatch.setattr(engines.log, "drop", fail_for_one)
    with pytest.raises(LogUnavailable):
        await engines.projects.delete(caller)

    assert await engines.log.topics() == {kept.id}


async def test_a_sweep_drops_what_a_crash_left_and_nothing_else(engines: Engines) -> None:
    topic, subscription = await fill_project(engines)
    orphan = new_topic_id()
    await engines.log.create(orphan)
    await engines.cursors.create(SubscriptionId("orphan"), orphan, Offset(0))

    await engines.projects.sweep()

    assert await engines.log.topics() == {topic.id}
    assert await engines.cursors.subscriptions() == {subscription.id}


async def test_a_crash_amid_a_deletion_is_finished_by_the_next_start(tmp_path: Path) -> None:
    async with open_engines(tmp_path) as engines:
        project = await make_project(engines.registry)
        await make_user(engines.registry, "anna")
        await fill_project(engines)
        await engines.registry.projects.delete(project.id)  # and no further

    async with open_engines(tmp_path) as engines:
        assert len(await engines.log.topics()) == len(await engines.cursors.subscriptions()) == 1
        await engines.projects.sweep()
        assert await is_empty(engines)


async def test_a_lost_registry_does_not_lose_the_messages_too(tmp_path: Path) -> None:
    async with open_engines(tmp_path) as engines:
        await make_project(engines.registry)
        topic, _ = await fill_project(engines)
        await engines.log.append(topic.id, [message("aGk=")])
    for path in tmp_path.glob("registry.db*"):
        path.unlink()

    async with open_engines(tmp_path) as engines:
        with pytest.raises(Unusable, match=r"the registry is empty but the log is not \(topics: 1\)"):
            await engines.projects.sweep()
        assert (await engines.log.bounds(topic.id)).end == 1


async def test_u11_one_of_many_parallel_makers_wins_and_one_log_and_one_cursor_stay(
    engines: Engines, caller: Caller
) -> None:
    topics = await asyncio.gather(*(engines.topics.create(caller, T) for _ in range(10)), return_exceptions=True)
    subscriptions = await asyncio.gather(
        *(engines.subscriptions.create(caller, S, REFERENCE) for _ in range(10)), return_exceptions=True
    )

    (topic,) = [outcome for outcome in topics if isinstance(outcome, Topic)]
    (subscription,) = [outcome for outcome in subscriptions if isinstance(outcome, Subscription)]
    for outcomes in (topics, subscriptions):
        assert sum(isinstance(outcome, AlreadyExists) for outcome in outcomes) == 9
    assert await engines.log.topics() == {topic.id}
    assert await engines.cursors.subscriptions() == {subscription.id}


async def test_a_project_deleted_meanwhile_is_not_found_and_gets_no_log(engines: Engines, caller: Caller) -> None:
    await engines.registry.projects.delete(caller.here.id)

    for work in (engines.projects.update(caller, description="late"), engines.topics.create(caller, T)):
        with pytest.raises(NotFound, match=r"^project doesn't exist$"):
            await work

    assert await is_empty(engines)


async def test_a_topic_and_a_subscription_beyond_a_quota_leave_nothing(engines: Engines, caller: Caller) -> None:
    topic, subscription = await fill_project(engines)
    await engines.registry.projects.change_quotas(caller.here.id, {"topics": 1, "subscriptions": 1})

    with pytest.raises(QuotaExceeded):
        await engines.topics.create(caller, TopicName("T2"))
    with pytest.raises(QuotaExceeded):
        await engines.subscriptions.create(caller, SubscriptionName("S2"), REFERENCE)

    assert await engines.log.topics() == {topic.id}
    assert await engines.cursors.subscriptions() == {subscription.id}


async def test_a_topic_deleted_meanwhile_leaves_no_cursor(engines: Engines, caller: Caller) -> None:
    topic = await engines.topics.create(caller, T)
    await engines.log.drop(topic.id)

    with pytest.raises(NotFound, match=r"^Topic doesn't exist$"):
        await engines.subscriptions.create(caller, S, REFERENCE)

    assert await is_empty(engines)


async def test_a_deleted_topic_takes_its_log_and_a_deleted_subscription_its_cursor(
    engines: Engines, caller: Caller
) -> None:
    _, subscription = await fill_project(engines)

    await engines.topics.delete(caller, T)
    assert await engines.log.topics() == set()
    assert await engines.cursors.subscriptions() == {subscription.id}

    await engines.subscriptions.delete(caller, S)
    assert await is_empty(engines)


async def test_a_subscription_whose_cursor_was_lost_begins_again_at_the_oldest_message(engines: Engines) -> None:
    topic, subscription = await fill_project(engines)
    await engines.log.append(topic.id, [message("aGk=")] * 3)
    await engines.cursors.seek(subscription.id, topic.id, Offset(3))
    await engines.cursors.drop(subscription.id)

    assert await engines.subscriptions.give_cursors() == 1

    assert (await engines.cursors.position(subscription.id, topic.id)).offset == 0
    assert await engines.subscriptions.give_cursors() == 0


async def test_a_push_server_follows_topics_that_have_subscriptions(engines: Engines, caller: Caller) -> None:
    """Push contract 15, P31."""
    followed: list[str] = []

    async def changed() -> None:
        followed.append("topic" if await engines.registry.topics.find(caller.here.id, T) else "no topic")

    topics = Topics(engines.registry, engines.log, engines.counting, engines.retention, changed=changed)
    await topics.create(caller, TopicName("other"))
    await topics.delete(caller, TopicName("other"))
    assert followed == []

    await topics.create(caller, T)
    await engines.subscriptions.create(caller, S, REFERENCE)
    await topics.delete(caller, T)
    await topics.create(caller, T)

    assert followed == ["no topic", "topic"]


@pytest.fixture
async def schema(engines: Engines, caller: Caller) -> Schema:
    """A schema with two revisions."""
    content = SchemaContent("avro", '{"type":"string"}', None)
    made = await engines.registry.schemas.create(caller.here.id, SchemaName("X"), content)
    changed = await engines.registry.schemas.update(made, content=content)
    assert changed is not None
    return changed


async def test_documents_of_json_schema_have_one_encoding(engines: Engines, caller: Caller, schema: Schema) -> None:
    await engines.registry.schemas.update(schema, content=SchemaContent("json", "{}", None))

    with pytest.raises(InvalidInput, match=r"^A schema of type json has the encoding JSON$"):
        await engines.topics.create(caller, T, X, encoding="BINARY")
    await engines.topics.create(caller, T, X, encoding="JSON")


@pytest.mark.parametrize(
    ("use", "error", "text"),
    [
        ({"encoding": "XML"}, InvalidInput, r"^The encoding of a schema is one of JSON, BINARY$"),
        ({"first_revision": 3}, NotFound, r"^Schema revision doesn't exist$"),
        ({"last_revision": 0}, NotFound, r"^Schema revision doesn't exist$"),
        ({"first_revision": 2, "last_revision": 1}, InvalidInput, r"^The first revision of a schema is newer"),
    ],
)
async def test_a_bad_use_of_a_schema_changes_nothing(
    engines: Engines, caller: Caller, schema: Schema, use: Mapping[str, Any], error: type[AmsError], text: str
) -> None:
    with pytest.raises(error, match=text):
        await engines.topics.create(caller, T, X, **use)
    assert await is_empty(engines)
    made = await engines.topics.create(caller, T)

    with pytest.raises(error, match=text):
        await engines.topics.attach_schema(caller, T, X, **use)

    assert await engines.topics.show(caller, T) == made
