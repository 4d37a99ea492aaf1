from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ams.tables import log
from ams.tables.errors import WrongTable
from ams.tables.table import Table
from tests.tables.making import MONDAY, QUERY, SCHEMA, append, append_batches, table, write


def test_numbers_are_kept_with_the_batch_that_brings_them(root: Path) -> None:
    kept = table(root)
    for batch, numbers in enumerate([{"a": 1, "b": 7}, {"a": 2}, None]):
        kept.append(QUERY, batch, write(kept, [(batch, MONDAY)]), numbers)
    assert not kept.append(QUERY, 2, [], {"a": 9})

    found = kept.snapshot()

    assert [found.number(name) for name in ("a", "b", "c")] == [2, 7, None]
    assert found.batch == 2
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


@pytest.mark.parametrize(
    ("schema", "by"),
    [
        (pa.schema([("n", pa.string()), ("day", pa.date32())]), ("day",)),
        (pa.schema([("n", pa.int64()), ("day", pa.date32())]), ("day",)),  # n may be null now
        (SCHEMA.append(pa.field("more", pa.int64(), nullable=False)), ("day",)),
        (pa.schema([SCHEMA.field("n")]), ()),
        (SCHEMA, ()),
    ],
)
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
