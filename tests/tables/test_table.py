"""Tables of batches and of results: their commits, versions, numbers and columns."""

import json
import multiprocessing
import os
import pickle
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from ams.tables import WrongTable, log
from ams.tables import table as tables
from ams.tables.table import Table, open_table
from tests.tables.making import MONDAY, QUERY, SCHEMA, TUESDAY, append, append_batches, contents, table, write


def test_numbers_are_kept_with_the_batch_that_brings_them(root: Path) -> None:
    kept = table(root)
    for batch, numbers in enumerate([{"a": 1, "b": 7}, {"a": 2}, {}]):
        kept.append(QUERY, batch, write(kept, [(batch, MONDAY)]), numbers)
    assert not kept.append(QUERY, 2, [], {"a": 9})

    found = kept.snapshot()

    assert ([found.number(name) for name in ("a", "b", "c")], found.batch) == ([2, 7, None], 2)
    assert log.recover(kept.location) == []


def test_the_query_outlasts_checkpoints_and_new_columns(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "CHECKPOINT_EVERY", 2)
    append_batches(root, 5)
    wider = Table(str(root), SCHEMA.append(pa.field("s", pa.string())), ("day",))
    wider.append(QUERY, 5, [])

    snapshot = wider.snapshot()

    assert (snapshot.query, snapshot.batch, snapshot.partition_by) == (QUERY, 5, ("day",))
    assert [each.name for each in root.glob("_delta_log/*.checkpoint.parquet")]
    assert not (root / "_delta_log" / "_checkpoint_begun").exists()


def test_a_table_of_batches_is_not_replaced_and_one_of_results_takes_no_batches(root: Path) -> None:
    append(table(root), 0, [(1, MONDAY)])
    results = root.parent / "results"
    table(results).replace([])

    with pytest.raises(WrongTable, match="takes batches of a query; its rows are not replaced"):
        table(root).replace([])
    with pytest.raises(WrongTable, match="was written from another checkpoint"):
        append(table(results), 0, [(1, MONDAY)])


@pytest.mark.parametrize(("schema", "by"), [
    (pa.schema([("n", pa.string()), ("day", pa.date32())]), ("day",)),
    (pa.schema([("n", pa.int64()), ("day", pa.date32())]), ("day",)),  # n may be null now
    (SCHEMA.append(pa.field("more", pa.int64(), nullable=False)), ("day",)),
    (pa.schema([SCHEMA.field("n")]), ()),
    (SCHEMA, ()),
])  # fmt: skip
def test_other_columns_or_partitions_are_refused(root: Path, schema: pa.Schema, by: tuple[str, ...]) -> None:
    append(table(root), 0, [(1, MONDAY)])
    with pytest.raises(WrongTable, match="has other columns than are written now"):
        Table(str(root), schema, by).append(QUERY, 1, [])
    assert table(root).snapshot().version == 1


def test_a_column_that_is_filled_goes_into_one_that_may_be_null(root: Path) -> None:
    loose = pa.schema([("n", pa.int64()), ("day", pa.date32())])
    Table(str(root), loose, ("day",)).append(QUERY, 0, [])
    assert append(table(root), 1, [(1, MONDAY)])


def test_times_without_a_zone_are_refused(root: Path) -> None:
    with pytest.raises(WrongTable, match="times without a zone"):
        Table(str(root), pa.schema([("at", pa.timestamp("us"))])).append(QUERY, 0, [])


def test_earlier_versions_are_kept_as_long_as_is_said(root: Path) -> None:
    Table(str(root), SCHEMA, ("day",), keep=timedelta(days=400)).replace([])
    found = DeltaTable(root).metadata().configuration
    assert found["delta.logRetentionDuration"] == found["delta.deletedFileRetentionDuration"] == "interval 400 days"


