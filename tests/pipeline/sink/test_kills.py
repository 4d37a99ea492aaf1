"""The driver is killed while it publishes; every message is published once, in order."""

import json
import sys
from pathlib import Path

import pytest

from ams.client import Message, wire
from tests.faults.pipeline.kills import batch_begins, run_through_kills
from tests.pipeline.garden import Garden

COUNT, SITES = 2000, 4
APART = "local-cluster[1,2,512]"
"""Executors in processes of their own, where nothing is shared with the driver by accident."""


@pytest.mark.long
@pytest.mark.spark
def test_republishing_through_kills_loses_and_doubles_nothing(garden: Garden, tmp_path: Path) -> None:
    _told(garden, tmp_path / "told.json", tmp_path / "work")
    garden.topic("in", [Message(b"%d" % number, {"site": str(number % SITES)}) for number in range(COUNT)])
    working = batch_begins(tmp_path / "work" / "checkpoint")
    command = [sys.executable, "-m", "tests.faults.pipeline.driver", str(tmp_path / "told.json")]
    killed = run_through_kills(command, kills=1, working=working, log=tmp_path / "log", spread=1.5)

    assert killed.kills == 1
    for site in range(SITES):
        messages = garden.client.call(wire.read_topic(garden.name, f"SITE_{site}"))
        assert [int(each.payload()) for each in messages] == list(range(site, COUNT, SITES))


def _told(garden: Garden, file: Path, work: Path) -> None:
    rule = {"attribute": "site", "to": ["SITE_{site}"]}
    told = {
        "job": "ams.pipeline.jobs.republish:JOB",
        "work": str(work),
        "source": garden.options,
        "settings": {"spark.master": APART, "spark.executor.memory": "512m"},
        "options": {"topics": ["in"], "rules": [rule], "create_topics": True, "batch_messages": COUNT // 2},
    }
    file.write_text(json.dumps(told))
