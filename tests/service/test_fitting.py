"""Messages of topics with a schema: the revision recorded with each."""

import base64
import json
from typing import Any

import pytest

from ams.core.errors import InvalidInput
from ams.core.messages import Message, message, parse
from ams.core.names import SCHEMA_ENCODING_ATTRIBUTE as ENCODING
from ams.core.names import SCHEMA_NAME_ATTRIBUTE as SCHEMA_NAME
from ams.core.names import SCHEMA_REVISION_ATTRIBUTE as REVISION
from ams.core.names import revision_id
from ams.service.schemas import Schemas
from ams.service.validators import NO_REVISION_LEFT
from ams.storage.registry.records import SchemaUse
from ams.wire.projects import SchemaBody
from tests.support.use_cases import TOPIC, UseCases

X = "X"
LONG_CHARACTERS = 40_000  # characters of a text that is validated by a worker process


def record(field: str, kind: str = "string") -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": field, "type": kind}]}


def make_message(document: object, **attributes: str) -> Message:
    return message(base64.b64encode(json.dumps(document).encode()).decode(), attributes)


@pytest.fixture
async def schemas(use_cases: UseCases) -> Schemas:
    """A schema with the revisions 1 (a text a), 2 (a text b) and 3 (bytes b), attached to the topic."""
    made = Schemas(use_cases.engines.registry, use_cases.engines.log, use_cases.validators)
    await made.create(use_cases.caller, X, SchemaBody(type="avro", schema=record("a")))
    await commit(use_cases, made, record("b"))
    await commit(use_cases, made, record("b", "bytes"))
    await attach(use_cases)
    return made


async def commit(use_cases: UseCases, schemas: Schemas, schema: dict[str, Any]) -> int:
    before = await schemas.show(use_cases.caller, X)
    return (await schemas.update(use_cases.caller, before, SchemaBody(schema=schema))).revision


async def attach(use_cases: UseCases, first: int | None = None, last: int | None = None) -> None:
    await use_cases.engines.topics.attach_schema(
        use_cases.caller, TOPIC, "projects/P/schemas/X", SchemaUse("JSON", first, last)
    )


async def publish(use_cases: UseCases, *messages: Message, key: str | None = None) -> list[Message]:
    topic = await use_cases.publisher.topic(use_cases.caller, TOPIC)
    appended = await use_cases.publisher.publish(topic, messages, key=key, project="P")
    stored = await use_cases.engines.log.read(topic.id, appended.first, max_messages=100, max_bytes=2**24)
    return [parse(each.fragment) for each in stored]


async def publish_revisions(use_cases: UseCases, schemas: Schemas, *messages: Message) -> list[int]:
    schema = await schemas.show(use_cases.caller, X)
    numbers = {revision_id(schema.id, number): number for number in range(1, 30)}
    return [numbers[each.attributes[REVISION]] for each in await publish(use_cases, *messages)]


async def test_each_message_tells_the_newest_revision_that_it_keeps(use_cases: UseCases, schemas: Schemas) -> None:
    messages = [make_message({"b": "€"}), make_message({"b": "x"}), make_message({"a": "x"}), make_message({"b": "€"})]
    assert await publish_revisions(use_cases, schemas, *messages) == [2, 3, 1, 2]


async def test_long_messages_are_checked_by_a_worker_against_every_revision(use_cases: UseCases, schemas: Schemas):
    long = [make_message({"b": text * LONG_CHARACTERS}) for text in "€x€"]
    assert await publish_revisions(use_cases, schemas, *long, make_message({"a": ""})) == [2, 3, 2, 1]
    with pytest.raises(InvalidInput, match="^Message 1 data is not valid,b: Invalid type"):
        await publish(
            use_cases, make_message({"b": ""}), make_message({"b": ["€" * LONG_CHARACTERS]}),
            make_message({"b": "€" * LONG_CHARACTERS}),
        )  # fmt: skip


async def test_what_is_told_is_added_to_what_was_sent(use_cases: UseCases, schemas: Schemas) -> None:
    schema = await schemas.show(use_cases.caller, X)
    [stored] = await publish(use_cases, message(make_message({"a": "x"}).data, {"site": "A", REVISION: "mine"}, "key"))
    assert (stored.data, stored.ordering_key) == (make_message({"a": "x"}).data, "key")
    assert stored.attributes == {
        "site": "A", SCHEMA_NAME: "projects/P/schemas/X", ENCODING: "JSON", REVISION: revision_id(schema.id, 1),
    }  # fmt: skip


async def test_the_ends_of_the_revisions_hold(use_cases: UseCases, schemas: Schemas) -> None:
    await attach(use_cases, 2, 2)
    assert await publish_revisions(use_cases, schemas, make_message({"b": "x"})) == [2]
    with pytest.raises(InvalidInput, match="a is not allowed"):
        await publish(use_cases, make_message({"a": "x"}))
    await attach(use_cases, 3)
    await commit(use_cases, schemas, record("c"))
    assert await publish_revisions(use_cases, schemas, make_message({"b": "x"}), make_message({"c": "x"})) == [3, 4]
    with pytest.raises(InvalidInput, match="Message 0"):
        await publish(use_cases, make_message({"b": "€"}))


async def test_deleted_revisions_allow_nothing(use_cases: UseCases, schemas: Schemas) -> None:
    await attach(use_cases, 3, 3)
    assert await publish_revisions(use_cases, schemas, make_message({"b": "x"})) == [3]
    await schemas.delete_revision(use_cases.caller, X, 3)
    with pytest.raises(InvalidInput, match=NO_REVISION_LEFT):
        await publish(use_cases, make_message({"b": "x"}))
    await attach(use_cases, 1)
    assert await publish_revisions(use_cases, schemas, make_message({"b": "x"})) == [2]


async def test_of_many_revisions_the_newest_20_are_tried(use_cases: UseCases, schemas: Schemas) -> None:
    while await commit(use_cases, schemas, record("c")) < 21:
        pass
    assert await publish_revisions(use_cases, schemas, make_message({"b": "€"})) == [2]
    with pytest.raises(InvalidInput):
        await publish(use_cases, make_message({"a": "x"}))
