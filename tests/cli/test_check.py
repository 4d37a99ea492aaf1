import json
from pathlib import Path

import pytest

from ams.storage.folder import Folder
from tests.cli.conftest import exit_code_of
from tests.support.house import open_house


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    (tmp_path / "ams-data").write_text("1\n")
    async with open_house(tmp_path) as house:
        await house.publish(20)
    return tmp_path


def checked(folder: Path, *flags: str) -> int:
    return exit_code_of(["check", str(folder), *flags])


async def test_a_sound_folder_is_counted_and_ends_with_0(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(folder, "-o", "json") == 0

    report = json.loads(capsys.readouterr().out)
    assert (report["messages"], report["topics"], report["problems"]) == (20, 1, [])


async def test_damage_is_named_with_file_and_position_and_ends_with_1(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (segment,) = (folder / "log").glob("*/*.log")
    data = bytearray(segment.read_bytes())
    at = data.index(b'"n":"7"')
    data[at + 6] ^= 1
    segment.write_bytes(data)

    assert checked(folder) == 1
    assert f"damaged    {segment} at " in capsys.readouterr().out


async def test_a_damaged_database_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "cursors.db").write_bytes(b"no database at all" * 100)

    assert checked(folder) == 1
    assert "cursors.db: file is not a database" in capsys.readouterr().out


def test_a_foreign_folder_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(tmp_path) == 1
    assert capsys.readouterr().err == f"ams: {tmp_path} is not a data folder\n"


def test_a_folder_of_a_node_that_keeps_nothing_here_is_told_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Folder.take(str(tmp_path)).release()

    assert checked(tmp_path) == 1
    assert "holds keys only: what its service keeps is in Kafka and PostgreSQL" in capsys.readouterr().err


async def test_a_folder_in_use_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken = Folder.take(str(folder))
    try:
        assert checked(folder) == 1
    finally:
        taken.release()
    assert "is in use" in capsys.readouterr().err
