from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ams.core.parallel_options import ParallelOptions
from tests.service.parallel.site import ParallelSite
from tests.support.engines import open_engines


@pytest.fixture
async def site(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[ParallelSite]:
    options = getattr(request, "param", ParallelOptions())
    async with open_engines(tmp_path) as engines:
        yield await ParallelSite(engines, options).prepare()
