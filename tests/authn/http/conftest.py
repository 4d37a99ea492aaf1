from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ams.database.database import sqlite_url
from tests.support.authn import KEY, Service, open_service

ENGINES = ("sqlite", pytest.param("postgresql", marks=pytest.mark.postgres))


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store, on each engine."""
    if request.param == "sqlite":
        return sqlite_url(str(tmp_path / "authn.db"))
    from tests.support.databases import empty_store  # it needs the driver

    return empty_store(KEY)


@pytest.fixture
async def service(url: str) -> AsyncIterator[Service]:
    """The service, on each engine."""
    async with open_service(url) as opened:
        yield opened


@pytest.fixture
async def quick(tmp_path: Path) -> AsyncIterator[Service]:
    """The service on SQLite, for what no database has a part in."""
    async with open_service(sqlite_url(str(tmp_path / "quick.db"))) as opened:
        yield opened
