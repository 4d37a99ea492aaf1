import json
from pathlib import Path

import pytest

from ams.app.wiring import service
from ams.core.settings import Bytes, Settings
from ams.core.supervisor import Supervisor
from tests.cli.conftest import Ams


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    settings = Settings(data=str(tmp_path / "data"), min_free_bytes=Bytes(0), reserve_bytes=Bytes(0))
    async with service(settings, Supervisor()):
        return tmp_path / "data"


def test_a_rotation_says_where_the_key_is_and_what_old_backups_need(ams: Ams, data: Path) -> None:
    ran = ams("admin", "rotate-key", "--data", str(data))

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == (
        "Encrypted anew: 2 tokens; they stay valid.\n"
        f"The new key is in {data}/token.key. Backups taken before need the old key.\n"
    )


def test_programs_are_answered_in_json(ams: Ams, data: Path) -> None:
    ran = ams("admin", "rotate-key", "-o", "json", AMS_DATA=str(data))

    assert json.loads(ran.stdout) == {"tokens": 2, "file": f"{data}/token.key"}


def test_a_key_of_the_operators_own_is_not_guessed_at(ams: Ams, data: Path) -> None:
    ran = ams("admin", "rotate-key", "--data", str(data), AMS_TOKEN_KEY="ab" * 32)

    assert ran.returncode == 2
    assert ran.stderr == (
        "ams: AMS_TOKEN_KEY is set, so the key is yours to keep: give the new one as AMS_NEW_TOKEN_KEY\n"
    )
