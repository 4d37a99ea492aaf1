"""An archive whose driver is killed at a bad moment, with executors in processes of their own."""

import json
import sys
from pathlib import Path

import duckdb
import pytest

from ams.client import Message
from ams.pipeline.jobs.archive.checking import differences
from ams.pipeline.tables.commits import Commits
from ams.pipeline.tables.files import LocalFiles
from tests.faults.pipeline.kills import run_through_kills
from tests.pipeline.garden import Garden

pytestmark = pytest.mark.spark

DAY = 86_400_000
MESSAGES = 40


@pytest.mark.long
def test_a_killed_archive_is_as_one_that_was_not(garden: Garden, tmp_path: Path) -> None:
    for topic in ("plants", "stones"):
        garden.topic(topic, *([Message(b"%d" % number * 50)] * (MESSAGES // 2) for number in range(2)))
        garden.served.clock.advance(DAY)
    path = tmp_path / "archive"
    told = {
        "job": "ams.pipeline.jobs.archive.job:JOB",
        "work": str(tmp_path / "work"),
        "source": garden.options,
        "options": {"path": str(path), "batch_messages": 20, "closed_after": 0},
        "settings": {"spark.master": "local-cluster[1,2,512]", "spark.executor.memory": "512m"},
    }
    (tmp_path / "told.json").write_text(json.dumps(told))

    killed = run_through_kills(
        [sys.executable, "-m", "tests.faults.pipeline.driver", str(tmp_path / "told.json")],
        kills=1,
        working=lambda: LocalFiles().exists(str(path / "_manifest" / "commit-000000000001.json")),
        log=tmp_path / "log",
        spread=2.0,
        seed=len(garden.name),
    )

    assert killed.kills == 1
    files = f"read_parquet('{path}/project=*/**/*.parquet', hive_partitioning=true)"
    counts = 'count(*), count(DISTINCT "offset"), min("offset"), max("offset")'
    assert duckdb.sql(f"SELECT topic, {counts} FROM {files} GROUP BY 1 ORDER BY 1").fetchall() == [
        (topic, MESSAGES, MESSAGES, 0, MESSAGES - 1) for topic in ("plants", "stones")
    ]
    commits = Commits(LocalFiles(), str(path))
    folders = list(commits.manifest.load().all())
    assert list(differences(commits.files, str(path), folders)) == []
    assert all("merged-" in folder.path for folder in folders)
    assert list((path / "_work").iterdir()) == []
