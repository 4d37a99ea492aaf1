"""Tables of Spark and of PostgreSQL, read back, also by other programs."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, MapType, StringType, StructType

from ams.pipeline.errors import PipelineError, WrongOption, WrongTable
from ams.pipeline.postgres import address, check_table, open_session, upsert
from ams.pipeline.tables import Table, count, rows_of
from ams.storage.postgresql import conninfo
from ams.tables.table import open_table
from tests.pipeline.delta import by_duckdb, files_of

SCHEMA = StructType().add("day", "date").add("site", "string").add("n", "long").add("seen", "timestamp")
QUERY = "1f0c9a7e-0000-0000-0000-000000000000"
ROW_TIME = datetime(2024, 3, 5, 10, 20, 30, 123000, tzinfo=UTC)
Row = tuple[int, str | None, int]


def rows(spark: SparkSession, *wanted: Row) -> DataFrame:
    return spark.createDataFrame([(date(2024, 3, day), site, n, ROW_TIME) for day, site, n in wanted], SCHEMA)


def collect_rows(frame: DataFrame) -> list[Row]:
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
    assert collect_rows(table.read()) == expected
    asked = "SELECT day(day), site, n, seen FROM rows ORDER BY n"
    assert by_duckdb(root, asked) == [(*row, ROW_TIME) for row in expected]
    assert table.partitions_since(0) == [{"day": "2024-03-05", "site": "a/b=c"}]
    assert collect_rows(table.read([{"day": "2024-03-06", "site": None}])) == [(6, None, 3)]
    assert table.read(columns=("site", "n")).where("n = 4").collect() == [("a/b=c", 4)]
    assert (table.batch(), count(root)) == (2, 4)

    assert table.merge([{"day": "2024-03-05", "site": "a/b=c"}]) > 0

    assert by_duckdb(root, asked) == [(*row, ROW_TIME) for row in expected]
    assert sorted((file.batch, file.rows) for file in table.files()) == [(0, 1), (1, 3)]


def test_results_are_replaced_partition_by_partition_in_one_step(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "result"
    result = Table(spark, str(root), SCHEMA, ("day",), order="n")

    result.replace(rows(spark, (5, "a", 2), (5, "a", 1), (6, "b", 3)))
    result.replace(rows(spark, (5, "a", 9)))
    assert collect_rows(result.read()) == [(6, "b", 3), (5, "a", 9)]
    assert len(files_of(root)) == 2

    result.replace(rows(spark, (5, "a", 7)), [{"day": "2024-03-05"}, {"day": "2024-03-06"}])
    assert collect_rows(result.read()) == [(5, "a", 7)]
    assert collect_rows(rows_of(spark, root, 1)) == [(5, "a", 1), (5, "a", 2), (6, "b", 3)]  # as it was after the first
    found = open_table(str(root))
    [day] = found.batches(("n",), found.select([{"day": "2024-03-05"}]))
    assert day.to_pylist() == [{"n": 7}]


@pytest.mark.long
def test_every_kind_of_column_comes_back_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    parts = ArrayType(StructType().add("at", "timestamp").add("n", "long"))
    schema = StructType().add("data", "binary").add("share", "double").add("exact", "decimal(12,3)")
    schema = schema.add("words", MapType(StringType(), StringType())).add("parts", parts)
    given = spark.createDataFrame([(b"\0\xff", 0.5, None, {"a": "ü"}, [(ROW_TIME, 1)]), (None,) * 5], schema)
    table = Table(spark, str(tmp_path / "table"), schema)

    table.append(given, 0, QUERY)

    assert sorted(map(repr, table.read().collect())) == sorted(map(repr, given.collect()))
    assert rows_of(spark, tmp_path / "table").schema.simpleString() == schema.simpleString()


TABLE = """
    CREATE TABLE sums (
        site text, year int, hours double precision, at timestamptz, told jsonb, names text[], kept text DEFAULT 'ours',
        PRIMARY KEY (site, year)
    )
