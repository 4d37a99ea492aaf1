import asyncio
import shutil
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from simulation.models.postgresql import Server
from simulation.models.postgresql_driver import DirectHost, install
from tests.support.administration import ENGINES, open_registry_at, url_of

MODEL = "postgresql://ams@model/ams"


@pytest.fixture
def model_url(tmp_path: Path) -> Iterator[str]:
    with install({"model": DirectHost(_server(tmp_path))}):
        yield MODEL


@pytest.fixture(params=[*ENGINES, "model"])
def registry_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param != "model":
        return url_of(request.param, tmp_path)
    shutil.copy(Path(_made_once().name) / "ams.db", tmp_path)
    return str(request.getfixturevalue("model_url"))


def _server(folder: Path) -> Server:
    return Server(str(folder), lambda: time.time_ns() // 1_000_000)


@cache
def _made_once() -> TemporaryDirectory[str]:
    """Return a folder with an empty database that has the tables of a registry."""
    folder = TemporaryDirectory()

    async def make() -> None:
        async with open_registry_at(MODEL):
            pass

    with install({"model": DirectHost(_server(Path(folder.name)))}):
        asyncio.run(make())
    return folder
