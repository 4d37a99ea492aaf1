import asyncio
from collections.abc import Iterator

import pytest

from tests.support.pools import CountedPool, ready_pool


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def pool(runner: asyncio.Runner) -> Iterator[CountedPool]:
    made = runner.run(ready_pool())
    yield made
    runner.run(made.close())
