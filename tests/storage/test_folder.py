import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ams.core.errors import Unusable
from ams.storage.files import Disk
from ams.storage.folder import Folder, is_in_use, is_ours
from tests.support.service import live_service


def test_a_new_folder_is_made_for_the_owner_only(tmp_path: Path) -> None:
    folder = Folder.take(str(tmp_path / "data"))

    assert os.stat(folder.path).st_mode & 0o777 == 0o700
    assert is_ours(folder.path)
    folder.release()


def test_the_name_of_a_new_folder_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(Disk, "sync_folder", lambda _, path: synced.append(path))

    Folder.take(str(tmp_path / "data")).release()

    assert synced[0] == str(tmp_path)


def test_a_folder_in_use_is_refused_with_the_way_out(tmp_path: Path) -> None:
    folder = Folder.take(str(tmp_path / "data"))

    with pytest.raises(Unusable, match="in use by another process; stop it or choose another with --data"):
        Folder.take(str(tmp_path / "data"))
    folder.release()
    Folder.take(str(tmp_path / "data")).release()


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")

    with pytest.raises(Unusable, match=r"holds other files \(letters.txt"):
        Folder.take(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["letters.txt"]


def test_a_folder_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ams-data").write_text("99\n")

    with pytest.raises(Unusable, match="upgrade"):
        Folder.take(str(tmp_path))


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")

    with pytest.raises(Unusable, match="choose another with --data"):
        Folder.take(str(tmp_path / "data"))


def test_a_first_start_that_was_cut_short_does_not_make_the_folder_foreign(tmp_path: Path) -> None:
    (tmp_path / "ams-data.new").write_text("")
    (tmp_path / "lock").write_text("")

    Folder.take(str(tmp_path)).release()

    assert is_ours(str(tmp_path))


@pytest.mark.parametrize("left", ["lock removed", "lock replaced", "folder renamed"])
def test_a_folder_is_in_use_whatever_becomes_of_its_lock_file(tmp_path: Path, left: str) -> None:
    data = tmp_path / "data"
    folder = Folder.take(str(data))
    if left == "folder renamed":
        data = data.rename(tmp_path / "renamed")
    else:
        (data / "lock").unlink()
    if left == "lock replaced":
        (data / "lock").write_text("")

    assert is_in_use(str(data))
    with pytest.raises(Unusable, match="in use by another process"):
        Folder.take(str(data))
    folder.release()
    assert not is_in_use(str(data))
    Folder.take(str(data)).release()


@pytest.mark.acceptance
@pytest.mark.long
def test_a_second_service_does_not_start_though_the_lock_file_was_removed(tmp_path: Path) -> None:
    """Both would give the same ids, and each write over the messages of the other."""
    with live_service(tmp_path / "data") as live:
        (live.data / "lock").unlink()
        command = [sys.executable, "-m", "ams.cli.main", "serve", "--data", str(live.data), "--port", "0"]

        second = subprocess.run([*command, "--ops-port", "0"], capture_output=True, text=True, timeout=60)

        assert second.returncode != 0
        assert "in use by another process" in second.stderr
        assert "ready" not in second.stdout


def test_where_a_folder_cannot_be_locked_its_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS locks only what is open for writing, and that a folder never is."""
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
