from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ams.storage.registry.registry import Registry
from tests.support.administration import open_registry


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Registry]:
    async with open_registry(tmp_path) as opened:
        yield opened
