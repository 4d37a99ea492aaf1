import json
import math
import os
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.tables import WrongTable, files
from ams.tables.files import File, batch_name, read
from ams.tables.location import Location

DAY = date(2024, 3, 5)
SCHEMA = pa.schema([("n", pa.int64()), ("day", pa.date32()), ("topic", pa.string())])
PARTITION_COLUMNS = ("day", "topic")


def write(
    root: Path, rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA, by: tuple[str, ...] = PARTITION_COLUMNS
) -> list[File]:
    return files.write(Location.of(root), schema, by, "rows", [pa.RecordBatch.from_pylist(rows, schema)])


def read_back(root: Path, found: list[File], **options: Any) -> list[dict[str, Any]]:
    return [row for rows in read(Location.of(root), found, SCHEMA, **options) for row in rows.to_pylist()]


def test_there_is_a_file_for_each_partition(tmp_path: Path) -> None:
    rows = [{"n": 1, "day": DAY, "topic": "a"}, {"n": 2, "day": DAY, "topic": "a"}, {"n": 3, "day": DAY, "topic": "b"}]

    first, second = write(tmp_path, rows)

    assert first.path.startswith("day=2024-03-05/topic=a/rows-")
    assert (first.partition, first.rows) == ({"day": "2024-03-05", "topic": "a"}, 2)
    assert first.size == os.path.getsize(tmp_path / first.path)
    assert pq.read_schema(tmp_path / first.path).names == ["n"]
    assert (second.rows, read_back(tmp_path, [first, second])) == (1, rows)
    assert write(tmp_path, []) == []


def test_rows_that_are_not_sorted_make_more_files_and_none_is_lost(tmp_path: Path) -> None:
    rows = [{"n": n, "day": DAY, "topic": "ab"[n % 2]} for n in range(5)]
    found = write(tmp_path, rows)
    assert len(found) == len({each.path for each in found}) == 5
    assert read_back(tmp_path, found) == rows


def test_without_partitions_files_lie_in_the_root(tmp_path: Path) -> None:
    (found,) = write(tmp_path, [{"n": 1, "day": DAY, "topic": ""}], by=())
    assert "/" not in found.path
    assert read_back(tmp_path, [found]) == [{"n": 1, "day": DAY, "topic": ""}]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.text(max_size=300), st.none() | st.dates()), max_size=6))
def test_any_partition_returns(tmp_path_factory: pytest.TempPathFactory, values: list[tuple[str, date | None]]) -> None:
    root = tmp_path_factory.mktemp("any")
    try:
        rows = [{"n": n, "day": day, "topic": text} for n, (text, day) in enumerate(values)]
        found = write(root, rows)
    except UnicodeEncodeError:  # a half of a character is no text of Arrow's
        return

    assert read_back(root, found) == [{**row, "topic": row["topic"] or None} for row in rows]


@pytest.mark.parametrize(("type_", "value", "text"), [
    (pa.int32(), -7, "-7"), (pa.bool_(), True, "true"), (pa.date32(), DAY, "2024-03-05"), (pa.string(), "x", "x"),
])  # fmt: skip
def test_partitions_may_be_by_these_types(tmp_path: Path, type_: pa.DataType, value: object, text: str) -> None:
    schema = pa.schema([("n", pa.int64()), ("p", type_)])

    (found,) = write(tmp_path, [{"n": 1, "p": value}], schema, ("p",))

    assert found.partition == {"p": text}
    (rows,) = read(Location.of(tmp_path), [found], schema)
    assert rows.to_pylist() == [{"n": 1, "p": value}]


def test_partitions_by_other_types_are_refused(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("p", pa.float64())])
    with pytest.raises(WrongTable, match="not by 1.5"):
        write(tmp_path, [{"n": 1, "p": 1.5}], schema, ("p",))


def test_statistics_tell_what_orders_alike_for_all_readers(tmp_path: Path) -> None:
    kinds = {"short": pa.string(), "long": pa.string(), "share": pa.float64(), "raw": pa.binary(), "flag": pa.bool_()}
    kinds |= {"empty": pa.int64(), "map": pa.map_(pa.string(), pa.string())}
    schema = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32()), *kinds.items()])
    early = datetime(2024, 3, 5, 1, 2, 3, 4, tzinfo=UTC)
    row = {
        "day": DAY, "short": "b", "long": "x" * 33, "share": math.nan, "raw": b"x", "flag": True, "map": [("a", "b")],
    }  # fmt: skip
    rows = [{"n": 2, "at": early, **row}, {**row, "n": None, "at": early + timedelta(hours=1), "short": "a"}]

    (found,) = write(tmp_path, rows, schema, ())

    stats = json.loads(found.stats)
    assert stats["numRecords"] == 2
    assert stats["minValues"] == {"n": 2, "at": "2024-03-05T01:02:03.000004Z", "day": "2024-03-05", "short": "a"}
    assert stats["maxValues"] == {"n": 2, "at": "2024-03-05T02:02:03.000004Z", "day": "2024-03-05", "short": "b"}
    assert (stats["nullCount"]["n"], stats["nullCount"]["empty"], stats["nullCount"]["raw"]) == (1, 2, 0)


