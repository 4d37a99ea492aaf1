"""Implementations of `ams.storage.cursors`; a second engine adds a parameter."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from ams.storage import postgresql
from ams.storage.cursors import entries
from ams.storage.cursors.acks import CursorStore
from ams.storage.cursors.postgresql import PostgresCursors
from simulation.unreliable_disk import UnreliableDisk
from tests.storage.cursors.stores import END, SUB, TOPIC, StandingTime, SteadyNodes, Store, cursors_in
from tests.storage.log.engines import Embedded
from tests.support.clock import ManualClock

ENGINES = ["embedded", "model", pytest.param("postgresql", marks=pytest.mark.postgres)]
"""`model` is that of PostgreSQL in simulated worlds, which must behave like the real one."""


def _make_store(request: pytest.FixtureRequest) -> Store:
    disk = UnreliableDisk()

    async def open_embedded(clock: ManualClock) -> CursorStore:
        return await cursors_in(Embedded(clock, disk), {TOPIC: END})

    async def open_postgresql(clock: ManualClock) -> CursorStore:
        return await PostgresCursors.open(request.getfixturevalue("postgres_url"), time=StandingTime(clock))

    async def open_model(clock: ManualClock) -> CursorStore:
        return await PostgresCursors.open(request.getfixturevalue("model_url"), time=StandingTime(clock))

    return Store({"embedded": open_embedded, "model": open_model, "postgresql": open_postgresql}[request.param])


@pytest.fixture(params=ENGINES)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    made = _make_store(request)
    await made.open()
    await made.cursors.create(SUB, TOPIC, 0)
    yield made
    await made.cursors.close()


@pytest.fixture(params=ENGINES)
def steady_store(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[asyncio.Runner, Store]]:
    """A store for many examples of Hypothesis, and its loop. It writes images often."""
    monkeypatch.setattr(entries, "MAX_DELTAS", 4)
    with asyncio.Runner() as runner:
        made = _make_store(request)
        runner.run(made.open())
        yield runner, made
        runner.run(made.cursors.close())


@pytest.fixture(params=ENGINES[1:])
def shared_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("model_url" if request.param == "model" else "postgres_url"))


@pytest.fixture
async def nodes(shared_url: str) -> AsyncIterator[list[PostgresCursors]]:
    """Two stores on one database, with a cursor that both have seen."""
    stores = [await PostgresCursors.open(shared_url) for _ in range(2)]
    await stores[0].create(SUB, TOPIC, 0)
    for each in stores:
        await each.position(SUB, TOPIC)
    yield stores
    for each in stores:
        await each.close()


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator["postgresql.Connection"]:
    connection = await postgresql.connect(postgresql.conninfo(postgres_url))
    yield connection
    await connection.close()


@pytest.fixture
def steady_nodes(shared_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SteadyNodes]:
    """Two stores on one database for many examples, with their loop and clock. They write images often."""
    monkeypatch.setattr(entries, "MAX_DELTAS", 4)
    clock = ManualClock()
    with asyncio.Runner() as runner:
        stores = [runner.run(PostgresCursors.open(shared_url, time=StandingTime(clock))) for _ in range(2)]
        yield runner, clock, stores
        for store in stores:
            runner.run(store.close())
