"""Schemas as a use case: what the contract's rows cannot show one request at a time."""

import asyncio
import base64
import json
from pathlib import Path

import pytest
from sqlalchemy import update

from ams.core.errors import AlreadyExists, Conflict, InvalidInput, NotFound, Overloaded, Unusable
from ams.core.messages import Message, message
from ams.core.names import ProjectId, SchemaName
from ams.service.schemas import MAX_DRY_RUN, MAX_REASONS, DryRuns, Schemas
from ams.service.validators import Validators
from ams.storage.database.database import Database, sqlite_url
from ams.storage.registry.records import Schema
from ams.storage.registry.tables import REGISTRY, schema_revisions
from ams.wire.schemas import SchemaBody
from tests.support.use_cases import SUB, TOPIC, UseCases

X = SchemaName("X")
REFERENCE = "projects/P/schemas/X"
OBJECTS = SchemaBody(type="json", schema={"type": "object"})
NUMBERS = SchemaBody(schema={"type": "number"})
SLOW = {"anyOf": [{"const": number} for number in range(4000, 5000)]}
"""A thousand looks at each place."""
OBJECT, NUMBER = message("e30="), message("MQ==")


def b64(document: object) -> str:
    return base64.b64encode(json.dumps(document).encode()).decode()


LONG = message(b64([0] * 300))


@pytest.fixture
def validators(use_cases: UseCases) -> Validators:
    return use_cases.validators


@pytest.fixture
def schemas(use_cases: UseCases, validators: Validators) -> Schemas:
    return Schemas(use_cases.engines.registry, use_cases.engines.log, validators)


async def publish(use_cases: UseCases, *messages: Message) -> int:
    topic = await use_cases.publisher.topic(use_cases.caller, TOPIC)
    return (await use_cases.publisher.publish(topic, messages)).first


async def change(use_cases: UseCases, schemas: Schemas, details: SchemaBody) -> Schema:
    return await schemas.update(use_cases.caller, await schemas.show(use_cases.caller, X), details)


async def test_one_of_many_parallel_makers_wins(use_cases: UseCases, schemas: Schemas) -> None:
    """U11."""
    outcomes = await asyncio.gather(
        *(schemas.create(use_cases.caller, X, OBJECTS) for _ in range(10)), return_exceptions=True
    )

    (winner,) = [outcome for outcome in outcomes if isinstance(outcome, Schema)]
    assert sum(isinstance(outcome, AlreadyExists) for outcome in outcomes) == 9
    assert await schemas.list(use_cases.caller) == [winner]


async def test_parallel_changes_are_all_made_one_after_the_other(use_cases: UseCases, schemas: Schemas) -> None:
    made = await schemas.create(use_cases.caller, X, OBJECTS)

    await asyncio.gather(
        change(use_cases, schemas, NUMBERS),
        change(use_cases, schemas, SchemaBody(attributes={"closed": True})),
        change(use_cases, schemas, SchemaBody(name="projects/P/schemas/X")),
    )

    now = await schemas.show(use_cases.caller, X)
    assert now.revision == made.revision + 2
    assert (now.content.payload, now.content.attributes) == ('{"type":"number"}', '{"closed":true}')


async def test_a_schema_deleted_while_it_is_changed_is_not_found(use_cases: UseCases, schemas: Schemas) -> None:
    made = await schemas.create(use_cases.caller, X, OBJECTS)

    with pytest.raises(NotFound, match=r"^Schema doesn't exist$"):
        await asyncio.gather(use_cases.engines.registry.schemas.delete(made.id), change(use_cases, schemas, NUMBERS))


async def test_a_change_is_in_force_for_what_is_published_after_it(use_cases: UseCases, schemas: Schemas) -> None:
    await schemas.create(use_cases.caller, X, OBJECTS)
    await use_cases.engines.topics.attach_schema(use_cases.caller, TOPIC, REFERENCE)
    await publish(use_cases, OBJECT)

    await change(use_cases, schemas, NUMBERS)

    with pytest.raises(InvalidInput, match="given: object"):
        await publish(use_cases, OBJECT)
    assert await publish(use_cases, NUMBER) == 1


