import asyncio
from collections.abc import Iterator

import pytest

from tests.support.pools import CountedPool, ready_pool


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """An event loop for tests that Hypothesis calls many times."""
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def pool(runner: asyncio.Runner) -> Iterator[CountedPool]:
    """A pool that is ready, in the loop of `runner`."""
    made = runner.run(ready_pool())
    yield made
    runner.run(made.close())
