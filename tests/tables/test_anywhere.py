"""Rules of a table in a folder, and on S3."""

import multiprocessing
from typing import Any

import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError

from ams.tables import WrongTable, log, upkeep
from ams.tables.files import File, read
from ams.tables.location import Location
from ams.tables.snapshot import exists
from ams.tables.table import Table
from tests.tables.making import MONDAY, QUERY, SCHEMA, TUESDAY, append, append_batches, contents, table, write
from tests.tables.test_table import commit_raw, race


def test_a_batch_is_added_once_however_often_it_comes(anywhere: str) -> None:
    assert not exists(anywhere)
    assert append(table(anywhere), 7, [(1, MONDAY), (2, None)])

    assert not append(table(anywhere), 7, [(1, MONDAY), (2, None)])
    assert not append(table(anywhere), 7, [(9, MONDAY)])
    assert append(table(anywhere), 8, [])
    assert not append(table(anywhere), 8, [(9, MONDAY)])
    assert append(table(anywhere), 9, [(3, TUESDAY)])

    assert contents(anywhere) == {(1, MONDAY): 1, (2, None): 1, (3, TUESDAY): 1}
    assert (table(anywhere).snapshot().batch, table(anywhere).snapshot().query) == (9, QUERY)


def test_other_queries_older_checkpoints_and_files_that_are_not_there_are_refused(anywhere: str) -> None:
    append(table(anywhere), 4, [(1, MONDAY)])
    ghost = File("day=2024-03-04/ghost.parquet", 9, 1, {"day": "2024-03-04"}, {}, {}, {})

    with pytest.raises(WrongTable, match="written from another checkpoint; give another folder, or that checkpoint"):
        append(table(anywhere), 5, [(2, MONDAY)], query="another")
    with pytest.raises(WrongTable, match="knows batch 4 already, and this is batch 3: the checkpoint is older"):
        append(table(anywhere), 3, [(2, MONDAY)])
    with pytest.raises(WrongTable, match="is not there; nothing was stored"):
        table(anywhere).append(QUERY, 5, [ghost])

    assert contents(anywhere) == {(1, MONDAY): 1}


def test_a_snapshot_that_is_not_the_newest_takes_no_commit(anywhere: str) -> None:
    """Without retries delta-rs refuses every such commit, not only conflicting ones; our commits rely on that."""
    append(table(anywhere), 0, [(1, MONDAY)])
    stale = table(anywhere).snapshot().delta
    append(table(anywhere), 1, [(2, MONDAY)])

    with pytest.raises(CommitFailedError):
        commit_raw(stale, [], query="another", batch=5)


def test_rows_are_replaced_by_partition_and_all_together_in_one_commit(anywhere: str) -> None:
    results = table(anywhere)
    results.replace(write(results, [(1, MONDAY), (2, TUESDAY), (3, None)]))
    before = results.snapshot().version

    results.replace(write(results, [(4, MONDAY)]), [{"day": None}])
    assert contents(anywhere) == {(4, MONDAY): 1, (2, TUESDAY): 1}
    assert results.snapshot().version == before + 1

    results.replace([])
    assert contents(anywhere) == {}
    assert [row for rows in results.snapshot(before).batches(["n"]) for row in rows["n"].to_pylist()] == [3, 1, 2]


def test_new_columns_come_by_a_commit_of_their_own_first(anywhere: str) -> None:
    """delta-rs ignores a wider schema in a commit with files."""
    append(table(anywhere), 0, [(1, MONDAY)])
    schema = SCHEMA.append(pa.field("more", pa.string()))
    wider = Table(anywhere, schema, ("day",))
    rows = pa.RecordBatch.from_pylist([{"n": 2, "day": MONDAY, "more": "x"}], schema)

    wider.append(QUERY, 1, wider.write("batch-000001-x", [rows]))

    done = [log.commit_info(wider.location, version)["ams"]["does"] for version in range(4)]
    assert done == ["create", "append", "add columns", "append"]
    found = [row for rows in wider.snapshot().batches(["n", "more"]) for row in rows.to_pylist()]
    assert found == [{"n": 1, "more": None}, {"n": 2, "more": "x"}]


def test_it_is_merged_checked_restored_and_cleaned(anywhere: str) -> None:
    append_batches(anywhere, 4, MONDAY, TUESDAY)
    orphan = write(table(anywhere), [(9, MONDAY)])[0].path
    rows = contents(anywhere)

    assert upkeep.merge(anywhere) == 8
    assert contents(anywhere) == rows
    found = upkeep.check(anywhere)
    assert (found.files, found.rows, found.wrong, found.unknown) == (2, 8, [], [orphan])
    assert found.size == sum(file.size for file in table(anywhere).snapshot().files)
    assert [each.what for each in upkeep.history(anywhere, 2)] == ["merge", "append"]
    assert upkeep.vacuum(anywhere) == []  # all is young

    upkeep.restore(anywhere, 2)

    assert contents(anywhere) == {(number, day): 1 for number in range(2) for day in (MONDAY, TUESDAY)}
    assert not append(table(anywhere), 3, [(3, MONDAY)])
    assert upkeep.check(anywhere).wrong == []


def test_a_byte_that_changed_is_found_by_reading_or_changes_no_row(anywhere: str) -> None:
    """Checksums cover the rows in a page, not the metadata before."""
    written = table(anywhere)
    append(written, 0, [(number * number, MONDAY) for number in range(1000)])
    [file] = written.snapshot().files
    rows, whole = contents(anywhere), written.location.read(file.path)
    end, found = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little"), 0

    for place in range(4, end, end // 40):
        written.location.write(file.path, whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        if wrong := upkeep.check(anywhere).wrong:
            found += 1
            assert file.path in wrong[0]
            with pytest.raises(WrongTable, match="cannot be read"):
                contents(anywhere)
        else:
            assert contents(anywhere) == rows

    assert found > 30


def test_it_is_read_with_checkpoints_of_the_log(anywhere: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "CHECKPOINT_EVERY", 2)
    append_batches(anywhere, 5)

    assert "_last_checkpoint" in Location.of(anywhere).names("_delta_log")
    assert contents(anywhere) == {(number, MONDAY): 1 for number in range(5)}
    assert log.recover(table(anywhere).location) == []


def test_two_runs_at_once_with_the_same_batches_add_each_once(anywhere: str) -> None:
    ended = race(anywhere, [QUERY, QUERY])
    assert "done" in ended  # who falls back by more than a batch is refused
    assert contents(anywhere) == {(number, MONDAY): 1 for number in range(20)}


def test_two_runs_at_once_that_replace_days_of_their_own_both_do(anywhere: str) -> None:
    table(anywhere).replace([])
    assert race(anywhere, ["2024-03-04", "2024-03-05"]) == ["done", "done"]
    assert contents(anywhere) == {(19, MONDAY): 1, (19, TUESDAY): 1}


def test_tasks_read_it_by_its_address_alone(anywhere: str) -> None:
    append(table(anywhere), 0, [(1, MONDAY)])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(rows_of, (table(anywhere).location, table(anywhere).snapshot().files))
    assert found == [{"n": 1, "day": MONDAY}]


def rows_of(location: Location, files: list[File]) -> list[dict[str, Any]]:
    return [row for rows in read(location, files, SCHEMA) for row in rows.to_pylist()]
