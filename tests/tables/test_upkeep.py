import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ams.tables import WrongTable, log, upkeep
from ams.tables.files import File
from ams.tables.location import Location
from ams.tables.table import Table, open_table
from ams.tables.upkeep import check, history, merge, restore, vacuum
from tests.tables.making import MONDAY, QUERY, SCHEMA, TUESDAY, append, append_batches, contents, table, write

LONG_AGO = time.time() - timedelta(days=60).total_seconds()


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def numbers(root: str, files: Sequence[File] | None = None) -> list[int]:
    return [n for rows in open_table(root).batches(["n"], files) for n in rows["n"].to_pylist()]


def test_small_files_of_a_partition_become_one_with_the_rows_in_order(root: str) -> None:
    append(table(root), 0, [(5, MONDAY), (6, MONDAY), (1, TUESDAY)])
    append(table(root), 1, [(1, MONDAY)])
    append(table(root), 2, [(3, MONDAY)])
    before = contents(root)

    assert merge(root, order="n") == 3

    monday, tuesday = open_table(root).files
    assert (monday.batch, monday.rows, Path(monday.path).name[:14]) == (2, 4, "merged-000002-")
    assert tuesday.batch == 0
    assert (numbers(root, [monday]), contents(root)) == ([1, 3, 5, 6], before)
    assert merge(root) == 0


def test_a_merge_says_that_rows_are_the_same_and_keeps_the_number_of_the_batch(root: str) -> None:
    append_batches(root, 3)

    merge(root)

    version = open_table(root).version
    changes = [action.get("add") or action.get("remove") for action in log.actions(Location.of(root), version)]
    assert {each["dataChange"] for each in changes if each} == {False}
    assert not append(table(root), 2, [(9, MONDAY)])
    assert append(table(root), 3, [(3, MONDAY)])


