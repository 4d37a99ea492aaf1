import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ams.workers import Pool


@pytest.fixture(autouse=True)
def _jobs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    here = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    made = Pool(2)
    yield made
    await made.close()
