"""Rules of a table in a folder, and on S3."""

import multiprocessing
from typing import Any

import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError

from ams.tables import WrongTable, log, upkeep
from ams.tables.files import File, read
from ams.tables.location import Location
from ams.tables.table import Table, exists
from tests.tables.making import MONDAY, QUERY, SCHEMA, TUESDAY, append, append_batches, contents, table, write
from tests.tables.test_table import commit_raw, race_writers


def test_a_batch_is_added_once_however_often_it_comes(table_url: str) -> None:
    assert not exists(table_url)
    assert append(table(table_url), 7, [(1, MONDAY), (2, None)])

    assert not append(table(table_url), 7, [(1, MONDAY), (2, None)])
    assert not append(table(table_url), 7, [(9, MONDAY)])
    assert append(table(table_url), 8, [])
    assert not append(table(table_url), 8, [(9, MONDAY)])
    assert append(table(table_url), 9, [(3, TUESDAY)])

    assert contents(table_url) == {(1, MONDAY): 1, (2, None): 1, (3, TUESDAY): 1}
    assert (table(table_url).snapshot().batch, table(table_url).snapshot().query) == (9, QUERY)


def test_other_queries_older_checkpoints_and_files_that_are_not_there_are_refused(table_url: str) -> None:
    append(table(table_url), 4, [(1, MONDAY)])
    ghost = File("day=2024-03-04/ghost.parquet", 9, 1, {"day": "2024-03-04"}, {}, {}, {})

    with pytest.raises(WrongTable, match="written from another checkpoint; give another folder, or that checkpoint"):
        append(table(table_url), 5, [(2, MONDAY)], query="another")
    with pytest.raises(WrongTable, match="knows batch 4 already, and this is batch 3: the checkpoint is older"):
        append(table(table_url), 3, [(2, MONDAY)])
    with pytest.raises(WrongTable, match="is not there; nothing was stored"):
        table(table_url).append(QUERY, 5, [ghost])

    assert contents(table_url) == {(1, MONDAY): 1}


def test_a_snapshot_that_is_not_the_newest_takes_no_commit(table_url: str) -> None:
    """Without retries delta-rs refuses every such commit, not only conflicting ones; our commits rely on that."""
    append(table(table_url), 0, [(1, MONDAY)])
    stale = table(table_url).snapshot().delta
    append(table(table_url), 1, [(2, MONDAY)])

    with pytest.raises(CommitFailedError):
        commit_raw(stale, [], query="another", batch=5)


def test_rows_are_replaced_by_partition_and_all_together_in_one_commit(table_url: str) -> None:
    results = table(table_url)
    results.replace(write(results, [(1, MONDAY), (2, TUESDAY), (3, None)]))
    before = results.snapshot().version

    results.replace(write(results, [(4, MONDAY)]), [{"day": None}])
    assert contents(table_url) == {(4, MONDAY): 1, (2, TUESDAY): 1}
    assert results.snapshot().version == before + 1

    results.replace([])
    assert contents(table_url) == {}
    assert [row for rows in results.snapshot(before).batches(["n"]) for row in rows["n"].to_pylist()] == [3, 1, 2]


def test_new_columns_come_by_a_commit_of_their_own_first(table_url: str) -> None:
    """delta-rs ignores a wider schema in a commit with files."""
    append(table(table_url), 0, [(1, MONDAY)])
    schema = SCHEMA.append(pa.field("more", pa.string()))
    wider = Table(table_url, schema, ("day",))
    rows = pa.RecordBatch.from_pylist([{"n": 2, "day": MONDAY, "more": "x"}], schema)

    wider.append(QUERY, 1, wider.write("batch-000001-x", [rows]))

    done = [log.commit_info(wider.location, version)["ams"]["does"] for version in range(4)]
    assert done == ["create", "append", "add columns", "append"]
    found = [row for rows in wider.snapshot().batches(["n", "more"]) for row in rows.to_pylist()]
    assert found == [{"n": 1, "more": None}, {"n": 2, "more": "x"}]


def test_it_is_merged_checked_restored_and_cleaned(table_url: str) -> None:
    append_batches(table_url, 4, MONDAY, TUESDAY)
    orphan = write(table(table_url), [(9, MONDAY)])[0].path
    rows = contents(table_url)

    assert (upkeep.merge(table_url), contents(table_url)) == (8, rows)
    found = upkeep.check(table_url)
    assert (found.files, found.rows, found.wrong, found.unknown) == (2, 8, [], [orphan])
    assert found.size == sum(file.size for file in table(table_url).snapshot().files)
    assert [each.what for each in upkeep.history(table_url, 2)] == ["merge", "append"]
    assert upkeep.vacuum(table_url) == []  # all is young

    upkeep.restore(table_url, 2)

    assert contents(table_url) == {(number, day): 1 for number in range(2) for day in (MONDAY, TUESDAY)}
    assert not append(table(table_url), 3, [(3, MONDAY)])
    assert upkeep.check(table_url).wrong == []


def test_a_byte_that_changed_is_found_by_reading_or_changes_no_row(table_url: str) -> None:
    """Checksums cover the rows in a page, not the metadata before."""
    written = table(table_url)
    append(written, 0, [(number * number, MONDAY) for number in range(1000)])
    [file] = written.snapshot().files
    rows, whole = contents(table_url), written.location.read(file.path)
    end, found = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little"), 0

    for place in range(4, end, end // 40):
        written.location.write(file.path, whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        if wrong := upkeep.check(table_url).wrong:
            found += 1
            assert file.path in wrong[0]
            with pytest.raises(WrongTable, match="cannot be read"):
                contents(table_url)
        else:
            assert contents(table_url) == rows

    assert found > 30


def test_it_is_read_with_checkpoints_of_the_log(table_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "CHECKPOINT_EVERY", 2)
    append_batches(table_url, 5)

    assert "_last_checkpoint" in Location.of(table_url).names("_delta_log")
    assert contents(table_url) == {(number, MONDAY): 1 for number in range(5)}
    assert log.recover(table(table_url).location) == []


def test_two_runs_at_once_with_the_same_batches_add_each_once(table_url: str) -> None:
    assert "done" in race_writers(table_url, [QUERY, QUERY])  # who falls back by more than a batch is refused
    assert contents(table_url) == {(number, MONDAY): 1 for number in range(20)}


def test_two_runs_at_once_that_replace_days_of_their_own_both_do(table_url: str) -> None:
    table(table_url).replace([])
    assert race_writers(table_url, ["2024-03-04", "2024-03-05"]) == ["done", "done"]
    assert contents(table_url) == {(19, MONDAY): 1, (19, TUESDAY): 1}


def test_tasks_read_it_by_its_address_alone(table_url: str) -> None:
    append(table(table_url), 0, [(1, MONDAY)])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(rows_of, (table(table_url).location, table(table_url).snapshot().files))
    assert found == [{"n": 1, "day": MONDAY}]


def rows_of(location: Location, files: list[File]) -> list[dict[str, Any]]:
    return [row for rows in read(location, files, SCHEMA) for row in rows.to_pylist()]
