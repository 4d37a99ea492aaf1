"""The stores that keep the promises of `ams.storage.cursors`; a second engine adds a parameter."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ams.core.clock import ManualClock
from ams.storage import postgresql
from ams.storage.cursors import entries
from ams.storage.cursors.acks import CursorStore
from ams.storage.cursors.postgresql import PostgresCursors
from ams.storage.cursors.sqlite import SqliteCursors
from tests.storage.cursors.stores import END, SUB, TOPIC, StandingTime, SteadyNodes, Store

ENGINES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]


def _store(request: pytest.FixtureRequest, folder: Path) -> Store:
    async def sqlite(clock: ManualClock) -> CursorStore:
        return await SqliteCursors.open(str(folder / "cursors.db"), ends={TOPIC: END}, clock=clock)

    async def postgresql(clock: ManualClock) -> CursorStore:
        return await PostgresCursors.open(request.getfixturevalue("postgres_url"), time=StandingTime(clock))

    return Store({"sqlite": sqlite, "postgresql": postgresql}[request.param])


@pytest.fixture(params=ENGINES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made = _store(request, tmp_path)
    await made.open()
    await made.cursors.create(SUB, TOPIC, 0)
    yield made
    await made.cursors.close()


@pytest.fixture(params=ENGINES)
def steady_store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[asyncio.Runner, Store]]:
    """A store for many examples of Hypothesis, and the loop it lives in. It writes images often."""
    monkeypatch.setattr(entries, "MAX_DELTAS", 4)
    with asyncio.Runner() as runner:
        made = _store(request, tmp_path)
        runner.run(made.open())
        yield runner, made
        runner.run(made.cursors.close())


@pytest.fixture
async def nodes(postgres_url: str) -> AsyncIterator[list[PostgresCursors]]:
    """Two stores on one database, with a cursor both have seen."""
    stores = [await PostgresCursors.open(postgres_url) for _ in range(2)]
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
def steady_nodes(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SteadyNodes]:
    """Two stores on one database for many examples, and their loop and clock. They write images often."""
    monkeypatch.setattr(entries, "MAX_DELTAS", 4)
    clock = ManualClock()
    with asyncio.Runner() as runner:
        stores = [runner.run(PostgresCursors.open(postgres_url, time=StandingTime(clock))) for _ in range(2)]
        yield runner, clock, stores
        for store in stores:
            runner.run(store.close())
