from collections.abc import AsyncIterator

import pytest

from tests.storage.log.engines import Embedded


@pytest.fixture
async def engine() -> AsyncIterator[Embedded]:
    """A storage whose logs are closed at the end of the test."""
    engine = Embedded()
    yield engine
    for log in engine.logs:
        await log.close()