def commit_raw(delta: DeltaTable, actions: list[Any], query: str = QUERY, batch: int = 0) -> None:
    properties = CommitProperties(max_commit_retries=0, app_transactions=[Transaction(query, batch)])
    delta._table.create_write_transaction(actions, "append", ["day"], delta.schema(), None, properties, log.HOOKS)


def test_delta_rs_by_itself_takes_a_batch_twice_and_a_lower_one_and_files_that_are_not_there(root: Path) -> None:
    append(table(root), 7, [(1, MONDAY)])
    ghost = AddAction("ghost.parquet", 1, {"day": "2024-03-04"}, 0, True, '{"numRecords": 1}')

    commit_raw(DeltaTable(root), [ghost], batch=7)
    commit_raw(DeltaTable(root), [], batch=3)

    assert DeltaTable(root)._table.transaction_version(QUERY) == 3
    assert len(DeltaTable(root).file_uris()) == 2


def test_a_file_that_has_another_size_is_refused(root: Path) -> None:
    (found,) = write(table(root), [(1, MONDAY)])
    other = replace(found, size=found.size + 1)

    with pytest.raises(WrongTable, match=rf"has {found.size} bytes instead of {found.size + 1}; nothing was stored"):
        table(root).append(QUERY, 0, [other])

    assert not table(root).exists()


def test_delta_rs_ignores_a_wider_schema_in_a_commit(root: Path) -> None:
    append(table(root), 0, [(1, MONDAY)])
    delta = DeltaTable(root)
    wider = Schema.from_arrow(SCHEMA.append(pa.field("more", pa.string())))

    delta._table.create_write_transaction([], "append", ["day"], wider, None, None, log.HOOKS)

    assert [field.name for field in DeltaTable(root).schema().fields] == ["n", "day"]


def test_who_is_always_beaten_gives_up_and_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(table(root), 0, [(1, MONDAY)])

    def fail_commit(*_: object) -> None:
        raise CommitFailedError("no")

    monkeypatch.setattr(tables, "_write", fail_commit)

    with pytest.raises(WrongTable, match="is changed by others all the time; nothing was stored"):
        append(table(root), 1, [(2, MONDAY)])


def test_of_two_runs_at_once_with_different_checkpoints_one_is_refused(root: Path) -> None:
    assert sorted(race_writers(root, [QUERY, "another"])) == ["done", "refused"]
    assert contents(root) == {(number, MONDAY): 1 for number in range(20)}


