from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ams.core.clock import ManualClock
from ams.storage.database.database import sqlite_url
from ams.storage.registry.registry import Registry
from tests.support.administration import KEY, open_registry_at

ENGINES = ("sqlite", pytest.param("postgresql", marks=pytest.mark.postgres))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty registry, on each engine."""
    if request.param == "sqlite":
        return sqlite_url(str(tmp_path / "registry.db"))
    from tests.support.databases import empty_registry  # it needs the driver

    return empty_registry(KEY)


@pytest.fixture
async def registry(url: str, clock: ManualClock) -> AsyncIterator[Registry]:
    async with open_registry_at(url, clock) as opened:
        yield opened