async def test_a_publish_under_way_keeps_the_schema_it_began_with(use_cases: UseCases, schemas: Schemas) -> None:
    made = await schemas.create(use_cases.caller, X, OBJECTS)
    await use_cases.engines.topics.attach_schema(use_cases.caller, TOPIC, REFERENCE)
    topic = await use_cases.publisher.topic(use_cases.caller, TOPIC)

    await change(use_cases, schemas, NUMBERS)
    with pytest.raises(InvalidInput, match="given: integer"):
        await use_cases.publisher.publish(topic, [NUMBER])

    await use_cases.engines.registry.schemas.delete(made.id)
    assert (await use_cases.publisher.publish(topic, [NUMBER])).first == 0


async def test_a_request_that_takes_long_is_checked_as_any_other(use_cases: UseCases, schemas: Schemas) -> None:
    await schemas.create(use_cases.caller, X, SchemaBody(type="json", schema={"items": {"not": SLOW}}))
    await use_cases.engines.topics.attach_schema(use_cases.caller, TOPIC, REFERENCE)

    with pytest.raises(InvalidInput, match=r"^Message 3 data is not valid,\(root\): Does not match the schema$"):
        await publish(use_cases, LONG, OBJECT, LONG, message(b64([4999] * 300)), LONG)

    assert await publish(use_cases, LONG, OBJECT) == 0


async def test_a_revision_is_compiled_once_for_all_who_ask(
    use_cases: UseCases, schemas: Schemas, validators: Validators
) -> None:
    made = await schemas.create(use_cases.caller, X, OBJECTS)

    first, *others = await asyncio.gather(*(validators.of(made.id, 1) for _ in range(20)))

    assert all(other is first for other in others)
    assert await validators.of(made.id, 1) is first
    with pytest.raises(NotFound):
        await validators.of(made.id, 2)


async def test_of_a_schema_only_the_newest_revision_in_use_is_kept(
    use_cases: UseCases, schemas: Schemas, validators: Validators
) -> None:
    made = await schemas.create(use_cases.caller, X, OBJECTS)
    old = await validators.of(made.id, 1)
    await change(use_cases, schemas, NUMBERS)
    new = await validators.of(made.id, 2)

    assert await validators.of(made.id, 2) is new
    assert await validators.of(made.id, 1) is not old


async def test_12_2_a_stored_schema_that_cannot_be_used_stops_publishing(
    use_cases: UseCases, schemas: Schemas, tmp_path: Path
) -> None:
    await schemas.create(use_cases.caller, X, OBJECTS)
    await use_cases.engines.topics.attach_schema(use_cases.caller, TOPIC, REFERENCE)
    database = Database(sqlite_url(str(tmp_path / "registry.db")), REGISTRY)
    spoilt = update(schema_revisions).values(payload='{"type": "unknown"}')
    await database.write(lambda connection: connection.execute(spoilt))
    await database.close()

    with pytest.raises(Unusable, match=r"^Could not load schema for topic$"):
        await publish(use_cases, OBJECT)
    with pytest.raises(Unusable, match=r"^Could not load schema for topic$"):
        await schemas.validate(await schemas.show(use_cases.caller, X), b"{}")
    assert (await use_cases.seeker.offsets(use_cases.caller, SUB)).max == 0


async def test_a_dry_run_looks_at_the_newest(use_cases: UseCases, schemas: Schemas) -> None:
    await schemas.create(use_cases.caller, X, OBJECTS)
    await publish(use_cases, *[NUMBER] * 30, *[OBJECT] * 5)

    newest = await schemas.dry_run(use_cases.caller, X, "projects/P/topics/t", 6)
    everything = await schemas.dry_run(use_cases.caller, X, "projects/P/topics/t", 10**30)

    assert (newest.checked, newest.refused, [each.message_id for each in newest.reasons]) == (6, 1, ["29"])
    assert (everything.checked, everything.refused) == (35, 30)
    assert [each.message_id for each in everything.reasons] == [str(offset) for offset in range(MAX_REASONS)]


