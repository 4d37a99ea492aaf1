"""The stores that keep the promises of `ams.storage.cursors`; a second engine adds a parameter."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ams.core.clock import ManualClock
from ams.core.names import Offset
from ams.storage.cursors import entries
from ams.storage.cursors.acks import CursorStore
from ams.storage.cursors.postgresql import PostgresCursors
from ams.storage.cursors.sqlite import SqliteCursors
from tests.storage.cursors.clocks import StandingTime
from tests.storage.cursors.stores import END, SUB, TOPIC, Store

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
    await made.cursors.create(SUB, TOPIC, Offset(0))
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