def test_only_named_partitions_are_merged_and_large_merges_in_parts(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_TOGETHER_BYTES", 1)
    append_batches(root, 2, MONDAY, TUESDAY)

    assert merge(root, [{"day": "2024-03-05"}]) == 2
    assert [file.partition["day"] for file in open_table(root).files] == ["2024-03-04", "2024-03-04", "2024-03-05"]

    append(table(root), 2, [(2, MONDAY), (2, TUESDAY)])
    assert (merge(root), [done.what for done in history(root, 2)]) == (5, ["merge", "merge"])


def test_large_files_stay_and_merged_ones_have_about_the_size_that_is_wanted(root: str) -> None:
    append_batches(root, 6)
    size = open_table(root).files[0].size

    assert (merge(root, file_bytes=size), merge(root, file_bytes=3 * size)) == (0, 6)
    assert [file.rows for file in open_table(root).files] == [3, 3]


def test_a_merge_of_what_lacks_rows_is_refused_and_changes_nothing(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    append_batches(root, 2)
    version = open_table(root).version
    monkeypatch.setattr("ams.tables.table.TableVersion.batches", lambda *_, **__: iter(()))

    with pytest.raises(WrongTable, match="do not hold the rows that the log says"):
        merge(root)

    assert open_table(root).version == version


def test_a_merge_of_files_that_another_run_took_is_refused(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    results = table(root)
    for number in range(2):
        results.replace([*write(results, [(number, MONDAY)]), *write(results, [(number, MONDAY)])])
    rewritten = upkeep._merge_files

    def rewrite_slowly(*arguments: object) -> object:
        found = rewritten(*arguments)  # type: ignore[arg-type]
        results.replace([])
        return found

    monkeypatch.setattr(upkeep, "_merge_files", rewrite_slowly)

    with pytest.raises(WrongTable, match="was changed while its files were merged; nothing of that was stored"):
        merge(root)
    assert contents(root) == {}


def test_a_merge_and_a_batch_at_once_both_happen(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    append_batches(root, 2)
    rewritten = upkeep._merge_files

    def rewrite_slowly(*arguments: object) -> object:
        append(table(root), 2, [(2, MONDAY)])
        return rewritten(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(upkeep, "_merge_files", rewrite_slowly)

    assert merge(root) == 2
    assert contents(root) == {(number, MONDAY): 1 for number in range(3)}


def test_vacuum_takes_what_no_version_needs_and_leaves_what_is_young(root: str) -> None:
    """delta-rs would delete any old foreign file; only Parquet files are deleted."""
    odd = Table(root, pa.schema([("n", pa.int64()), ("topic", pa.string())]), ("topic",))
    rows = pa.RecordBatch.from_pylist([{"n": 1, "topic": "a b%"}], odd.schema)
    odd.append(QUERY, 0, odd.write("batch-000000-x", [rows]))
    (kept,) = odd.snapshot().files
    folder = kept.path.rpartition("/")[0]
    for name in (f"{folder}/batch-old.parquet", f"{folder}/batch-young.parquet", "old.parquet", "notes.txt"):
        Path(root, name).write_bytes(b"x")
    for name in (kept.path, f"{folder}/batch-old.parquet", "old.parquet", "notes.txt"):
        os.utime(Path(root, name), (LONG_AGO, LONG_AGO))
    version = odd.snapshot().version

    assert vacuum(root) == ["old.parquet", f"{folder}/batch-old.parquet"]
    assert Path(root, "old.parquet").exists()
    assert vacuum(root, dry_run=False) == ["old.parquet", f"{folder}/batch-old.parquet"]

    assert sorted(os.listdir(Path(root, folder))) == sorted([Path(kept.path).name, "batch-young.parquet"])
    assert Path(root, "notes.txt").exists()
    assert odd.snapshot().version == version
    assert vacuum(root) == []


def test_vacuum_leaves_what_versions_need_that_are_kept_however_old_the_files(root: str) -> None:
    append(table(root), 0, [(1, MONDAY)])
    append(table(root), 1, [(2, MONDAY)])
    for file in open_table(root).files:
        os.utime(Path(root, file.path), (LONG_AGO, LONG_AGO))
    merge(root)

    assert vacuum(root, dry_run=False) == []

    assert [rows.num_rows for rows in open_table(root, 2).batches()] == [1, 1]


def test_vacuum_takes_commits_that_are_older_than_is_kept(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "CHECKPOINT_EVERY", 2)
    append_batches(root, 7)
    for path in Path(root, "_delta_log").iterdir():
        if path.name[:20] <= f"{5:020d}":
            os.utime(path, (LONG_AGO, LONG_AGO))

    vacuum(root, dry_run=False)

    assert min(log.versions(Location.of(root))) > 0
    assert contents(root) == {(number, MONDAY): 1 for number in range(7)}
    assert not append(table(root), 6, [])
    with pytest.raises(WrongTable, match="has no version"):
        open_table(root, 0)


def test_an_earlier_version_comes_back_and_the_run_goes_on_behind_what_it_confirmed(root: str) -> None:
    append(table(root), 0, [(1, MONDAY)])
    append(table(root), 1, [(2, MONDAY)])
    merge(root)

    found = restore(root, 1)

    assert contents(root) == {(1, MONDAY): 1}
    assert (found.version, found.batch, found.query) == (4, 1, QUERY)
    assert not append(table(root), 1, [(2, MONDAY)])
    assert append(table(root), 2, [(3, MONDAY)])
    assert contents(root) == {(1, MONDAY): 1, (3, MONDAY): 1}
    restore(root, 2)
    assert contents(root) == {(1, MONDAY): 1, (2, MONDAY): 1}
    assert restore(root, 2).version == 6  # nothing to do


def test_delta_rs_takes_columns_back_with_a_restore_and_this_does_not(root: str) -> None:
    append(table(root), 0, [(1, MONDAY)])
    Table(root, SCHEMA.append(pa.field("more", pa.string())), ("day",)).append(QUERY, 1, [])

    assert restore(root, 1).schema.names == ["n", "day", "more"]
    DeltaTable(root).restore(1)
    assert open_table(root).schema.names == ["n", "day"]


def test_a_version_whose_files_are_gone_does_not_come_back(root: str) -> None:
    append(table(root), 0, [(1, MONDAY)])
    (old,) = open_table(root).files
    append(table(root), 1, [(2, MONDAY)])
    merge(root)
    os.unlink(Path(root, old.path))

    with pytest.raises(WrongTable, match=r"\.parquet is not there; nothing was stored"):
        restore(root, 1)

    assert contents(root) == {(1, MONDAY): 1, (2, MONDAY): 1}


def test_the_history_tells_each_commit_newest_first(root: str) -> None:
    began = datetime.now(UTC) - timedelta(seconds=1)
    append(table(root), 0, [(1, MONDAY), (2, TUESDAY)])
    append(table(root), 1, [(3, MONDAY)])
    merge(root)

    found = list(history(root))

    assert [(each.version, each.what, each.batch, each.files, each.rows, each.removed) for each in found] == [
        (3, "merge", None, 1, 2, 2), (2, "append", 1, 1, 1, 0), (1, "append", 0, 2, 2, 0), (0, "create", None, 0, 0, 0),
    ]  # fmt: skip
    assert began < found[-1].time <= found[0].time <= datetime.now(UTC)
    assert [each.version for each in history(root, 2)] == [3, 2]


def test_what_is_damaged_and_what_no_commit_knows_is_found(root: str) -> None:
    append(table(root), 0, [(1, MONDAY)])
    append(table(root), 1, [(2, MONDAY)])
    append(table(root), 2, [(3, MONDAY), (4, MONDAY)])
    first, second, third = (Path(root, file.path) for file in open_table(root).files)
    (left,) = write(table(root), [(9, MONDAY)])
    first.unlink()
    second.write_bytes(second.read_bytes()[:-10])
    third.write_bytes(Path(root, left.path).read_bytes())

    found = check(root)

    assert [text.removeprefix(f"{root}/day=2024-03-04/").partition(": ")[0] for text in found.wrong] == [
        f"{first.name} is gone", f"{second.name} cannot be read",
        f"{third.name} has 1 rows in {left.size} bytes, and the log says 2 in {open_table(root).files[2].size}",
    ]  # fmt: skip
    assert found.unknown == [left.path]
