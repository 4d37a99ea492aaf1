"""A log of every engine in turn, for whatever all of them promise."""

import pytest

from tests.storage.log.engines import ENGINES, Engine


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def engine(request):
    return ENGINES[request.param]()


@pytest.fixture
async def log(engine: Engine):
    async with engine.opened() as log:
        yield log
