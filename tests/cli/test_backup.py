import json
from pathlib import Path

import pytest

from tests.cli.conftest import Ams
from tests.support.house import open_house


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "ams-data").write_text("1\n")
    (folder / "token.key").write_text("0" * 64)
    async with open_house(folder) as house:
        await house.publish(20)
    return folder


def test_a_backup_says_what_it_shows_and_that_the_key_is_in_it(ams: Ams, data: Path, tmp_path: Path) -> None:
    ran = ams("backup", str(tmp_path / "b"), "--data", str(data))

    assert ran.returncode == 0, ran.stderr
    first, second = ran.stdout.splitlines()
    assert first.startswith(f"{tmp_path}/b shows 20")
    assert second == "It holds the token key: whoever has it can read all tokens."


def test_a_backup_without_the_key_says_so_and_so_does_its_restore(ams: Ams, data: Path, tmp_path: Path) -> None:
    taken = ams("backup", str(tmp_path / "b"), "--without-key", AMS_DATA=str(data))
    restored = ams("restore", str(tmp_path / "b"), "--data", str(tmp_path / "new"))

    assert taken.stdout.splitlines()[1].startswith("The token key is not in it: keep the key apart")
    assert restored.stdout.splitlines()[1].startswith("The token key is not in it: put token.key there or set AMS_")


def test_programs_are_answered_in_json(ams: Ams, data: Path, tmp_path: Path) -> None:
    taken = json.loads(ams("backup", str(tmp_path / "b"), "--data", str(data), "-o", "json").stdout)
    restored = json.loads(ams("restore", str(tmp_path / "b"), "--data", str(tmp_path / "new"), "-o", "json").stdout)

    assert taken.keys() == {"folder", "taken", "files", "bytes", "token_key"}
    assert taken | {"folder": str(tmp_path / "new")} == restored


def test_a_refusal_is_one_line_and_exit_code_1(ams: Ams, data: Path, tmp_path: Path) -> None:
    ran = ams("backup", str(data / "b"), "--data", str(data))

    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == f"ams: {data}/b is within the data folder; choose a folder elsewhere\n"


def test_damage_in_what_was_backed_up_is_told_by_the_restore(ams: Ams, data: Path, tmp_path: Path) -> None:
    (segment,) = (data / "log").glob("*/*.log")
    content = bytearray(segment.read_bytes())
    content[content.index(b'"n":"7"') + 6] ^= 1
    segment.write_bytes(content)
    ams("backup", str(tmp_path / "b"), "--data", str(data))

    ran = ams("restore", str(tmp_path / "b"), "--data", str(tmp_path / "new"))

    assert ran.returncode == 1
    assert "was restored, but what was backed up was damaged already" in ran.stderr


def test_a_restore_names_its_folder(ams: Ams, tmp_path: Path) -> None:
    assert ams("restore", str(tmp_path / "b")).returncode == 2
