from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ams.access.admission import Caller
from tests.support.administration import make_project
from tests.support.engines import Engines, open_engines


@pytest.fixture
async def engines(tmp_path: Path) -> AsyncIterator[Engines]:
    """The engines of the embedded shape, with project `P` on them."""
    async with open_engines(tmp_path) as opened:
        await make_project(opened.registry)
        yield opened


@pytest.fixture
async def caller(engines: Engines) -> Caller:
    """Somebody who may do everything in that project."""
    return await engines.caller()
