"""The jobs `archive` and `archive-check`."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ams.client import Message
from ams.pipeline.definition.plans import read_plan
from ams.pipeline.errors import CheckFailed, WrongOption
from ams.pipeline.jobs.archive import CheckOptions, Options, Selection, archived, run, run_check, steps, told
from ams.pipeline.running import Run
from tests.pipeline.delta import by_duckdb, files_of
from tests.pipeline.garden import Garden, numbered


def test_gaps_and_doubles_are_told(spark: SparkSession) -> None:
    offsets = [("meadow", "plants", number) for number in (0, 1, 3, 4, 4, 9)] + [("meadow", "stones", 5)]
    rows = steps(spark.createDataFrame(offsets, "project string, topic string, offset long")).collect()

    assert sorted(told((row.project, row.topic, row.previous, row.offset)) for row in rows) == [
        "meadow/plants: offset 2 is missing",
        "meadow/plants: offset 4 is there twice",
        "meadow/plants: offsets 5 to 8 are missing",
    ]


DAY = 86_400_000


@pytest.mark.long
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

    assert by_duckdb(path, 'SELECT topic, list("offset" ORDER BY "offset") FROM rows GROUP BY 1 ORDER BY 1') == [
        ("birds", [0]),
        ("plants", [0, 1, 2, 3, 4, 5, 6]),
        ("stones", [0]),
    ]
    first = 'SELECT data, attributes, message_id, project, publish_time::DATE = date FROM rows ORDER BY topic, "offset"'
    assert by_duckdb(path, first)[1] == (odd.data, dict(odd.attributes), "0", garden.name, True)
    assert by_duckdb(path, "SELECT count(DISTINCT date) FROM rows") == [(2,)]
    before = by_duckdb(path, "SELECT * FROM rows ORDER BY ALL")

    archive(closed_after=0)

    assert by_duckdb(path, "SELECT * FROM rows ORDER BY ALL") == before
    assert "archive: merged 2 files of days that are closed" in "".join(capsys.readouterr())
    assert len([name for name in files_of(path) if "topic=plants" in name and "/merged-" in name]) == 1
    selected = archived(spark, str(path), Selection(topics=("pl*",), last=str(before[0][-1])))
    assert {(row.topic, row.offset) for row in selected.collect()} <= {("plants", number) for number in range(7)}

    check_finds(spark, path, capsys)


def check_finds(spark: SparkSession, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """See that the check accepts the archive, and notices everything that is done to it."""

    def check(**options: Any) -> str:
        run_check(Run(spark, path.parent / "checking", {}), CheckOptions(archive=str(path), **options))
        return capsys.readouterr().out

    assert re.search(r"/plants +7 +0 +6 ", check())
    assert "plants" not in check(topics=("stones",))

    [stones] = [name for name in files_of(path) if "topic=stones" in name]
    content = (path / stones).read_bytes()
    changed = bytearray(content)
    changed[40] ^= 1  # in the first page, which has a checksum
    for damaged in (changed, content[:-1], None):
        (path / stones).write_bytes(damaged) if damaged else (path / stones).unlink()
        with pytest.raises(CheckFailed, match="1 thing is not as it should be in"):
            check()
        assert "topic=stones" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Options(topics=()), "option topics: names no topic"),
        (lambda: read_plan("archive", ["file_mib=0"]), "option file_mib: Expected int >= 1"),
        (lambda: read_plan("archive", ["batch_messages=0"]), "option batch_messages: Expected int >= 1"),
        (lambda: CheckOptions(archive="a", first="May"), "option first: 'May' is no day such as 2024-03-05"),
    ],
)
def test_options_that_cannot_be_name_themselves(make: Callable[[], object], reason: str) -> None:
    with pytest.raises(WrongOption, match=re.escape(reason)):
        make()
