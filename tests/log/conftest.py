"""A log of every engine in turn, for whatever all of them promise."""

import pytest

from tests.log.engines import ENGINES, Engine


@pytest.fixture(params=list(ENGINES))
def engine(request):
    return ENGINES[request.param]()


@pytest.fixture
async def log(engine: Engine):
    async with engine.opened() as log:
        yield log
