"""Writing rows into tables of PostgreSQL."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from ams.pipeline.errors import PipelineError, WrongOption, WrongTable
from ams.pipeline.postgres import address, check_table, connected, upsert
from ams.storage.postgresql import conninfo

TABLE = """
    CREATE TABLE sums (
        site text, year int, hours double precision, at timestamptz, told jsonb, names text[], kept text DEFAULT 'ours',
        PRIMARY KEY (site, year)
    )
"""
COLUMNS = "site string, year int, hours double, at timestamp, told struct<a: int>, names array<string>"
AT = datetime(2024, 3, 5, 10, tzinfo=UTC)


@pytest.fixture
def table(postgres_url: str) -> Iterator["psycopg.Connection[Any]"]:
    with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        connection.execute(TABLE)
        connection.execute("SET timezone = 'UTC'")
        yield connection


def test_rows_take_the_place_of_older_rows_of_their_key(
    spark: SparkSession, postgres_url: str, table: "psycopg.Connection[Any]"
) -> None:
    to = conninfo(postgres_url)
    rows: list[Any] = [("A", 2024, 1.5, AT, {"a": 1}, ["x"]), ("B", 2024, None, AT.replace(hour=9), {"a": None}, None)]
    later = AT.replace(hour=11)

    first = upsert(spark.createDataFrame(rows, COLUMNS), to, "sums", ["site", "year"])
    again = upsert(spark.createDataFrame(rows, COLUMNS), to, "public.sums", ["year", "site"])
    changed = [
        ("A", 2024, 9.0, AT, None, ["y"]),
        ("A", 2024, 2.0, later, None, ["x"]),
        ("B", 2024, 7.0, AT.replace(hour=8), None, None),
    ]
    newer = upsert(spark.createDataFrame(changed, COLUMNS), to, "sums", ["site", "year"], newer=["at"])

    assert (first, again, newer) == (2, 0, 1)
    assert table.execute("SELECT * FROM sums ORDER BY site").fetchall() == [
        ("A", 2024, 2.0, later, None, ["x"], "ours"),
        ("B", 2024, None, AT.replace(hour=9), {"a": None}, None, "ours"),
    ]
    doubled = spark.createDataFrame([changed[0], changed[1]], COLUMNS)
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
    said = address("", {"AMS_PIPELINE_DATABASE": "postgresql://me:secret@db.example/portal"})

    assert "host=db.example" in said
    assert "user=you" in address("postgresql://you@db.example/portal", {})
    with pytest.raises(WrongOption, match="option database: not a PostgreSQL URL"):
        address("https://db.example", {})
    with pytest.raises(WrongOption, match="leave the password out") as wrong:
        address("postgresql://me:secret@db.example/portal", {})
    assert "secret" not in str(wrong.value)


def test_a_database_that_is_away_is_waited_for_and_then_told(postgres_url: str) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"host=127.0.0.1 port={taken.getsockname()[1]} dbname=x connect_timeout=2"
        with pytest.raises(PipelineError, match="the database cannot be used: .*refused"), connected(nobody, 0.5):
            pass


def test_a_database_that_comes_back_is_used(postgres_url: str) -> None:
    given = psycopg.conninfo.conninfo_to_dict(postgres_url)
    with closing(socket.socket()) as gate:
        gate.bind(("127.0.0.1", 0))
        given |= {"host": "127.0.0.1", "port": str(gate.getsockname()[1])}
        before = given | {"port": psycopg.conninfo.conninfo_to_dict(postgres_url)["port"]}
        opened = threading.Timer(0.5, _forward, [gate, int(str(before["port"]))])
        opened.start()
        with connected(psycopg.conninfo.make_conninfo("", **given), 20) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        opened.join()


def _forward(gate: socket.socket, port: int) -> None:
    """Take one connection and pass its bytes on, until it ends."""
    gate.listen()
    here, _ = gate.accept()
    there = socket.create_connection(("127.0.0.1", port))
    ways = [threading.Thread(target=_pump, args=pair) for pair in ((here, there), (there, here))]
    for way in ways:
        way.start()
    for way in ways:
        way.join()
    here.close()
    there.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    while data := source.recv(65_536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)
