"""Administration of topics: HTTP contract 8, line by line."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from ams.access.admission import Caller
from ams.core.errors import AlreadyExists, AmsError, InvalidInput, NotFound
from ams.core.names import SchemaName, SubscriptionName, TopicName
from ams.core.parallel_options import ParallelOptions
from ams.service.topics import Topics
from ams.storage.registry.records import AttachedSchema, PageRequest, Schema, SchemaContent, Topic
from tests.support.administration import admitted, make_project, make_user
from tests.support.engines import Engines

T = TopicName("T")
X = "projects/P/schemas/X"
EVERYTHING = PageRequest()


async def test_a_topic_is_made_with_its_log(engines: Engines, caller: Caller) -> None:
    made = await engines.topics.create(caller, T)

    assert (made.name, made.schema, made.created_on) == ("T", None, engines.clock.wall())
    assert await engines.topics.show(caller, T) == made
    assert await engines.log.topics() == {made.id}
    assert await engines.log.bounds(made.id) == (0, 0)


async def test_a_taken_name_is_refused_and_leaves_no_log(engines: Engines, caller: Caller) -> None:
    made = await engines.topics.create(caller, T)

    with pytest.raises(AlreadyExists, match=r"^Topic already exists$"):
        await engines.topics.create(caller, T)

    assert await engines.log.topics() == {made.id}


async def test_one_of_many_parallel_makers_wins_and_one_log_stays(engines: Engines, caller: Caller) -> None:
    """U11."""
    outcomes = await asyncio.gather(*(engines.topics.create(caller, T) for _ in range(10)), return_exceptions=True)

    (winner,) = [outcome for outcome in outcomes if isinstance(outcome, Topic)]
    assert sum(isinstance(outcome, AlreadyExists) for outcome in outcomes) == 9
    assert await engines.log.topics() == {winner.id}


async def test_a_project_deleted_meanwhile_leaves_no_log(engines: Engines, caller: Caller) -> None:
    await engines.registry.projects.delete(caller.here.id)

    with pytest.raises(NotFound, match=r"^project doesn't exist$"):
        await engines.topics.create(caller, T)

    assert await engines.log.topics() == set()


@pytest.mark.parametrize("reference", ["X", "projects/P/schemas", "projects/P/topics/X", "/projects/P/schemas/X"])
async def test_a_bad_schema_reference_is_told_before_a_taken_name(
    engines: Engines, caller: Caller, reference: str
) -> None:
    await engines.topics.create(caller, T)

    with pytest.raises(InvalidInput, match=r"^wrong schema name declaration$"):
        await engines.topics.create(caller, T, reference)


async def test_an_unknown_schema_is_told_before_a_taken_name(engines: Engines, caller: Caller) -> None:
    await engines.topics.create(caller, T, "")

    with pytest.raises(NotFound, match=r"^Schema doesn't exist$"):
        await engines.topics.create(caller, T, "projects/P/schemas/X")


async def test_what_is_not_there_is_not_found(engines: Engines, caller: Caller) -> None:
    for call in (
        engines.topics.show,
        engines.topics.delete,
        engines.topics.subscriptions_of,
        engines.topics.access_list,
    ):
        with pytest.raises(NotFound, match=r"^Topic doesn't exist$"):
            await call(caller, T)
    with pytest.raises(NotFound, match=r"^Topic doesn't exist$"):
        await engines.topics.set_access_list(caller, T, [])


async def test_a_deleted_topic_takes_its_log_and_leaves_its_subscriptions(engines: Engines, caller: Caller) -> None:
    await engines.topics.create(caller, T)
    subscription = await engines.subscriptions.create(caller, SubscriptionName("S"), "projects/P/topics/T")

    await engines.topics.delete(caller, T)

    assert await engines.log.topics() == set()
    assert await engines.subscriptions.show(caller, subscription.name) == subscription


async def test_a_topic_made_again_meets_its_old_subscriptions(engines: Engines, caller: Caller) -> None:
    old = await engines.topics.create(caller, T)
    await engines.subscriptions.create(caller, SubscriptionName("S"), "projects/P/topics/T")
    await engines.topics.delete(caller, T)

    new = await engines.topics.create(caller, T)

    assert new.id != old.id
    assert await engines.topics.subscriptions_of(caller, T) == ["S"]


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
    await engines.subscriptions.create(caller, SubscriptionName("S"), "projects/P/topics/T")
    await topics.delete(caller, T)
    await topics.create(caller, T)

    assert followed == ["no topic", "topic"]


async def test_subscriptions_of_a_topic_come_oldest_first(engines: Engines, caller: Caller) -> None:
    await engines.topics.create(caller, T)
    for name in ("b", "a"):
        await engines.subscriptions.create(caller, SubscriptionName(name), "projects/P/topics/T")

    assert await engines.topics.subscriptions_of(caller, T) == ["b", "a"]


async def test_a_fresh_topic_has_an_empty_access_list(engines: Engines, caller: Caller) -> None:
    """Clients A23."""
    await engines.topics.create(caller, T)

    assert await engines.topics.access_list(caller, T) == []


async def test_an_access_list_is_replaced_in_the_order_given(engines: Engines, caller: Caller) -> None:
    await engines.topics.create(caller, T)
    for name in ("a", "b", "c"):
        await make_user(engines.registry, name, {caller.here.id: ("publisher",)})

    await engines.topics.set_access_list(caller, T, ["a"])
    await engines.topics.set_access_list(caller, T, ["c", "b"])

    assert await engines.topics.access_list(caller, T) == ["c", "b"]
    with pytest.raises(NotFound, match=r"^User\(s\): x, y do not exist$"):
        await engines.topics.set_access_list(caller, T, ["x", "c", "y"])
    assert await engines.topics.access_list(caller, T) == ["c", "b"]


async def test_a_user_shows_the_topics_that_list_it(engines: Engines, caller: Caller) -> None:
    """Clients A18."""
    anna = await make_user(engines.registry, "anna", {caller.here.id: ("publisher",)})
    await engines.topics.create(caller, T)
    await engines.topics.set_access_list(caller, T, ["anna"])

    shown = await engines.registry.users.by_id(anna.id)

    assert shown is not None
    assert shown.memberships[0].topics == ("T",)
    assert shown.memberships[0].subscriptions == ()


async def test_lists_come_newest_first_in_pages(engines: Engines, caller: Caller) -> None:
    for name in ("b", "a", "c"):
        await engines.topics.create(caller, TopicName(name))

    first = await engines.topics.list(caller, PageRequest(2))
    second = await engines.topics.list(caller, PageRequest(2, first.next_token))

    assert [topic.name for topic in (*first.items, *second.items)] == ["c", "a", "b"]
    assert (first.total, second.total, second.next_token) == (3, 3, "")
    with pytest.raises(InvalidInput, match=r"^Invalid page token$"):
        await engines.topics.list(caller, PageRequest(2, "nonsense!"))


async def test_a_publisher_is_shown_the_topics_that_list_it(engines: Engines, caller: Caller) -> None:
    """HTTP contract 3.5; totalSize counts what is shown."""
    anna = await make_user(engines.registry, "anna", {caller.here.id: ("publisher",)})
    for name in ("a", "b"):
        await engines.topics.create(caller, TopicName(name))
    await engines.topics.set_access_list(caller, TopicName("a"), ["anna"])

    page = await engines.topics.list(await admitted(engines.registry, "topics:list", anna, "P"), EVERYTHING)

    assert [topic.name for topic in page.items] == ["a"]
    assert page.total == 1


async def test_projects_do_not_see_each_others_topics(engines: Engines, caller: Caller) -> None:
    await make_project(engines.registry, "other")
    await engines.topics.create(caller, T)

    stranger = await engines.caller("other")

    assert (await engines.topics.list(stranger, EVERYTHING)).items == ()
    with pytest.raises(NotFound):
        await engines.topics.show(stranger, T)


async def test_labels_are_kept_and_replaced(engines: Engines, caller: Caller) -> None:
    made = await engines.topics.create(caller, T, labels={"a": "1"})
    assert made.labels == {"a": "1"}

    changed = await engines.topics.set_labels(caller, T, {"b": "2"})

    assert changed.labels == {"b": "2"}
    assert await engines.topics.show(caller, T) == changed
    with pytest.raises(NotFound, match=r"^Topic doesn't exist$"):
        await engines.topics.set_labels(caller, TopicName("other"), {})


async def test_attached_subscriptions_are_paged(engines: Engines, caller: Caller) -> None:
    await engines.topics.create(caller, T)
    for name in ("a", "b", "c"):
        subscription = SubscriptionName(name)
        await engines.subscriptions.create(caller, subscription, "projects/P/topics/T", options=ParallelOptions())
    await engines.subscriptions.detach(caller, SubscriptionName("b"))

    first = await engines.topics.attached_subscriptions(caller, T, PageRequest(1))
    second = await engines.topics.attached_subscriptions(caller, T, PageRequest(1, first.next_token))

    assert (first.items, first.total, second.items, second.next_token) == (("c",), 2, ("a",), "")
    with pytest.raises(NotFound, match=r"^Topic doesn't exist$"):
        await engines.topics.attached_subscriptions(caller, TopicName("other"), EVERYTHING)


@pytest.fixture
async def schema(engines: Engines, caller: Caller) -> Schema:
    """A schema with two revisions."""
    content = SchemaContent("avro", '{"type":"string"}', None)
    made = await engines.registry.schemas.create(caller.here.id, SchemaName("X"), content)
    changed = await engines.registry.schemas.update(made, content=content)
    assert changed is not None
    return changed


async def test_a_topic_says_how_it_uses_its_schema(engines: Engines, caller: Caller, schema: Schema) -> None:
    made = await engines.topics.create(caller, T, X, encoding="JSON", first_revision=1, last_revision=2)
    assert made.schema == AttachedSchema(schema.id, schema.name, 2, "JSON", 1, 2)

    await engines.topics.attach_schema(caller, T, X, encoding="BINARY", last_revision=1)
    assert (await engines.topics.show(caller, T)).schema == AttachedSchema(schema.id, schema.name, 2, "BINARY", None, 1)

    await engines.topics.attach_schema(caller, T, X)
    assert (await engines.topics.show(caller, T)).schema == AttachedSchema(schema.id, schema.name, 2)


BAD_USES = pytest.mark.parametrize(
    ("use", "error", "text"),
    [
        ({"encoding": "XML"}, InvalidInput, r"^The encoding of a schema is one of JSON, BINARY$"),
        ({"first_revision": 3}, NotFound, r"^Schema revision doesn't exist$"),
        ({"last_revision": 0}, NotFound, r"^Schema revision doesn't exist$"),
        ({"first_revision": 2, "last_revision": 1}, InvalidInput, r"^The first revision of a schema is newer"),
    ],
)


async def test_documents_of_json_schema_have_one_encoding(engines: Engines, caller: Caller, schema: Schema) -> None:
    await engines.registry.schemas.update(schema, content=SchemaContent("json", "{}", None))

    with pytest.raises(InvalidInput, match=r"^A schema of type json has the encoding JSON$"):
        await engines.topics.create(caller, T, X, encoding="BINARY")
    await engines.topics.create(caller, T, X, encoding="JSON")


@BAD_USES
async def test_a_bad_use_of_a_schema_changes_nothing(
    engines: Engines, caller: Caller, schema: Schema, use: Mapping[str, Any], error: type[AmsError], text: str
) -> None:
    with pytest.raises(error, match=text):
        await engines.topics.create(caller, T, X, **use)
    assert await engines.log.topics() == set()
    made = await engines.topics.create(caller, T)

    with pytest.raises(error, match=text):
        await engines.topics.attach_schema(caller, T, X, **use)

    assert await engines.topics.show(caller, T) == made
