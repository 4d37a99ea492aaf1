import asyncio
import base64
import json
from pathlib import Path

import pytest
from sqlalchemy import update

from ams.core.errors import Conflict, InvalidInput, Overloaded, Unusable
from ams.core.messages import Message, message
from ams.service.schemas import MAX_DRY_RUN, DryRuns, Schemas
from ams.service.validators import Validators
from ams.storage.database.database import Database, sqlite_url
from ams.storage.registry.records import Schema
from ams.storage.registry.tables import REGISTRY, schema_revisions
from ams.wire.projects import SchemaBody
from tests.support.use_cases import SUB, TOPIC, UseCases

X = "X"
NUMBERS = SchemaBody(schema={"type": "number"})
OBJECT, NUMBER = message("e30="), message("MQ==")


@pytest.fixture
def validators(use_cases: UseCases) -> Validators:
    return use_cases.validators


@pytest.fixture
async def schemas(use_cases: UseCases, validators: Validators) -> Schemas:
    made = Schemas(use_cases.engines.registry, use_cases.engines.log, validators)
    await made.create(use_cases.caller, X, SchemaBody(type="json", schema={"type": "object"}))
    await use_cases.engines.topics.attach_schema(use_cases.caller, TOPIC, "projects/P/schemas/X")
    return made


async def publish(use_cases: UseCases, *messages: Message) -> int:
    topic = await use_cases.publisher.topic(use_cases.caller, TOPIC)
    return (await use_cases.publisher.publish(topic, messages)).first


async def change(use_cases: UseCases, schemas: Schemas, details: SchemaBody) -> Schema:
    return await schemas.update(use_cases.caller, await schemas.show(use_cases.caller, X), details)


async def test_parallel_changes_are_all_made_one_after_the_other(use_cases: UseCases, schemas: Schemas) -> None:
    made = await schemas.show(use_cases.caller, X)

    await asyncio.gather(
        change(use_cases, schemas, NUMBERS), change(use_cases, schemas, SchemaBody(attributes={"closed": True})),
        change(use_cases, schemas, SchemaBody(name="projects/P/schemas/X")),
    )  # fmt: skip

    now = await schemas.show(use_cases.caller, X)
    assert now.revision == made.revision + 2
    assert (now.content.payload, now.content.attributes) == ('{"type":"number"}', '{"closed":true}')


async def test_protobuf_messages_are_checked_here_large_ones_by_a_worker(use_cases: UseCases, schemas: Schemas) -> None:
    definition = 'syntax = "proto3"; message A { string a = 1; }'
    made = await change(use_cases, schemas, SchemaBody(type="protobuf", schema={"definition": definition}))
    again = await change(use_cases, schemas, SchemaBody(schema=json.loads(made.content.payload or "")))
    assert made.content == again.content

    large = b"\x0a\x80\x80\x40" + b"x" * 2**20
    await publish(use_cases, *(message(base64.b64encode(each).decode()) for each in (b"", b"\x0a\x01x", large)))
    for data in (b"\x0a", large[:-1]):
        with pytest.raises(InvalidInput, match="Message 1 is not valid.the data is not a message A"):
            await publish(use_cases, message(""), message(base64.b64encode(data).decode()))


async def test_a_publish_under_way_keeps_the_schema_it_began_with(use_cases: UseCases, schemas: Schemas) -> None:
    made = await schemas.show(use_cases.caller, X)
    topic = await use_cases.publisher.topic(use_cases.caller, TOPIC)

    await change(use_cases, schemas, NUMBERS)
    with pytest.raises(InvalidInput, match="given: integer"):
        await use_cases.publisher.publish(topic, [NUMBER])

    await use_cases.engines.registry.schemas.delete(made.id)
    assert (await use_cases.publisher.publish(topic, [NUMBER])).first == 0


async def test_12_2_an_unusable_schema_stops_publishing(use_cases: UseCases, schemas: Schemas, tmp_path: Path) -> None:
    database = Database(sqlite_url(str(tmp_path / "registry.db")), REGISTRY)
    spoilt = update(schema_revisions).values(payload='{"type": "unknown"}')
    await database.write(lambda connection: connection.execute(spoilt))
    await database.close()

    with pytest.raises(Unusable, match=r"^Could not load schema for topic$"):
        await publish(use_cases, OBJECT)
    with pytest.raises(Unusable, match=r"^Could not load schema for topic$"):
        await schemas.validate(await schemas.show(use_cases.caller, X), b"{}")
    assert (await use_cases.seeker.offsets(use_cases.caller, SUB)).max == 0


async def test_a_dry_run_has_an_end(use_cases: UseCases, schemas: Schemas) -> None:
    await publish(use_cases, *[OBJECT] * (MAX_DRY_RUN + 10))
    done = await schemas.dry_run(use_cases.caller, X, "projects/P/topics/t", MAX_DRY_RUN + 10)
    assert (done.checked, done.refused) == (MAX_DRY_RUN, 0)


P, Q = "p", "q"


async def return_one() -> int:
    return 1


async def begin_dry_run(dry_runs: DryRuns, gone: "asyncio.Future[None] | None" = None) -> "asyncio.Task[object]":
    task = asyncio.ensure_future(dry_runs.run(P, asyncio.Event().wait(), gone))
    await asyncio.sleep(0)
    return task


async def test_a_project_has_one_dry_run_at_a_time_and_others_theirs() -> None:
    dry_runs = DryRuns()
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    for end in (lambda task: task.cancel(), lambda _: gone.set_result(None)):
        task = await begin_dry_run(dry_runs, gone)
        with pytest.raises(Conflict, match="^Another dry run of this project is under way$"):
            await dry_runs.run(P, return_one())
        assert await dry_runs.run(Q, return_one()) == 1

        end(task)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await dry_runs.run(P, return_one()) == 1


async def test_a_stop_ends_all_dry_runs_and_none_begins_after_it() -> None:
    dry_runs = DryRuns()
    first = await begin_dry_run(dry_runs)

    dry_runs.stop()

    for each in (first, dry_runs.run(Q, return_one())):
        with pytest.raises(Overloaded, match="^The service is stopping$"):
            await each


async def test_a_publish_is_checked_by_the_newest_revision_left(use_cases: UseCases, schemas: Schemas) -> None:
    await change(use_cases, schemas, NUMBERS)
    topic = await use_cases.publisher.topic(use_cases.caller, TOPIC)

    await schemas.delete_revision(use_cases.caller, X, 2)

    with pytest.raises(InvalidInput, match="given: integer"):
        await use_cases.publisher.publish(topic, [NUMBER])
    assert (await use_cases.publisher.publish(topic, [OBJECT])).first == 0
