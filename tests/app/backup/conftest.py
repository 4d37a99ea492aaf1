from pathlib import Path

import pytest

from tests.support.house import open_house


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    """Make a data folder with 20 messages that no service runs on."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "ams-data").write_text("1\n")
    (folder / "token.key").write_text("0" * 64)
    (folder / "admin.token").write_text("1" * 64)
    async with open_house(folder) as house:
        await house.publish(20)
    return folder
