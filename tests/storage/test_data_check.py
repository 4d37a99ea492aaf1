import contextlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ams.core.supervisor import Supervisor
from ams.storage import data_check
from ams.storage.data_check import DataCheck
from tests.support.waiting import wait_until_async


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


def move_aside(folder: Path) -> None:
    folder.rename(folder.parent / "before")
    shutil.copytree(folder.parent / "before", folder)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (shutil.rmtree, ": No such file or directory"),
        (move_aside, " was replaced while it was in use"),
        (lambda folder: (folder / "registry.db").unlink(), "/registry.db: No such file or directory"),
        (lambda folder: (folder / "registry.db").write_bytes(b"x" * 4096), "/registry.db: file is not a database"),
    ],
    ids=["a folder that is gone", "another one in its place", "a database without its file", "no database any more"],
)
def test_what_is_not_as_it_was_is_a_trouble(folder: Path, harm: Callable[[Path], object], said: str) -> None:
    check = check_of(folder)

    harm(folder)

    files = sorted(folder.rglob("*"))
    assert trouble(check) == f"{folder}{said}"
    assert sorted(folder.rglob("*")) == files, "no file is made"


def test_a_file_that_is_missing_is_a_trouble_unless_it_is_just_being_removed(folder: Path) -> None:
    segment = folder / "1.log"
    named = [str(segment)]
    check = DataCheck([str(folder)], [], lambda: named)
    segment.touch()
    assert trouble(check) is None
    segment.unlink()
    assert trouble(check) is None, "it may be named no more at the next look"
    assert trouble(check) == f"{segment}: No such file or directory"
    named.clear()
    assert trouble(check) is None


def test_a_look_that_does_not_return_is_a_trouble(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = check_of(folder)

    monkeypatch.setattr(data_check, "SILENT_SECONDS", 0)

    assert check.trouble == "the data folder does not answer"


async def test_while_it_runs_it_looks_by_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_check, "LOOK_SECONDS", 0.01)
    check, watched = check_of(folder), Supervisor()

    async with check.running(watched):
        with locked(folder / "registry.db"):
            await wait_until_async(lambda: check.trouble)
        await wait_until_async(lambda: check.trouble is None)

    assert watched.failure is None
