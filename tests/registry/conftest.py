from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ams.clock import ManualClock
from ams.registry.registry import Registry
from tests.support.administration import open_registry


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def registry(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Registry]:
    async with open_registry(tmp_path, clock) as opened:
        yield opened
