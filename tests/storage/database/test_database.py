import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import Connection, func, insert, select, update

from ams.core.errors import NotFound, RegistryUnavailable
from ams.storage.database import opening
from ams.storage.database.database import Database
from ams.storage.database.invalidation import Invalidation
from ams.storage.registry.tables import REGISTRY, projects


@pytest.fixture
async def database(registry_url: str) -> AsyncIterator[Database]:
    opened = Database(registry_url, REGISTRY)
    await opened.prepare(lambda connection: opening.prepare(connection, REGISTRY))
    yield opened
    await opened.close()


def add_project(name: str, connection: Connection) -> None:
    connection.execute(insert(projects).values(id=name, name=name, description="", created_on=0, modified_on=0))


def count_projects(connection: Connection) -> int | None:
    return connection.scalar(select(func.count()).select_from(projects))


async def test_work_that_fails_leaves_nothing_behind(database: Database) -> None:
    def work(connection: Connection) -> None:
        add_project("P", connection)
        raise NotFound("changed my mind")

    with pytest.raises(NotFound, match="changed my mind"):
        await database.write(work)

    assert await database.read(count_projects) == 0


async def test_a_broken_rule_no_client_can_meet_is_no_clients_fault(database: Database) -> None:
    await database.write(lambda connection: add_project("P", connection))
    same = insert(projects).values(id="P", name="Q", description="", created_on=0, modified_on=0)

    with pytest.raises(RegistryUnavailable):
        await database.write(lambda connection: connection.execute(same))


async def test_a_failing_statement_is_unavailability_and_the_next_one_works(database: Database) -> None:
    """17.4 O9."""
    with pytest.raises(RegistryUnavailable) as caught:
        await database.read(lambda connection: connection.exec_driver_sql("SELECT * FROM nowhere"))

    assert caught.value.message == "Internal error while querying datastore"
    assert await database.read(count_projects) == 0


async def test_caches_forget_before_anyone_sees_the_outcome(database: Database) -> None:
    told: list[str] = []
    database.invalidations.on("letter", told.append)

    await database.write(count_projects, Invalidation("letter", ("a",)), Invalidation("letter", ("b",)))
    told.append("caller")

    assert told == ["a", "b", "caller"]


async def test_caches_forget_also_when_the_caller_has_left(database: Database) -> None:
    forgotten = asyncio.Event()
    database.invalidations.on("letter", forgotten.set)
    writing = asyncio.create_task(
        database.write(lambda connection: add_project("P", connection), Invalidation("letter", ()))
    )
    await asyncio.sleep(0)

    writing.cancel()
    await forgotten.wait()

    assert writing.cancelled()
    assert await database.read(count_projects) == 1


async def test_many_writers_each_get_their_turn(database: Database) -> None:
    await asyncio.gather(
        *(database.write(lambda connection, name=f"P{n}": add_project(name, connection)) for n in range(50))
    )

    assert await database.read(count_projects) == 50


async def test_work_of_the_same_turn_runs_one_after_the_other(database: Database) -> None:
    """Each sees what the one before did, on two nodes that do it at the same time too."""

    def count_up(connection: Connection) -> None:
        count = connection.scalar(select(projects.c.created_on)) or 0
        connection.execute(update(projects).values(created_on=count + 1))

    await database.write(lambda connection: add_project("P", connection))

    await asyncio.gather(*(database.in_turn(count_up, 7) for _ in range(20)))

    assert await database.read(lambda connection: connection.scalar(select(projects.c.created_on))) == 20
