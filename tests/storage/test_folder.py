import contextlib
import errno
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from ams.core.errors import Unusable
from ams.core.supervisor import Supervisor
from ams.storage import folder as data_folder
from ams.storage.files import Disk
from ams.storage.folder import DataCheck, Folder, is_in_use, is_ours
from tests.support.held_disk import lock_database
from tests.support.waiting import wait_until_async


def test_a_new_folder_is_for_its_owner_and_its_name_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(Disk, "sync_folder", lambda _, path: synced.append(path))

    folder = Folder.take(str(tmp_path / "data"))

    assert os.stat(folder.path).st_mode & 0o777 == 0o700
    assert is_ours(folder.path)
    assert synced[0] == str(tmp_path)
    folder.release()


@pytest.mark.parametrize(("name", "content", "error"), [
    ("data/letters.txt", "dear", r"holds other files \(letters.txt"), ("data/ams-data", "99\n", "upgrade"),
    ("data", "", "choose another with --data"),
])  # fmt: skip
def test_a_folder_not_ours_is_refused_and_left_alone(tmp_path: Path, name: str, content: str, error: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content)
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(Unusable, match=error):
        Folder.take(str(tmp_path / "data"))
    if name == "data/letters.txt":
        assert sorted(tmp_path.rglob("*")) == before


def test_a_first_start_that_was_cut_short_does_not_make_the_folder_foreign(tmp_path: Path) -> None:
    (tmp_path / "ams-data.new").write_text("")
    (tmp_path / "lock").write_text("")
    Folder.take(str(tmp_path)).release()
    assert is_ours(str(tmp_path))


@pytest.mark.parametrize("left", ["all as it was", "lock removed", "lock replaced", "folder renamed"])
def test_a_folder_is_in_use_whatever_becomes_of_its_lock_file(tmp_path: Path, left: str) -> None:
    data = tmp_path / "data"
    folder = Folder.take(str(data))
    if left == "folder renamed":
        data = data.rename(tmp_path / "renamed")
    elif left != "all as it was":
        (data / "lock").unlink()
    if left == "lock replaced":
        (data / "lock").write_text("")

    assert is_in_use(str(data))
    with pytest.raises(Unusable, match="in use by another process; stop it or choose another with --data"):
        Folder.take(str(data))
    folder.release()
    assert not is_in_use(str(data))
    Folder.take(str(data)).release()


def test_where_a_folder_cannot_be_locked_its_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS locks only files open for writing, which a folder never is."""
    lock = fcntl.flock

    def only_files(handle: int, operation: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            raise OSError(errno.EBADF, "Bad file descriptor")
        lock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", only_files)
    folder = Folder.take(str(tmp_path / "data"))

    assert is_in_use(folder.path)
    with pytest.raises(Unusable, match="in use by another process"):
        Folder.take(folder.path)
    folder.release()
    assert not is_in_use(folder.path)


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
    monkeypatch.setattr(data_folder, "BUSY_SECONDS", 0.01)
    monkeypatch.setattr(data_folder, "LOCKED_SECONDS", 0)


def check_of(folder: Path) -> DataCheck:
    return DataCheck([str(folder)], [str(folder / "registry.db")])


def find_trouble(check: DataCheck) -> str | None:
    check.look()
    return check.trouble


def test_a_locked_database_is_a_trouble_until_it_is_let_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = check_of(folder)
    assert find_trouble(check) is None

    with lock_database(folder / "registry.db"):
        assert find_trouble(check) == f"{folder}/registry.db is locked by another process"
    assert find_trouble(check) is None

    monkeypatch.setattr(data_folder, "LOCKED_SECONDS", 60)
    with lock_database(folder / "registry.db"):
        assert find_trouble(check) is None, "it is locked for a moment only"


def move_aside(folder: Path) -> None:
    folder.rename(folder.parent / "before")
    shutil.copytree(folder.parent / "before", folder)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (shutil.rmtree, ": No such file or directory"), (move_aside, " was replaced while it was in use"),
        (lambda folder: (folder / "registry.db").unlink(), "/registry.db: No such file or directory"),
        (lambda folder: (folder / "registry.db").write_bytes(b"x" * 4096), "/registry.db: file is not a database"),
    ],
    ids=["a folder that is gone", "another one in its place", "a database without its file", "no database any more"],
)  # fmt: skip
def test_what_is_not_as_it_was_is_a_trouble(folder: Path, harm: Callable[[Path], object], said: str) -> None:
    check = check_of(folder)

    harm(folder)

    files = sorted(folder.rglob("*"))
    assert find_trouble(check) == f"{folder}{said}"
    assert sorted(folder.rglob("*")) == files, "no file is made"


def test_a_file_that_is_missing_is_a_trouble_unless_it_is_just_being_removed(folder: Path) -> None:
    segment = folder / "1.log"
    named = [str(segment)]
    check = DataCheck([str(folder)], [], lambda: named)
    segment.touch()
    assert find_trouble(check) is None
    segment.unlink()
    assert find_trouble(check) is None, "it may be named no more at the next look"
    assert find_trouble(check) == f"{segment}: No such file or directory"
    named.clear()
    assert find_trouble(check) is None


def test_a_look_that_does_not_return_is_a_trouble(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = check_of(folder)
    monkeypatch.setattr(data_folder, "SILENT_SECONDS", 0)
    assert check.trouble == "the data folder does not answer"


async def test_while_it_runs_it_looks_by_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_folder, "LOOK_SECONDS", 0.01)
    check, watched = check_of(folder), Supervisor()

    async with check.running(watched):
        with lock_database(folder / "registry.db"):
            await wait_until_async(lambda: check.trouble)
        await wait_until_async(lambda: check.trouble is None)

    assert watched.failure is None
