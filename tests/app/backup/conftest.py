import asyncio
import shutil
from pathlib import Path

import pytest

from tests.support.use_cases import open_use_cases


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with 20 messages that no service runs on."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "ams-data").write_text("1\n")
    (folder / "token.key").write_text("0" * 64)
    (folder / "admin.token").write_text("1" * 64)

    async def publish() -> None:
        async with open_use_cases(folder) as use_cases:
            await use_cases.publish(20)

    asyncio.run(publish())
    return folder


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "data")
