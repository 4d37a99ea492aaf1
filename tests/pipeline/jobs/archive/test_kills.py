"""An archive in an object store whose driver is killed at a bad moment, with executors in processes of their own."""

from pathlib import Path

import pytest

from ams.client import Message
from ams.pipeline.jobs.archive import Selection, selected
from ams.tables import upkeep
from ams.tables.location import Location
from tests.faults.pipeline.driving import command_of
from tests.faults.pipeline.kills import run_through_kills
from tests.pipeline.delta import by_duckdb
from tests.pipeline.garden import Garden
from tests.support import parts, s3

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.go]

DAY = 86_400_000
MESSAGES = 40


def test_a_killed_archive_is_as_one_that_was_not(
    garden: Garden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("plants", "stones"):
        garden.topic(topic, *([Message(b"%d" % number * 50)] * (MESSAGES // 2) for number in range(2)))
        garden.served.clock.advance(DAY)
    for name, value in s3.environment(parts.s3_address()).items():  # driver and executors find it there
        monkeypatch.setenv(name, value)
    path = parts.s3_table()
    settings = {"spark.master": "local-cluster[1,2,512]", "spark.executor.memory": "512m"}
    options = {"path": path, "batch_messages": 20, "closed_after": 0}

    killed = run_through_kills(
        command_of(garden.tell(tmp_path / "work", "archive:JOB", options, settings)),
        kills=1,
        working=lambda: Location.of(path).size("_delta_log/00000000000000000001.json") is not None,
        log=tmp_path / "log",
        spread=2.0,
        seed=len(garden.name),
    )

    assert killed.kills == 1
    counts = 'count(*), count(DISTINCT "offset"), min("offset"), max("offset")'
    assert by_duckdb(path, f"SELECT topic, {counts} FROM rows GROUP BY 1 ORDER BY 1") == [
        (topic, MESSAGES, MESSAGES, 0, MESSAGES - 1) for topic in ("plants", "stones")
    ]
    files = selected(path, Selection())
    assert upkeep.check(path).wrong == []
    assert all("/merged-" in file.path for file in files)
    kept = b"".join(each.read_bytes() for each in tmp_path.rglob("*") if each.is_file())
    assert s3.SECRET.encode() not in kept
    assert s3.KEY.encode() not in kept