"""
COLUMNS = "site string, year int, hours double, at timestamp, told struct<a: int>, names array<string>"
TEN_O_CLOCK = datetime(2024, 3, 5, 10, tzinfo=UTC)


@pytest.fixture
def table(postgres_url: str) -> Iterator["psycopg.Connection[Any]"]:
    with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        connection.execute(TABLE)
        connection.execute("SET timezone = 'UTC'")
        yield connection


@pytest.mark.long
def test_new_rows_replace_old_by_key(spark: SparkSession, postgres_url: str, table: "psycopg.Connection[Any]") -> None:
    to = conninfo(postgres_url)
    rows: list[Any] = [
        ("A", 2024, 1.5, TEN_O_CLOCK, {"a": 1}, ["x"]),
        ("B", 2024, None, TEN_O_CLOCK.replace(hour=9), {"a": None}, None),
    ]
    later = TEN_O_CLOCK.replace(hour=11)

    first = upsert(spark.createDataFrame(rows, COLUMNS), to, "sums", ["site", "year"])
    again = upsert(spark.createDataFrame(rows, COLUMNS), to, "public.sums", ["year", "site"])
    changed = [("A", 2024, 2.0, later, None, ["x"]), rows[1]]
    newer = upsert(spark.createDataFrame(changed, COLUMNS), to, "sums", ["site", "year"])

    assert (first, again, newer) == (2, 0, 1)
    assert table.execute("SELECT * FROM sums ORDER BY site").fetchall() == [
        ("A", 2024, 2.0, later, None, ["x"], "ours"),
        ("B", 2024, None, TEN_O_CLOCK.replace(hour=9), {"a": None}, None, "ours"),
    ]
    doubled = spark.createDataFrame([rows[0], changed[0]], COLUMNS)
    with pytest.raises(Exception, match="table sums cannot be written: .*a second time"):
        upsert(doubled, to, "sums", ["site", "year"])
    keys = spark.createDataFrame([("A", 2024), ("C", 2024)], "site string, year int")
    assert upsert(keys, to, "sums", ["site", "year"]) == 1


def test_a_table_that_does_not_fit_is_told_and_left_alone(postgres_url: str, table: "psycopg.Connection[Any]") -> None:
    with pytest.raises(WrongTable, match="there is no table nowhere"):
        check_table(table, "nowhere", ["site"], ["site"])
    with pytest.raises(WrongTable, match="table sums has no column month, week"):
        check_table(table, "sums", ["site", "month", "week"], ["site"])
    with pytest.raises(WrongTable, match=r"no primary key or unique index of \(site\)"):
        check_table(table, "sums", ["site"], ["site"])
    table.execute("CREATE UNIQUE INDEX part ON sums (site) WHERE year > 2000")
    with pytest.raises(WrongTable, match="no primary key or unique index"):
        check_table(table, "sums", ["site"], ["site"])
    table.execute("CREATE UNIQUE INDEX own ON sums (site) INCLUDE (hours)")
    check_table(table, "sums", ["site"], ["site"])


def test_the_address_comes_from_the_option_or_the_environment() -> None:
    assert "host=db.example" in address("", {"AMS_PIPELINE_DATABASE": "postgresql://me:secret@db.example/portal"})
    assert "user=you" in address("postgresql://you@db.example/portal", {})
    with pytest.raises(WrongOption, match="option database: not a PostgreSQL URL"):
        address("https://db.example", {})
    with pytest.raises(WrongOption, match="leave the password out") as wrong:
        address("postgresql://me:secret@db.example/portal", {})
    assert "secret" not in str(wrong.value)


def test_a_database_that_is_away_is_waited_for_and_then_told_and_one_that_refuses_us_at_once(postgres_url: str) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"host=127.0.0.1 port={taken.getsockname()[1]} dbname=x connect_timeout=2"
        with pytest.raises(PipelineError, match="the database cannot be used: .*refused"), open_session(nobody, 0.5):
            pass
    nowhere = make_conninfo(postgres_url, dbname="not_there")
    with (
        pytest.raises(PipelineError, match="the database cannot be used: .*does not exist"),
        open_session(nowhere, 3600),
    ):
        pass


def test_a_database_that_comes_back_is_used(postgres_url: str) -> None:
    to = make_conninfo(postgres_url)
    with closing(psycopg.connect(make_conninfo(to, dbname="postgres"), autocommit=True)) as server:
        name = f'DATABASE "{conninfo_to_dict(to)["dbname"]}"'
        server.execute(f"ALTER {name} ALLOW_CONNECTIONS false")
        opened = threading.Timer(0.5, server.execute, [f"ALTER {name} ALLOW_CONNECTIONS true"])
        opened.start()
        with open_session(to, 20) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        opened.join()
