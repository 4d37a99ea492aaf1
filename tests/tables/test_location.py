import fcntl
import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ams.tables import WrongTable
from ams.tables.location import Location
from tests.support.waiting import wait_until


def test_plain_paths_and_addresses_of_files_are_one() -> None:
    assert Location.of("/data/a b") == Location.of("file:/data/a%20b") == Location.of("file:///data/a%20b")
    assert Location.of("archive").root == os.path.abspath("archive")
    assert Location.of(Location.of("/data")).path("x") == "/data/x"


def test_other_file_systems_are_refused() -> None:
    with pytest.raises(WrongTable, match="tables lie in plain paths, file: and s3: addresses, not on hdfs:"):
        Location.of("hdfs://names.example/archive")


def test_a_percent_sequence_in_the_path_is_refused_since_delta_rs_decodes_it(tmp_path: Path) -> None:
    root = tmp_path / "per%20cent"
    root.mkdir()
    with pytest.raises(Exception, match="per cent"):
        DeltaTable.create(str(root), pa.schema([("n", pa.int64())]))

    with pytest.raises(WrongTable, match="takes what follows the % for a character"):
        Location.of(root)
    assert Location.of(tmp_path / "100%").root.endswith("100%")


def test_small_files_are_written_read_and_removed(tmp_path: Path) -> None:
    location = Location.of(tmp_path)
    location.make("a/b")

    location.write("a/b/c", b"text")

    assert (location.names("a/b"), location.size("a/b/c"), location.read("a/b/c")) == (["c"], 4, b"text")
    location.sync("a/b/c", "a/b", "a", "")
    location.remove("a/b/c")
    location.remove("a/b/c")
    with pytest.raises(FileNotFoundError):
        location.sync("a/b/c")
    assert location.names("a/b") == location.names("none") == []
    assert location.size("a/b/c") is location.size("a") is None


def test_folders_above_that_may_not_be_read_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def allowed_below(path: str) -> None:
        if not path.startswith(str(tmp_path)):
            raise PermissionError(path)
        seen.append(path)

    monkeypatch.setattr("ams.tables.location.sync", allowed_below)

    Location.of(tmp_path / "a" / "b").sync_above()

    assert seen == [str(tmp_path / "a"), str(tmp_path)]


def test_one_at_a_time_is_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    location = Location.of(tmp_path)
    location.make("_delta_log")
    order: list[str] = []
    is_waiting = threading.Event()
    flock = fcntl.flock

    def note_lock(file: object, operation: int) -> None:
        try:
            flock(file, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            is_waiting.set()
            flock(file, operation)

    def append_other() -> None:
        with location.alone():
            order.append("other")

    monkeypatch.setattr(fcntl, "flock", note_lock)
    with location.alone():
        thread = threading.Thread(target=append_other)
        thread.start()
        wait_until(lambda: order or is_waiting.is_set())
        order.append("first")
    thread.join()

    assert order == ["first", "other"]