def race_writers(root: Path | str, names: list[str]) -> list[str]:
    """Let processes write concurrently: batches of a query, or the rows of a day."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(len(names)) as pool, context.Manager() as manager:
        start = manager.Barrier(len(names))
        return pool.starmap(run_writer, [(str(root), name, start) for name in names])


def run_writer(root: str, name: str, start: Any) -> str:
    start.wait()
    try:
        for number in range(20):
            if name.startswith("2024"):
                table(root).replace(
                    write(table(root), [(number, datetime.fromisoformat(name).date())]), [{"day": name}]
                )
            else:
                append(table(root), number, [(number, MONDAY)], name)
    except WrongTable:
        return "refused"
    return "done"


def test_files_tell_their_batch_partition_and_ranges(root: Path) -> None:
    append(table(root), 12, [(5, MONDAY), (3, MONDAY), (4, TUESDAY), (9, None)])

    nowhere, monday, tuesday = table(root).snapshot().files

    assert (monday.batch, monday.rows, monday.partition) == (12, 2, {"day": "2024-03-04"})
    assert (monday.least, monday.greatest) == ({"n": 3}, {"n": 5})
    assert monday.size == os.path.getsize(root / monday.path)
    assert (tuesday.rows, nowhere.partition) == (1, {"day": None})
    assert pickle.loads(pickle.dumps(monday)) == monday


def test_files_are_selected_by_partition_and_by_what_is_known_of_them(root: Path) -> None:
    append(table(root), 0, [(1, MONDAY), (2, TUESDAY), (3, None)])
    append(table(root), 1, [(4, MONDAY)])
    snapshot = table(root).snapshot()

    monday = snapshot.select([{"day": "2024-03-04"}])

    assert [each.batch for each in monday] == [0, 1]
    assert [each.rows for each in snapshot.select([{"day": ""}])] == [1]
    assert snapshot.select(where=lambda file: file.least["n"] > 3) == [monday[1]]
    assert [rows.to_pylist() for rows in snapshot.batches(["n"], monday[1:])] == [[{"n": 4}]]


def test_a_partition_must_name_all_columns_that_partitions_are_by(root: Path) -> None:
    results = table(root)
    results.replace(write(results, [(1, MONDAY)]))

    for wrong in ({}, {"day": "2024-03-04", "n": "1"}, {"date": "2024-03-04"}):
        with pytest.raises(WrongTable, match=r"has partitions by \('day',\), not by"):
            results.replace([], [wrong])

    assert contents(root) == {(1, MONDAY): 1}


def test_versions_are_read_by_number_and_by_time_whatever_the_times_of_the_files(root: Path) -> None:
    append(table(root), 0, [(1, MONDAY)])
    then = datetime.now(UTC)
    time.sleep(0.01)
    append(table(root), 1, [(2, MONDAY)])
    for each in (root / "_delta_log").glob("*.json"):
        os.utime(each, (0, 0))  # as after copying the table

    found = table(root)

    assert [found.snapshot(at).version for at in (1, then, datetime.now(UTC))] == [1, 1, 2]
    assert log.time_of(log.commit_info(found.location, 1)) <= then
    with pytest.raises(WrongTable, match=r"has no version of 2000-01-01T00:00:00\+00:00"):
        found.snapshot(datetime(2000, 1, 1, tzinfo=UTC))
    with pytest.raises(WrongTable, match="has no version 9"):
        found.snapshot(9)


def test_what_is_no_table_is_told(root: Path) -> None:
    with pytest.raises(WrongTable, match="is no table: it has no _delta_log"):
        open_table(str(root))
    with pytest.raises(WrongTable, match="is no table"):
        open_table(str(root), datetime.now(UTC))
    assert not table(root).exists()


@pytest.mark.parametrize(("configuration", "named"), [
    ({"delta.enableDeletionVectors": "true"}, "deletionVectors"), ({"delta.enableChangeDataFeed": "true"}, "4"),
])  # fmt: skip
def test_tables_that_need_more_are_refused_by_name(root: Path, configuration: dict[str, str], named: str) -> None:
    DeltaTable.create(str(root), SCHEMA, configuration=configuration)
    with pytest.raises(WrongTable, match=rf"was made by another program: it needs .*{named}"):
        open_table(str(root))


def test_a_table_with_columns_mapped_is_refused_by_name(root: Path) -> None:
    """As Spark makes one: version 2 and 5, and other names in the files."""
    Table(str(root), SCHEMA).append(QUERY, 0, [])
    first = root / log.commit_path(0)
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    for line in lines:
        line.update({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}} if "protocol" in line else {})
        if metadata := line.get("metaData"):
            metadata["configuration"] |= {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
            schema = json.loads(metadata["schemaString"])
            for number, field in enumerate(schema["fields"]):
                names = {"delta.columnMapping.id": number + 1, "delta.columnMapping.physicalName": f"col-{number}"}
                field["metadata"] |= names
            metadata["schemaString"] = json.dumps(schema)
    first.write_text("\n".join(map(json.dumps, lines)))

    with pytest.raises(WrongTable, match="was made by another program: it needs .* columnMapping"):
        open_table(str(root))


def test_a_table_of_features_that_nobody_knows_is_refused(root: Path) -> None:
    append(table(root), 0, [(1, MONDAY)])
    first = root / log.commit_path(0)
    first.write_text(first.read_text().replace('"minReaderVersion":1', '"minReaderVersion":9'))

    with pytest.raises(WrongTable, match="cannot be read: .*reader version 9"):
        open_table(str(root))
