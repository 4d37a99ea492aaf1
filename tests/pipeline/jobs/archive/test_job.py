"""The archive of a project, from its topics to checked and merged files."""

import re
import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from ams.client import Message
from ams.pipeline.errors import CheckFailed, WrongOption, WrongTable
from ams.pipeline.jobs.archive.closing import merge_closed
from ams.pipeline.jobs.archive.job import CheckOptions, Options, run, run_check
from ams.pipeline.jobs.archive.table import (
    PARTITIONS,
    RANGES,
    WITHOUT_KEYS,
    Selection,
    archive_table,
    archived,
    dated,
)
from ams.pipeline.running import Run
from ams.pipeline.tables import Table
from tests.pipeline.garden import Garden, numbered

DAY = 86_400_000


def by_duckdb(path: Path, query: str) -> list[Any]:
    files = f"read_parquet('{path}/project=*/**/*.parquet', hive_partitioning=true, union_by_name=true)"
    return duckdb.sql(query.replace("ARCHIVE", files)).fetchall()


def test_a_project_is_archived_merged_and_checked(
    spark: SparkSession, garden: Garden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "archive"

    def archive(**options: Any) -> None:
        job = Run(spark, tmp_path / "work", garden.options)
        run(job, Options(path=str(path), batch_messages=3, **options))

    odd = Message(bytes(range(256)), {"naïve": "☃", "": "x=y"})
    garden.topic("plants", [odd, *numbered(4)])
    garden.topic("stones", numbered(1))
    archive(merge=False)
    garden.served.clock.advance(DAY)
    garden.publish("plants", numbered(2, 4))
    garden.topic("birds", numbered(1))
    archive(merge=False)

    assert by_duckdb(path, 'SELECT topic, list("offset" ORDER BY "offset") FROM ARCHIVE GROUP BY 1 ORDER BY 1') == [
        ("birds", [0]),
        ("plants", [0, 1, 2, 3, 4, 5, 6]),
        ("stones", [0]),
    ]
    first = (
        'SELECT data, attributes, message_id, project, publish_time::DATE = date FROM ARCHIVE ORDER BY topic, "offset"'
    )
    assert by_duckdb(path, first)[1] == (odd.data, dict(odd.attributes), "0", garden.name, True)
    assert by_duckdb(path, "SELECT count(DISTINCT date) FROM ARCHIVE") == [(2,)]
    before = by_duckdb(path, "SELECT * FROM ARCHIVE ORDER BY ALL")

    archive(closed_after=0)

    assert by_duckdb(path, "SELECT * FROM ARCHIVE ORDER BY ALL") == before
    assert "archive: merged the files of 1 topics and days" in "".join(capsys.readouterr())
    assert len(list(path.glob("project=*/topic=plants/*/merged-*/*.parquet"))) == 1
    selected = archived(spark, str(path), Selection(topics=("pl*",), last=str(before[0][-1])))
    assert {(row.topic, row.offset) for row in selected.collect()} <= {("plants", number) for number in range(7)}

    check_finds(spark, path, capsys)


def test_an_archive_of_before_there_were_ordering_keys_is_gone_on_with(
    spark: SparkSession, garden: Garden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    garden.topic("plants", numbered(2), [Message(b"2", {}, "bed 4")])
    messages = spark.read.format("ams").options(**garden.options, topic="plants").load()
    before = Table(spark, str(tmp_path / "a"), WITHOUT_KEYS, PARTITIONS, ranges=RANGES, order=("offset",))
    before.append(dated(messages.where("offset < 2")), 0, "query")

    archive_table(spark, str(tmp_path / "a")).append(dated(messages.where("offset = 2")), 1, "query")

    found = archived(spark, str(tmp_path / "a")).orderBy("offset").collect()
    assert [(bytes(row.data), row.ordering_key) for row in found] == [(b"0", None), (b"1", None), (b"2", "bed 4")]
    assert by_duckdb(tmp_path / "a", 'SELECT ordering_key FROM ARCHIVE ORDER BY "offset"') == [
        (None,), (None,), ("bed 4",),
    ]  # fmt: skip
    merge_closed(archive_table(spark, str(tmp_path / "a")), date.max, 0, 2**20)
    assert archived(spark, str(tmp_path / "a")).orderBy("offset").collect() == found
    with pytest.raises(WrongTable, match="other columns"):
        before.append(dated(messages), 2, "query")


def check_finds(spark: SparkSession, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """See that the check accepts the archive, and notices everything that is done to it."""

    def check(**options: Any) -> str:
        run_check(Run(spark, path.parent / "checking", {}), CheckOptions(archive=str(path), **options))
        return capsys.readouterr().out

    assert re.search(r"/plants +7 +0 +6 ", check())
    assert "plants" not in check(topics=("stones",))

    [stones] = path.glob("project=*/topic=stones/*")
    shutil.copytree(next(stones.iterdir()), stones / "copy")
    with pytest.raises(CheckFailed, match="1 thing is not as it should be in"):
        check()
    assert "/copy is not in the manifest" in capsys.readouterr().out
    shutil.rmtree(stones / "copy")

    [lost] = stones.glob("*/*.parquet")
    lost.unlink()
    with pytest.raises(CheckFailed):
        check()
    assert "holds 0 rows in 0 files, its manifest says 1 rows in 1 files" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Options(topics=()), "option topics: names no topic"),
        (lambda: Options(closed_after=-1), "option closed_after: -1 is less than 0"),
        (lambda: Options(file_mib=0), "option file_mib: 0 is less than 1"),
        (lambda: CheckOptions(archive="a", first="May"), "option first: 'May' is no day such as 2024-03-05"),
    ],
)
def test_options_that_cannot_be_name_themselves(make: Callable[[], object], reason: str) -> None:
    with pytest.raises(WrongOption, match=re.escape(reason)):
        make()
