from pathlib import Path

import pytest

from tests.support.use_cases import open_use_cases


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    """Make a data folder with 20 messages that no service runs on."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "ams-data").write_text("1\n")
    (folder / "token.key").write_text("0" * 64)
    (folder / "admin.token").write_text("1" * 64)
    async with open_use_cases(folder) as use_cases:
        await use_cases.publish(20)
    return folder
