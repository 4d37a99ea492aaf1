import datetime
import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset as ds
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DateType, LongType, StringType, StructField, StructType, TimestampType

from ams.pipeline.errors import WrongTable
from ams.pipeline.tables import Result, Table, reading
from ams.pipeline.tables.commits import Commits
from ams.pipeline.tables.files import LocalFiles

SCHEMA = StructType(
    [
        StructField("day", DateType()),
        StructField("site", StringType()),
        StructField("n", LongType()),
        StructField("seen", TimestampType()),
    ]
)
QUERY = "1f0c9a7e-0000-0000-0000-000000000000"
AT = datetime.datetime(2024, 3, 5, 10, 20, 30, 123000, tzinfo=datetime.UTC)
Row = tuple[int, str | None, int]


def rows(spark: SparkSession, *wanted: Row) -> DataFrame:
    return spark.createDataFrame([(datetime.date(2024, 3, day), site, n, AT) for day, site, n in wanted], SCHEMA)


def read(frame: DataFrame) -> list[Row]:
    return sorted((row.day.day, row.site, row.n) for row in frame.collect())


def by_duckdb(root: Path) -> list[Any]:
    query = f"SELECT day(day), site, n, seen FROM read_parquet('{root}/day=*/**/*.parquet', hive_partitioning=true)"
    return duckdb.sql(query + " ORDER BY n").fetchall()


def test_every_reader_sees_every_row_once(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "table"
    table = Table(spark, str(root), SCHEMA, ("day", "site"), ranges=("n", "seen"), order=("n",))
    assert table.read().collect() == []

    table.append(rows(spark, (5, "a/b=c", 2), (5, "a/b=c", 1), (6, None, 3)), 0, QUERY)
    table.append(rows(spark, (5, "a/b=c", 4)), 1, QUERY)
    table.append(rows(spark, (5, "a/b=c", 4)), 1, QUERY)
    table.append(rows(spark), 2, QUERY)

    expected = [(5, "a/b=c", 1), (5, "a/b=c", 2), (5, "a/b=c", 4), (6, None, 3)]
    assert sorted(read(table.read()), key=lambda row: (row[0], row[2])) == expected
    assert by_duckdb(root) == [(day, site, n, AT) for day, site, n in sorted(expected, key=lambda row: row[2])]
    assert sorted(ds.dataset(str(root)).to_table()["n"].to_pylist()) == [1, 2, 3, 4]
    assert table.partitions_since(0) == [{"day": "2024-03-05", "site": "a/b=c"}]
    assert read(table.read([{"day": "2024-03-06", "site": None}])) == [(6, None, 3)]
    assert [(each.batch, len(each.partitions)) for each in table.written()] == [(0, 2), (1, 1)]
    [first, *_] = table.folders()
    at = "2024-03-05T10:20:30.123Z"
    assert (first.rows, first.ranges) == (2, {"n": (1, 2), "seen": (at, at)})

    table.merge([first.partition])

    assert by_duckdb(root) == [(day, site, n, AT) for day, site, n in sorted(expected, key=lambda row: row[2])]
    assert [(folder.batch, folder.rows, folder.files) for folder in table.folders()] == [(1, 3, 1), (0, 1, 1)]


def test_a_partition_of_many_batches_is_merged(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ams.pipeline.tables.table._CROWDED", 1)
    table = Table(spark, str(tmp_path / "table"), SCHEMA, ("day",))

    for number in range(3):
        table.append(rows(spark, (5, "a", number), (6 + number, "b", number)), number, QUERY)

    assert [(each.partition, each.batch, each.rows) for each in table.folders()] == [
        ("day=2024-03-05", 2, 3),
        ("day=2024-03-06", 0, 1),
        ("day=2024-03-07", 1, 1),
        ("day=2024-03-08", 2, 1),
    ]
    assert len(by_duckdb(tmp_path / "table")) == 6


def test_another_process_reads_what_is_settled(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path / "table")
    with pytest.raises(WrongTable, match="is no table: it has no manifest"):
        reading(spark, root, SCHEMA)
    table = Table(spark, root, SCHEMA)
    table.append(rows(spark, (5, "a", 1)), 0, QUERY)
    assert [folder.rows for folder in reading(spark, root, SCHEMA)] == [1]

    with pytest.raises(WrongTable, match="has other columns: struct<day:date,"):
        reading(spark, root, StructType([StructField("other", LongType())]))
    work = json.loads(Path(root, "_manifest", "commit-000000000001.json").read_bytes())["work"]
    Path(root, "_work", work).mkdir()
    monkeypatch.setattr("ams.pipeline.tables.table._PATIENCE_SECONDS", 0.0)
    with pytest.raises(WrongTable, match="was left in the middle of a commit; start the run that writes it once more"):
        reading(spark, root, SCHEMA)
    with pytest.raises(WrongTable, match="has no partitions, so nothing in it can be merged"):
        table.merge(["."])


def test_a_result_is_replaced_partition_by_partition(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "result"
    result = Result(spark, str(root), SCHEMA, ("day",), order=("n",))
    assert result.read().collect() == []

    result.replace(rows(spark, (5, "a", 2), (5, "a", 1), (6, "b", 3)))
    (root / "_work" / "left").mkdir(parents=True)
    result.replace(rows(spark, (5, "a", 9)))

    assert read(result.read()) == [(5, "a", 9), (6, "b", 3)]
    assert by_duckdb(root) == [(6, "b", 3, AT), (5, "a", 9, AT)]
    assert [each.name for each in (root / "day=2024-03-05").iterdir()] == ["data.parquet"]
    assert list((root / "_work").iterdir()) == []

    result.replace(rows(spark, (5, "a", 7)), ["day=2024-03-05", "day=2024-03-06"])

    assert read(result.read()) == [(5, "a", 7)]


def test_a_result_without_partitions_is_replaced_by_nothing_too(spark: SparkSession, tmp_path: Path) -> None:
    result = Result(spark, str(tmp_path / "result"), SCHEMA)
    result.replace(rows(spark, (5, "a", 2)))

    result.replace(rows(spark))

    assert result.read().collect() == []
    assert (tmp_path / "result" / "data.parquet").exists()


def test_a_file_address_is_a_path(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(spark, f"file://{tmp_path}/table", SCHEMA)

    table.append(rows(spark, (5, "a", 1)), 0, QUERY)

    assert read(table.read()) == [(5, "a", 1)]
    assert Commits(LocalFiles(), str(tmp_path / "table")).recover().batch == 0
