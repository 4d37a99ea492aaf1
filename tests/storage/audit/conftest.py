from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ams.core.clock import ManualClock
from ams.storage.audit.records import AuditRecords
from ams.storage.database.database import sqlite_url
from ams.storage.registry.registry import Registry
from tests.storage.registry.conftest import ENGINES
from tests.support.administration import KEY, open_registry_at


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=ENGINES)
async def registry(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Registry]:
    """A registry on each engine, as it is what keeps the table."""
    if request.param == "sqlite":
        url = sqlite_url(str(tmp_path / "registry.db"))
    else:
        from tests.support.databases import empty_registry  # it needs the driver

        url = empty_registry(KEY)
    async with open_registry_at(url, clock) as opened:
        yield opened


@pytest.fixture
def records(registry: Registry) -> AuditRecords:
    return registry.audit