async def test_a_dry_run_has_an_end(use_cases: UseCases, schemas: Schemas) -> None:
    await schemas.create(use_cases.caller, X, OBJECTS)
    await publish(use_cases, *[OBJECT] * (MAX_DRY_RUN + 10))

    done = await schemas.dry_run(use_cases.caller, X, "projects/P/topics/t", MAX_DRY_RUN + 10)

    assert (done.checked, done.refused) == (MAX_DRY_RUN, 0)


async def test_a_dry_run_ends_when_nobody_waits_for_it(use_cases: UseCases, schemas: Schemas) -> None:
    await schemas.create(use_cases.caller, X, SchemaBody(type="json", schema={"items": {"not": SLOW}}))
    await publish(use_cases, *[LONG] * 300)
    gone = asyncio.get_running_loop().create_future()
    running = asyncio.ensure_future(schemas.dry_run(use_cases.caller, X, "projects/P/topics/t", 300, gone=gone))
    while not schemas._dry_runs._running:
        await asyncio.sleep(0)

    with pytest.raises(Conflict, match="^Another dry run of this project is under way$"):
        await schemas.dry_run(use_cases.caller, X, "projects/P/topics/t", 1)
    gone.set_result(None)
    with pytest.raises(asyncio.CancelledError):
        await running

    assert not schemas._dry_runs._running
    assert (await schemas.dry_run(use_cases.caller, X, "projects/P/topics/t", 1)).checked == 1


async def test_a_stop_does_not_wait_for_dry_runs(use_cases: UseCases, schemas: Schemas) -> None:
    await schemas.create(use_cases.caller, X, SchemaBody(type="json", schema={"items": {"not": SLOW}}))
    await publish(use_cases, *[LONG] * 300)
    running = asyncio.ensure_future(schemas.dry_run(use_cases.caller, X, "projects/P/topics/t", 300))
    while not schemas._dry_runs._running:
        await asyncio.sleep(0)

    schemas.stop()

    with pytest.raises(Overloaded, match="^The service is stopping$"):
        await running
    with pytest.raises(Overloaded, match="^The service is stopping$"):
        await schemas.dry_run(use_cases.caller, X, "projects/P/topics/t", 1)


async def test_attached_and_asked_for_by_reference(use_cases: UseCases, schemas: Schemas) -> None:
    await schemas.create(use_cases.caller, X, OBJECTS)
    await use_cases.engines.topics.attach_schema(use_cases.caller, TOPIC, REFERENCE)
    topic = await use_cases.engines.topics.show(use_cases.caller, TOPIC)
    assert topic.schema is not None
    assert topic.schema.name == X

    await use_cases.engines.topics.attach_schema(use_cases.caller, TOPIC, "")
    await use_cases.engines.topics.detach_schema(use_cases.caller, TOPIC)

    assert (await use_cases.engines.topics.show(use_cases.caller, TOPIC)).schema is None


P, Q = ProjectId("p"), ProjectId("q")


async def forever() -> None:
    await asyncio.Event().wait()


async def done() -> int:
    return 1


async def begun(dry_runs: DryRuns, gone: "asyncio.Future[None] | None" = None) -> "asyncio.Task[None]":
    task = asyncio.ensure_future(dry_runs.run(P, forever(), gone))
    await asyncio.sleep(0)
    return task


async def test_a_project_has_one_at_a_time_and_others_theirs() -> None:
    dry_runs = DryRuns()
    first = await begun(dry_runs)

    with pytest.raises(Conflict, match="^Another dry run of this project is under way$"):
        await dry_runs.run(P, done())
    assert await dry_runs.run(Q, done()) == 1

    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await dry_runs.run(P, done()) == 1


