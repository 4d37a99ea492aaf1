"""Tables of the format before: one that the version before wrote with Spark, and small ones written here."""

import itertools
import json
import math
import os
import shutil
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ams.tables import convert as conversion
from ams.tables import files
from ams.tables.convert import convert
from ams.tables.errors import WrongTable
from ams.tables.location import Location
from ams.tables.snapshot import open_table
from ams.tables.table import Table
from ams.tables.upkeep import check, history, vacuum
from tests.tables.losing import Lost, Machine

QUERY = "1f0c9a7e-5b1e-4f6e-9d3e-2c7a5d1b8e90"
ARCHIVE = Path(__file__).with_name("archive_of_before.zip")


def rows_in(root: Path | str) -> list[dict[str, Any]]:
    return [row for rows in open_table(str(root)).batches() for row in rows.to_pylist()]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Four batches with two topics, one day merged, a column that came later, a snapshot and commits after it."""
    with zipfile.ZipFile(ARCHIVE) as file:
        file.extractall(tmp_path)
    return tmp_path / "archive"


class Old:
    """Writes a small table of the format before."""

    def __init__(
        self, root: Path, columns: str = "struct<n:bigint,day:string>", by: tuple[str, ...] = ("day",)
    ) -> None:
        self.root, self.columns, self.by, self.number = root, columns, by, 0

    def commit(self, batch: int, rows: dict[str, pa.Table], place: str = "", **more: Any) -> None:
        """Write rows by partition; in `place` of `_work`, when they did not come to where they belong."""
        self.number += 1
        folders = []
        for partition, table in rows.items():
            name = f"merged-{self.number:012d}" if "merged" in more else f"batch-1f0c9a7e-{batch:06d}"
            path = f"{partition}/{name}".removeprefix("./")
            folder = self.root / (
                f"_work/w{self.number}/{place}".format(path=path, partition=partition) if place else path
            )
            folder.mkdir(parents=True)
            pq.write_table(table, folder / "part-00000.parquet")
            size = (folder / "part-00000.parquet").stat().st_size
            folders.append({"path": path, "batch": batch, "rows": table.num_rows, "files": 1, "bytes": size})
        (self.root / "_manifest").mkdir(exist_ok=True)
        commit = {
            "number": self.number,
            "query": QUERY,
            "batch": batch,
            "work": f"w{self.number}",
            "columns": self.columns,
        }
        path = self.root / f"_manifest/commit-{self.number:012d}.json"
        path.write_text(json.dumps({**commit, "partition_by": self.by, "folders": folders, **more}))
        return str(path)


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def test_an_archive_that_the_version_before_wrote_has_the_same_rows(archive: Path) -> None:
    expected = json.loads((archive.parent / "rows.json").read_text())

    done = convert(str(archive))

    found = [
        {
            **row,
            "date": row["date"].isoformat(),
            "publish_time": row["publish_time"].isoformat(),
            "attributes": dict(row["attributes"]),
            "data": list(row["data"]),
        }
        for row in rows_in(archive)
    ]
    wanted = [{"ordering_key": None, **row} for row in expected]
    in_order = sorted(found, key=lambda row: (row["topic"], row["offset"]))
    assert in_order == sorted(wanted, key=lambda row: (row["topic"], row["offset"]))
    assert found == sorted(found, key=lambda row: (row["topic"], row["date"], row["offset"]))  # in files as well
    assert (done.rows, done.batches, done.files) == (18, 6, 4)


def test_its_columns_query_and_batch_stay_so_that_the_run_goes_on(archive: Path) -> None:
    convert(str(archive))

    found = open_table(str(archive))

    assert found.schema.names == [
        *("project", "topic", "offset", "message_id", "publish_time", "attributes", "data", "ordering_key", "date")
    ]
    assert found.schema.field("publish_time").type == pa.timestamp("us", "UTC")
    assert found.partition_by == ("project", "topic", "date")
    assert (found.query, found.batch) == (QUERY, 3)
    strict = pa.schema([found.schema.field(name).with_nullable(False) for name in found.schema.names])
    table = Table(str(archive), strict, found.partition_by)
    assert not table.append(QUERY, 3, [])
    assert table.append(QUERY, 4, [])
    assert [each.what for each in history(str(archive))] == ["append", "convert", "create"]


def test_the_old_files_are_of_no_table_any_longer_and_vacuum_takes_them_when_they_are_old(archive: Path) -> None:
    convert(str(archive))

    left = check(str(archive)).unknown
    assert len(left) == 8
    for path in left:
        os.utime(archive / path, (0, 0))
    assert vacuum(str(archive), dry_run=False) == left

    assert (archive / "_manifest.converted").is_dir()
    assert len(rows_in(archive)) == 18
    with pytest.raises(WrongTable, match="is no table of the version before: it has no _manifest"):
        convert(str(archive))


def test_files_are_put_together_up_to_a_size(tmp_path: Path) -> None:
    old = Old(tmp_path)
    for batch in range(4):
        old.commit(batch, {"day=monday": numbers(batch)})
    size = (tmp_path / "day=monday/batch-1f0c9a7e-000000/part-00000.parquet").stat().st_size

    assert convert(str(tmp_path), file_bytes=2 * size).files == 2

    assert sorted(row["n"] for row in rows_in(tmp_path)) == [0, 1, 2, 3]
    assert {file.batch for file in open_table(str(tmp_path)).files} == {3}


def test_a_table_without_partitions_and_with_values_that_are_no_numbers(tmp_path: Path) -> None:
    old = Old(tmp_path, "struct<x:double,more:bigint>", ())
    old.commit(0, {".": pa.table({"x": [math.nan, 1.5, None]})})

    convert(str(tmp_path))

    assert repr(rows_in(tmp_path)) == repr(
        [{"x": math.nan, "more": None}, {"x": 1.5, "more": None}, {"x": None, "more": None}]
    )


def test_partitions_by_null_and_odd_texts(tmp_path: Path) -> None:
    old = Old(tmp_path)
    old.commit(0, {"day=__HIVE_DEFAULT_PARTITION__": numbers(1), "day=a%2Fb": numbers(2), "day=c d": numbers(3)})

    convert(str(tmp_path))

    assert Counter((row["n"], row["day"]) for row in rows_in(tmp_path)) == {(1, None): 1, (2, "a/b"): 1, (3, "c d"): 1}


@pytest.mark.parametrize("place", ["rows/{partition}", "new/{path}"])
def test_folders_of_a_last_commit_that_did_not_come_to_their_places_are_found(tmp_path: Path, place: str) -> None:
    old = Old(tmp_path)
    old.commit(0, {"day=monday": numbers(1)})
    if place.startswith("new"):
        shutil.rmtree(tmp_path / "day=monday")
        old.commit(0, {"day=monday": numbers(1)}, place, merged=["day=monday"])
    else:
        old.commit(1, {"day=tuesday": numbers(2)}, place)

    convert(str(tmp_path))

    assert [row["n"] for row in rows_in(tmp_path)] == ([1] if place.startswith("new") else [1, 2])


class Killed(Exception):
    """The process is no more."""


@contextmanager
def killed_at(module: Any, call: str) -> Iterator[None]:
    """Let a call be a kill in the block."""

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, call, killed)
        yield


@pytest.mark.parametrize(
    ("module", "call"), [(Table, "make"), (conversion, "commit"), (Location, "move"), (conversion, "write")]
)
def test_a_kill_at_any_step_is_made_good_by_calling_it_again(archive: Path, module: Any, call: str) -> None:
    with killed_at(module, call):
        with pytest.raises(Killed):
            convert(str(archive))
        with pytest.raises(WrongTable, match="`ams pipeline table convert` makes a Delta table of it"):
            open_table(str(archive))
        with pytest.raises(WrongTable, match="`ams pipeline table convert` makes"):
            Table(str(archive), pa.schema([("n", pa.int64())])).append(QUERY, 4, [])

    convert(str(archive))

    assert len(rows_in(archive)) == 18


def test_a_table_is_made_elsewhere_and_the_old_one_stays_as_it_is(archive: Path, anywhere: str) -> None:
    before = {path: path.read_bytes() for path in archive.rglob("*") if path.is_file()}

    done = convert(str(archive), target=anywhere)

    assert {path: path.read_bytes() for path in archive.rglob("*") if path.is_file()} == before
    found = open_table(anywhere)
    assert (done.rows, done.files, len(found.files), len(rows_in(anywhere))) == (18, 4, 4, 18)
    assert (found.query, found.batch) == (QUERY, 3)
    convert(str(archive))
    assert rows_in(archive) == rows_in(anywhere)
    assert Table(anywhere, found.schema, found.partition_by).append(QUERY, 4, [])


def test_a_place_that_holds_a_table_is_not_converted_to(archive: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    Old(tmp_path / "old").commit(0, {"day=monday": numbers(1)})
    convert(str(archive), target=str(other))

    for source in (tmp_path / "old", archive):
        with pytest.raises(WrongTable, match="other is a table already; nothing changed"):
            convert(str(source), target=str(other))
    with pytest.raises(WrongTable, match="archive is a table of an earlier version"):
        convert(str(tmp_path / "old"), target=str(archive))

    assert len(rows_in(other)) == 18
    assert [each.what for each in history(str(other))] == ["convert", "create"]


@pytest.mark.parametrize(("module", "call"), [(Table, "make"), (conversion, "commit"), (conversion, "write")])
def test_a_kill_while_it_is_made_elsewhere_is_made_good_by_calling_it_again(
    archive: Path, anywhere: str, module: Any, call: str
) -> None:
    with killed_at(module, call), pytest.raises(Killed):
        convert(str(archive), target=anywhere)

    convert(str(archive), target=anywhere)

    assert len(rows_in(anywhere)) == 18


@pytest.mark.parametrize("damage", ["gone", "empty", "first line"])
def test_power_lost_at_any_sync_is_made_good_by_calling_it_again(tmp_path: Path, damage: str) -> None:
    for syncs in itertools.count():
        folder = tmp_path / str(syncs)
        Old(folder / "table").commit(3, {"day=monday": numbers(1, 2), "day=tuesday": numbers(3)})
        machine = Machine(folder)
        machine.settle()
        try:
            with machine.running(syncs):
                convert(str(folder / "table"))
            break
        except Lost:
            machine.lose_power([damage])

        if (folder / "table" / "_manifest").exists():
            convert(str(folder / "table"))

        assert [row["n"] for row in rows_in(folder / "table")] == [1, 2, 3]
        assert open_table(str(folder / "table")).batch == 3
    machine.lose_power([damage])
    assert [row["n"] for row in rows_in(folder / "table")] == [1, 2, 3]
    assert syncs > 10


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda root, path: path.unlink(), "has 0 files instead of 1"),
        (lambda root, path: path.write_bytes(b"PAR1 no PAR1"), "cannot be read"),
        (lambda root, path: pq.write_table(numbers(1, 2), path), "does not hold the 1 rows its manifest says"),
        (lambda root, path: (root / "_manifest/commit-000000000001.json").write_text("{"), "is no manifest"),
        (lambda root, path: (root / "_manifest/commit-000000000001.json").write_text("[]"), "is no manifest"),
        (lambda root, path: (root / "_manifest/commit-000000000001.json").unlink(), "lacks commit 1"),
        (lambda root, path: shutil.rmtree(root / "_manifest"), "has no _manifest"),
    ],
)
def test_what_is_not_as_the_manifest_says_is_refused(tmp_path: Path, harm: Any, reason: str) -> None:
    old = Old(tmp_path)
    old.commit(0, {"day=monday": numbers(1)})
    old.commit(1, {})
    harm(tmp_path, tmp_path / "day=monday/batch-1f0c9a7e-000000/part-00000.parquet")

    with pytest.raises(WrongTable, match=reason):
        convert(str(tmp_path))

    assert not (tmp_path / "_delta_log").exists()


def test_rows_that_were_not_copied_alike_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Old(tmp_path).commit(0, {"day=monday": numbers(1, 2)})
    written = files.write

    def wrongly(location: Any, schema: Any, by: Any, name: str, rows: Any) -> Any:
        return written(location, schema, by, name, (batch.slice(1) for batch in rows))

    monkeypatch.setattr(conversion, "write", wrongly)

    with pytest.raises(WrongTable, match="was not copied row by row; nothing changed"):
        convert(str(tmp_path))


def test_a_table_that_is_written_to_meanwhile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = Old(tmp_path)
    old.commit(0, {"day=monday": numbers(1)})
    written = files.write

    def slowly(*arguments: Any) -> Any:
        old.commit(1, {"day=tuesday": numbers(2)})
        return written(*arguments)

    monkeypatch.setattr(conversion, "write", slowly)

    with pytest.raises(WrongTable, match="was written to meanwhile; nothing changed; stop the run"):
        convert(str(tmp_path))


def test_rows_are_compared_whatever_batches_they_come_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "_ROWS", 3)
    rows = pa.table({"n": list(range(8)), "at": [datetime(2024, 3, 5, tzinfo=UTC)] * 8})

    in_ones, in_fives = (list(conversion._parts(rows.to_batches(size))) for size in (1, 5))

    assert [part.num_rows for part in in_ones] == [3, 3, 2]
    assert in_ones == in_fives
    assert in_ones[:2] != list(conversion._parts(rows.slice(1).to_batches()))[:2]