def test_times_beyond_what_python_tells_have_no_statistics(tmp_path: Path) -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
    rows = pa.record_batch([pa.array([2**62], pa.int64()).cast(schema.field("at").type)], schema=schema)
    (found,) = files.write(Location.of(tmp_path), schema, (), "rows", [rows])
    assert json.loads(found.stats)["minValues"] == {}


def test_row_groups_are_bounded_and_read_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ROW_GROUP_BYTES", 8000)

    def batches() -> Iterator[pa.RecordBatch]:
        for start in (0, 10, 20, 5000):  # small ones are put together, a large one is cut
            some = [{"n": n, "day": DAY, "topic": "a"} for n in range(start, max(start + 10, start * 2))]
            yield pa.RecordBatch.from_pylist(some, SCHEMA)

    (found,) = files.write(Location.of(tmp_path), SCHEMA, PARTITION_COLUMNS, "rows", batches())

    with pq.ParquetFile(tmp_path / found.path) as parquet:
        sizes = [parquet.metadata.row_group(number).num_rows for number in range(parquet.num_row_groups)]
        assert parquet.metadata.row_group(0).column(0).compression == "ZSTD"
    assert sum(sizes) == found.rows
    assert len(sizes) > 3
    assert max(sizes) * 8 <= 8000
    assert [row["n"] for row in read_back(tmp_path, [found])][:40] == [*range(10), *range(10, 20), *range(20, 40)]


def test_columns_are_chosen_and_those_a_file_lacks_are_null(tmp_path: Path) -> None:
    found = write(tmp_path, [{"n": n, "day": DAY, "topic": "a"} for n in range(3)])
    wider = SCHEMA.append(pa.field("more", pa.map_(pa.string(), pa.string())))

    (rows,) = read(Location.of(tmp_path), found, wider, ["more", "topic"])

    assert rows.schema == pa.schema([wider.field("more"), wider.field("topic")])
    assert rows.to_pylist() == [{"more": None, "topic": "a"}] * 3
    assert read_back(tmp_path, found, columns=["day"]) == [{"day": DAY}] * 3
    os.unlink(tmp_path / found[0].path)
    with pytest.raises(WrongTable, match=r"\.parquet is gone"):
        read_back(tmp_path, found)


def test_an_attempt_that_fails_removes_the_file_at_work(tmp_path: Path) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"n": 1, "day": DAY, "topic": "a"}], SCHEMA)
        assert list(tmp_path.rglob("*.parquet"))
        raise KeyError

    with pytest.raises(KeyError):
        files.write(Location.of(tmp_path), SCHEMA, PARTITION_COLUMNS, "rows", batches())

    assert not list(tmp_path.rglob("*.parquet"))


def test_all_is_synced_when_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders always: an attempt killed before its sync may have made them."""
    (tmp_path / "day=2024-03-05").mkdir()
    synced: list[str] = []
    monkeypatch.setattr("ams.tables.location.sync", synced.append)

    (found,) = write(tmp_path, [{"n": 1, "day": DAY, "topic": "a"}])

    folder = tmp_path / "day=2024-03-05"
    assert [Path(each) for each in synced] == [tmp_path / found.path, folder / "topic=a", folder, tmp_path]


def test_rows_are_cast_to_the_columns_of_the_table(tmp_path: Path) -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("s", pa.string())])
    other = pa.schema([("s", pa.large_string()), ("at", pa.timestamp("us", "Europe/Athens"))])
    at = datetime(2024, 3, 5, tzinfo=UTC)
    found = files.write(
        Location.of(tmp_path), schema, (), "rows", [pa.RecordBatch.from_pylist([{"s": "x", "at": at}], other)]
    )

    (rows,) = read(Location.of(tmp_path), found, schema)

    assert rows.to_pylist() == [{"at": at, "s": "x"}]


def test_a_batch_is_in_the_names_of_its_files() -> None:
    def batch(path: str) -> int | None:
        return files.File(path, 1, 1, {}, {}, {}, {}).batch

    assert batch(f"day=2024-03-05/{batch_name('1f0c9a7e-5b1e', 1234567)}-x.parquet") == 1234567
    assert batch("merged-000012-x.parquet") == 12
    assert batch("day=batch-000001-x/rows-x.parquet") is None
