"""A log of each engine in turn, for their common contract."""

import pytest

from ams.core.names import TopicId
from ams.storage.log.base import Log
from tests.storage.log.engines import ENGINES, Engine, new_topic


@pytest.fixture(params=["embedded", "model", pytest.param("kafka", marks=pytest.mark.kafka)])
def engine(request):
    return ENGINES[request.param]()


@pytest.fixture
async def log(engine: Engine):
    async with engine.open_log() as log:
        yield log


@pytest.fixture
async def topic(log: Log) -> TopicId:
    return await new_topic(log)
