from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ams.access.admission import Caller
from tests.support.administration import make_project
from tests.support.engines import Engines, open_engines


@pytest.fixture
async def engines(tmp_path: Path) -> AsyncIterator[Engines]:
    async with open_engines(tmp_path) as opened:
        await make_project(opened.registry)
        yield opened


@pytest.fixture
async def caller(engines: Engines) -> Caller:
    return await engines.caller()
