"""Tables by Spark: what tasks write, what is read back, and what other programs find."""

import datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, MapType, StringType, StructType

from ams.pipeline.tables import Table, count, listed, rows_of
from ams.tables.errors import WrongTable
from tests.pipeline.delta import by_duckdb, files_of

SCHEMA = StructType().add("day", "date").add("site", "string").add("n", "long").add("seen", "timestamp")
QUERY = "1f0c9a7e-0000-0000-0000-000000000000"
AT = datetime.datetime(2024, 3, 5, 10, 20, 30, 123000, tzinfo=datetime.UTC)
Row = tuple[int, str | None, int]


def rows(spark: SparkSession, *wanted: Row) -> DataFrame:
    return spark.createDataFrame([(datetime.date(2024, 3, day), site, n, AT) for day, site, n in wanted], SCHEMA)


def read(frame: DataFrame) -> list[Row]:
    return sorted(((row.day.day, row.site, row.n) for row in frame.collect()), key=lambda row: row[2])


@pytest.mark.long
def test_every_reader_sees_every_row_once(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "table"
    table = Table(spark, str(root), SCHEMA, ("day", "site"), order="n")
    assert (table.read().collect(), table.batch(), count(root)) == ([], -1, 0)

    table.append(rows(spark, (5, "a/b=c", 2), (5, "a/b=c", 1), (6, None, 3)), 0, QUERY)
    table.append(rows(spark, (5, "a/b=c", 4)), 1, QUERY)
    table.append(rows(spark, (5, "a/b=c", 4)), 1, QUERY)
    table.append(rows(spark), 2, QUERY)

    expected = [(5, "a/b=c", 1), (5, "a/b=c", 2), (6, None, 3), (5, "a/b=c", 4)]
    assert read(table.read()) == expected
    asked = "SELECT day(day), site, n, seen FROM rows ORDER BY n"
    assert by_duckdb(root, asked) == [(*row, AT) for row in expected]
    assert table.partitions_since(0) == [{"day": "2024-03-05", "site": "a/b=c"}]
    assert read(table.read([{"day": "2024-03-06", "site": None}])) == [(6, None, 3)]
    assert table.read(columns=("site", "n")).where("n = 4").collect() == [("a/b=c", 4)]
    assert (table.batch(), count(root)) == (2, 4)

    assert table.merge([{"day": "2024-03-05", "site": "a/b=c"}]) > 0

    assert by_duckdb(root, asked) == [(*row, AT) for row in expected]
    assert sorted((file.batch, file.rows) for file in table.files()) == [(0, 1), (1, 3)]


@pytest.mark.long
def test_a_crowded_partition_is_merged(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ams.tables.upkeep._CROWDED", 1)
    table = Table(spark, str(tmp_path / "table"), SCHEMA, ("day",))

    for number in range(3):
        table.append(rows(spark, (5, "a", number), (6 + number, "b", number)), number, QUERY)

    assert sorted((file.partition["day"], file.batch, file.rows) for file in table.files()) == [
        ("2024-03-05", 2, 3),
        ("2024-03-06", 0, 1),
        ("2024-03-07", 1, 1),
        ("2024-03-08", 2, 1),
    ]
    assert by_duckdb(tmp_path / "table", "SELECT count(*) FROM rows") == [(6,)]


def test_results_are_replaced_partition_by_partition_in_one_step(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "result"
    result = Table(spark, str(root), SCHEMA, ("day",), order="n")

    result.replace(rows(spark, (5, "a", 2), (5, "a", 1), (6, "b", 3)))
    result.replace(rows(spark, (5, "a", 9)))
    assert read(result.read()) == [(6, "b", 3), (5, "a", 9)]
    assert len(files_of(root)) == 2

    result.replace(rows(spark, (5, "a", 7)), [{"day": "2024-03-05"}, {"day": "2024-03-06"}])
    assert read(result.read()) == [(5, "a", 7)]
    assert read(rows_of(spark, root, 1)) == [(5, "a", 1), (5, "a", 2), (6, "b", 3)]  # as it was after the first
    assert [row["n"] for row in listed(root, [{"day": "2024-03-05"}], columns=("n",))] == [7]


@pytest.mark.long
def test_a_result_without_partitions_is_replaced_by_nothing_too(spark: SparkSession, tmp_path: Path) -> None:
    result = Table(spark, str(tmp_path / "result"), SCHEMA)
    result.replace(rows(spark, (5, "a", 2)))

    result.replace(rows(spark))

    assert (result.read().collect(), listed(tmp_path / "result"), listed(tmp_path / "none")) == ([], [], [])


@pytest.mark.long
def test_a_table_may_be_read_while_it_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    result = Table(spark, str(tmp_path / "result"), SCHEMA)
    result.replace(rows(spark, (5, "a", 2)))
    before = result.read()

    result.replace(before.unionByName(rows(spark, (5, "b", 3))))

    assert (read(before), read(result.read())) == ([(5, "a", 2)], [(5, "a", 2), (5, "b", 3)])


@pytest.mark.long
def test_every_kind_of_column_comes_back_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    parts = ArrayType(StructType().add("at", "timestamp").add("n", "long"))
    schema = StructType().add("data", "binary").add("share", "double").add("exact", "decimal(12,3)")
    schema = schema.add("words", MapType(StringType(), StringType())).add("parts", parts)
    given = spark.createDataFrame([(b"\0\xff", 0.5, None, {"a": "ü"}, [(AT, 1)]), (None,) * 5], schema)
    table = Table(spark, str(tmp_path / "table"), schema)

    table.append(given, 0, QUERY)

    assert sorted(map(repr, table.read().collect())) == sorted(map(repr, given.collect()))
    assert rows_of(spark, tmp_path / "table").schema.simpleString() == schema.simpleString()


@pytest.mark.long
def test_an_address_of_a_file_is_a_path_and_others_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    Table(spark, f"file://{tmp_path}/table", SCHEMA).append(rows(spark, (5, "a", 1)), 0, QUERY)

    assert count(tmp_path / "table") == 1
    with pytest.raises(WrongTable, match="hdfs"):
        Table(spark, "hdfs://names/table", SCHEMA).append(rows(spark, (5, "a", 1)), 0, QUERY)
    with pytest.raises(WrongTable, match="is no table"):
        rows_of(spark, tmp_path / "none")
