import contextlib
import errno
import os
import random

import pytest

from ams.storage.files import Disk, write_whole
from simulation.unreliable_disk import UnreliableDisk


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "file")


@pytest.fixture
def handle(path):
    disk = Disk()
    handle = disk.open(path, create=True)
    yield handle
    disk.close(handle)


def test_what_is_written_is_read(handle) -> None:
    disk = Disk()
    disk.write(handle, b"hello world", 0)
    disk.write_through(handle, [b"th", b"", b"ere"], 6)

    assert (disk.read(handle, 100, 0), disk.read(handle, 5, 6)) == (b"hello there", b"there")
    assert (disk.read(handle, 5, 100), disk.size(handle)) == (b"", 11)


def test_what_is_in_memory_is_read_at_once_and_only_as_a_whole(handle) -> None:
    disk = Disk()
    disk.write(handle, b"hello", 0)
    assert disk.read_now(handle, 5, 0) in (b"hello", None)  # not every file system can say
    assert disk.read_now(handle, 6, 0) is None


def fail_with(code):
    def fail(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    return fail


def writes_three_bytes(file, data, *rest, whole=os.pwritev):
    return whole(file, [b"".join(data)[:3]], *rest)


@pytest.mark.parametrize(
    "pwritev", [fail_with(errno.EOPNOTSUPP), writes_three_bytes], ids=["no write-through", "a short one"]
)
def test_what_a_write_through_leaves_is_written_and_synced(handle, monkeypatch, pwritev) -> None:
    monkeypatch.setattr(os, "pwritev", pwritev)
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)

    Disk().write_through(handle, [b"he", b"llo"], 0)

    assert Disk().read(handle, 5, 0) == b"hello"
    assert synced == [handle]


@pytest.mark.parametrize(("pwritev", "pwrite", "told"), [
    (fail_with(errno.EIO), os.pwrite, "Input/output error"),
    (writes_three_bytes, fail_with(errno.ENOSPC), "No space left on device"),
], ids=["at once", "after a part"])  # fmt: skip
def test_an_error_of_a_write_through_is_told(handle, monkeypatch, pwritev, pwrite, told) -> None:
    monkeypatch.setattr(os, "pwritev", pwritev)
    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(OSError, match=told):
        Disk().write_through(handle, [b"he", b"llo"], 0)


@pytest.mark.parametrize("number", [1, 1023, 1024, 1025, 5000])
def test_any_number_of_parts_is_written_through_by_one_call(handle, number, monkeypatch) -> None:
    whole, calls = os.pwritev, []
    monkeypatch.setattr(os, "pwritev", lambda *given: calls.append(given[3]) or whole(*given))
    parts = [b"%d," % each for each in range(number)]

    Disk().write_through(handle, parts, 3)

    assert Disk().read(handle, 100_000, 3) == b"".join(parts)
    assert calls == [os.RWF_DSYNC]


def test_a_new_file_is_for_its_owner_and_never_replaces_another(handle, path) -> None:
    assert os.stat(path).st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        Disk().open(path, create=True)


def test_files_are_cut_reserved_renamed_and_removed(handle, path, tmp_path) -> None:
    disk = Disk()
    disk.allocate(handle, 10_000)
    assert disk.size(handle) == 10_000
    disk.truncate(handle, 10)
    disk.sync(handle)
    assert disk.used_bytes(str(tmp_path)) == 10

    disk.rename(path, path + "2")
    disk.sync_folder(str(tmp_path))
    assert disk.names(str(tmp_path)) == ["file2"]
    assert disk.exists(path + "2")
    disk.unlink(path + "2")
    disk.unlink(path + "2")
    assert not disk.exists(path + "2")


def test_folders_are_made_once_with_their_parents_for_the_owner_only_and_measured_with_all_below(tmp_path) -> None:
    disk, folder = Disk(), str(tmp_path / "a" / "b")
    disk.make_folder(folder)
    disk.make_folder(folder)
    handle = disk.open(os.path.join(folder, "file"), create=True)
    disk.write(handle, bytes(100), 0)
    disk.close(handle)

    assert {os.stat(tmp_path / each).st_mode & 0o777 for each in ("a", "a/b")} == {0o700}
    assert disk.used_bytes(str(tmp_path)) == 100
    assert disk.free_bytes(folder) > 0


def test_a_file_is_written_whole_for_the_owner_only(path) -> None:
    Disk().close(Disk().open(path + ".new", create=True))
    write_whole(Disk(), path, b"first")
    write_whole(Disk(), path, b"second")

    with open(path, "rb") as file:
        assert file.read() == b"second"
    assert (os.stat(path).st_mode & 0o777, os.listdir(os.path.dirname(path))) == (0o600, ["file"])


def test_power_loss_leaves_the_old_file_or_the_new_one() -> None:
    for stop in range(20):
        disk = UnreliableDisk()
        write_whole(disk, "/file", b"old")
        disk.stop_at = disk.changes + stop
        with contextlib.suppress(OSError):
            write_whole(disk, "/file", b"new")
        disk.stop_at = None
        disk.power_loss(random.Random(stop))

        assert disk.read(disk.open("/file"), 10, 0) in (b"old", b"new")


def test_the_disk_in_memory_keeps_no_more_than_what_was_synced() -> None:
    """All power losses of the log are tested on it."""
    found = set()
    for seed in range(30):
        disk = UnreliableDisk()
        handle = disk.open("/file", create=True)
        disk.sync_folder("/")
        disk.write(handle, b"a" * 100, 0)
        disk.sync(handle)
        disk.during_sync = lambda disk=disk, handle=handle: disk.write(handle, b"during", 100)
        disk.sync(handle)
        disk.during_sync = None
        disk.changes = seed  # what a failed sync loses depends on it
        disk.write(handle, b"b" * 600, 106)
        disk.fail("sync")
        with pytest.raises(OSError, match="Input/output error"):
            disk.sync(handle)
        disk.sync(handle)  # makes up for nothing
        disk.write_through(handle, [b"c", b"c"], 2000)
        disk.power_loss(random.Random(seed))
        found.add(disk.content("/file"))

    assert ({each[:100] for each in found}, {each[2000:] for each in found}) == ({b"a" * 100}, {b"cc"})
    assert len({each[100:2000] for each in found}) > 3