async def test_one_ends_when_nobody_waits_for_it() -> None:
    dry_runs = DryRuns()
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    first = await begun(dry_runs, gone)

    gone.set_result(None)

    with pytest.raises(asyncio.CancelledError):
        await first
    assert not dry_runs._running


async def test_a_stop_ends_all_and_none_begins_after_it() -> None:
    dry_runs = DryRuns()
    first = await begun(dry_runs)

    dry_runs.stop()

    for each in (first, dry_runs.run(Q, done())):
        with pytest.raises(Overloaded, match="^The service is stopping$"):
            await each


async def test_a_rollback_makes_an_old_revision_the_newest(use_cases: UseCases, schemas: Schemas) -> None:
    first = await schemas.create(use_cases.caller, X, OBJECTS)
    await use_cases.engines.topics.attach_schema(use_cases.caller, TOPIC, REFERENCE)
    second = await change(use_cases, schemas, NUMBERS)

    third = await schemas.roll_back(use_cases.caller, X, 1)

    assert (third.revision, third.content) == (3, first.content)
    assert await schemas.revisions(use_cases.caller, X) == [third, second, first]
    assert await publish(use_cases, OBJECT) == 0
    with pytest.raises(NotFound, match=r"^Schema revision doesn't exist$"):
        await schemas.roll_back(use_cases.caller, X, 4)


async def test_parallel_rollbacks_are_all_made(use_cases: UseCases, schemas: Schemas) -> None:
    await schemas.create(use_cases.caller, X, OBJECTS)

    await asyncio.gather(*(schemas.roll_back(use_cases.caller, X, 1) for _ in range(5)))

    assert [each.revision for each in await schemas.revisions(use_cases.caller, X)] == [6, 5, 4, 3, 2, 1]


async def test_a_deleted_revision_counts_no_more_for_what_is_published_after_it(
    use_cases: UseCases, schemas: Schemas
) -> None:
    first = await schemas.create(use_cases.caller, X, OBJECTS)
    await use_cases.engines.topics.attach_schema(use_cases.caller, TOPIC, REFERENCE)
    await change(use_cases, schemas, NUMBERS)
    assert await publish(use_cases, NUMBER) == 0

    assert await schemas.delete_revision(use_cases.caller, X, 2) == first

    with pytest.raises(InvalidInput, match="given: integer"):
        await publish(use_cases, NUMBER)
    assert await publish(use_cases, OBJECT) == 1
    with pytest.raises(InvalidInput, match=r"^The last revision of a schema cannot be deleted$"):
        await schemas.delete_revision(use_cases.caller, X, 1)


async def test_a_publish_whose_revision_goes_meanwhile_is_checked_by_the_newest_left(
    use_cases: UseCases, schemas: Schemas
) -> None:
    await schemas.create(use_cases.caller, X, OBJECTS)
    await use_cases.engines.topics.attach_schema(use_cases.caller, TOPIC, REFERENCE)
    await change(use_cases, schemas, NUMBERS)
    topic = await use_cases.publisher.topic(use_cases.caller, TOPIC)

    await schemas.delete_revision(use_cases.caller, X, 2)

    with pytest.raises(InvalidInput, match="given: integer"):
        await use_cases.publisher.publish(topic, [NUMBER])
    assert (await use_cases.publisher.publish(topic, [OBJECT])).first == 0


async def test_revisions_of_what_is_not_there_are_not_found(use_cases: UseCases, schemas: Schemas) -> None:
    for call in (
        schemas.revisions(use_cases.caller, X),
        schemas.roll_back(use_cases.caller, X, 1),
        schemas.delete_revision(use_cases.caller, X, 1),
    ):
        with pytest.raises(NotFound, match=r"^Schema doesn't exist$"):
            await call
