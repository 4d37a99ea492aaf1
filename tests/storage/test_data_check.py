import asyncio
import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from ams.core.supervisor import Supervisor
from ams.storage import data_check
from ams.storage.data_check import DataCheck


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    with contextlib.closing(sqlite3.connect(made / "registry.db")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE users (name TEXT)")
    return made


@pytest.fixture(autouse=True)
def waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_check, "BUSY_SECONDS", 0.01)
    monkeypatch.setattr(data_check, "LOCKED_SECONDS", 0)


@contextlib.contextmanager
def locked(database: Path) -> Iterator[None]:
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


def check_of(folder: Path) -> DataCheck:
    return DataCheck([str(folder)], [str(folder / "registry.db")])


def trouble(check: DataCheck) -> str | None:
    check.look()
    return check.trouble


def test_a_folder_that_is_as_it_was_is_no_trouble(folder: Path) -> None:
    assert trouble(check_of(folder)) is None


def test_a_locked_database_is_one_until_it_is_let_go(folder: Path) -> None:
    check = check_of(folder)

    with locked(folder / "registry.db"):
        assert trouble(check) == f"{folder}/registry.db is locked by another process"

    assert trouble(check) is None


def test_but_not_one_that_is_locked_for_a_moment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_check, "LOCKED_SECONDS", 60)

    with locked(folder / "registry.db"):
        assert trouble(check_of(folder)) is None


def test_a_folder_that_is_gone_is_a_trouble(folder: Path) -> None:
    check = check_of(folder)

    shutil.rmtree(folder)

    assert trouble(check) == f"{folder}: No such file or directory"


def test_so_is_another_one_in_its_place(folder: Path) -> None:
    check = check_of(folder)

    folder.rename(folder.parent / "before")
    shutil.copytree(folder.parent / "before", folder)

    assert trouble(check) == f"{folder} was replaced while it was in use"


def test_so_is_a_database_without_its_file_and_none_is_made(folder: Path) -> None:
    check = check_of(folder)

    (folder / "registry.db").unlink()

    assert trouble(check) == f"{folder}/registry.db: No such file or directory"
    assert not (folder / "registry.db").exists()


def test_and_one_that_is_no_database_any_more(folder: Path) -> None:
    check = check_of(folder)

    (folder / "registry.db").write_bytes(b"x" * 4096)

    assert trouble(check) == f"{folder}/registry.db: file is not a database"


def test_a_look_that_does_not_return_is_a_trouble(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = check_of(folder)

    monkeypatch.setattr(data_check, "SILENT_SECONDS", 0)

    assert check.trouble == "the data folder does not answer"


async def test_while_it_runs_it_looks_by_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_check, "LOOK_SECONDS", 0.01)
    check, watched = check_of(folder), Supervisor()

    async with asyncio.timeout(30), check.running(watched):
        with locked(folder / "registry.db"):
            while check.trouble is None:
                await asyncio.sleep(0.01)
        while check.trouble is not None:
            await asyncio.sleep(0.01)

    assert watched.failure is None
