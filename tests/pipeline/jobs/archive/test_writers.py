"""The job `archive` and `ams archive` write the same table, and neither writes into that of the other."""

import threading
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from ams.client import Message
from ams.pipeline.archiving import Archiver, Wanted, alone
from ams.pipeline.errors import WrongTable
from ams.pipeline.jobs.archive import CheckOptions, Options, archived, run, run_check
from ams.pipeline.jobs.replay import Options as ReplayOptions
from ams.pipeline.jobs.replay import run as replay
from ams.pipeline.running import Run
from ams.pipeline.service import Service
from ams.tables.location import Location
from tests.pipeline.delta import by_duckdb
from tests.pipeline.garden import Garden, numbered

pytestmark = pytest.mark.long

DAY = 86_400_000


def by_spark(spark: SparkSession, garden: Garden, path: Path) -> None:
    run(Run(spark, path.parent / "work", garden.options), Options(path=str(path), batch_messages=3))


def without_spark(garden: Garden, path: Path) -> None:

    wanted = Wanted(project=garden.name, batch_messages=3)
    with alone(Location.of(path)), Service(garden.access) as service:
        archiver = Archiver(service, Location.of(path), wanted, threading.Event(), print)
        archiver.begin()
        archiver.run()


def test_both_write_the_same_rows_into_tables_that_are_read_alike(
    spark: SparkSession, garden: Garden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, of_spark = tmp_path / "ours", tmp_path / "spark"
    garden.topic("plants", [Message(bytes(range(256)), {"naïve": "☃", "": "x=y"}, "bed 4"), *numbered(4)])
    garden.served.clock.advance(DAY)
    garden.publish("plants", numbered(3))
    garden.topic("stones", numbered(2))
    by_spark(spark, garden, of_spark)
    without_spark(garden, ours)

    one, other = DeltaTable(ours), DeltaTable(of_spark)
    assert one.schema() == other.schema()
    assert one.metadata().partition_columns == other.metadata().partition_columns
    assert one.protocol() == other.protocol()
    rows = "SELECT * FROM rows ORDER BY ALL"
    assert by_duckdb(ours, rows) == by_duckdb(of_spark, rows)
    assert len(by_duckdb(ours, "SELECT DISTINCT topic, date FROM rows")) == 3
    read = [sorted(map(str, archived(spark, str(each)).collect())) for each in (ours, of_spark)]
    assert read[0] == read[1]
    for path in (ours, of_spark):
        run_check(Run(spark, tmp_path / "checking", {}), CheckOptions(archive=str(path)))
        again = Run(spark, tmp_path / f"replay-{path.name}", garden.options)
        target = {"to": f"again-{path.name}", "create_topics": True}
        replay(again, ReplayOptions(archive=str(path), topic=f"{garden.name}/plants", **target))
        assert again.progress.messages == 8
    capsys.readouterr()


def test_neither_writes_into_the_table_of_the_other(spark: SparkSession, garden: Garden, tmp_path: Path) -> None:
    ours, of_spark = tmp_path / "ours", tmp_path / "spark"
    garden.topic("plants", numbered(2))
    by_spark(spark, garden, of_spark)
    without_spark(garden, ours)

    with pytest.raises(WrongTable, match="is written by `ams archive`, whose place is in the table"):
        by_spark(spark, garden, ours)
    with pytest.raises(WrongTable, match="is written by the job archive, whose place is in its own checkpoint"):
        without_spark(garden, of_spark)
