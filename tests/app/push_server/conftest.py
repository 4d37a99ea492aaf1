from collections.abc import AsyncIterator

import pytest

from tests.support.reference_ams import ReferenceAms, reference_ams


@pytest.fixture
async def reference() -> AsyncIterator[ReferenceAms]:
    async with reference_ams() as running:
        yield running
