"""Executors, workers and drivers of a cluster of Spark are killed, and what is left is as if nobody had been."""

from pathlib import Path

import pytest

from ams.client import Message, wire
from tests.faults.pipeline import campaign
from tests.faults.pipeline.driving import command_of
from tests.faults.pipeline.kills import batch_begins, run_through_kills
from tests.faults.pipeline.on_cluster import killing
from tests.pipeline.garden import Garden
from tests.support.service import live_service

pytestmark = pytest.mark.spark

COUNT, SITES = 1200, 3


@pytest.mark.long
def test_one_kill_of_each_loses_and_doubles_nothing(garden: Garden, tmp_path: Path) -> None:
    garden.topic("in", [Message(b"%d" % number, {"site": str(number % SITES)}) for number in range(COUNT)])
    options = {
        "topics": ["in"],
        "rules": [{"attribute": "site", "to": ["SITE_{site}"]}],
        "create_topics": True,
        "batch_messages": COUNT // 3,
    }
    work = tmp_path / "work"

    with killing(tmp_path / "cluster", seed=1, workers=2) as kills:
        killed = run_through_kills(
            command_of(garden.tell(work, "republish:JOB", options, kills.settings)),
            kills=1,
            working=batch_begins(work / "checkpoint"),
            log=tmp_path / "log",
            spread=0.5,
            others=kills.each,
        )

    assert (killed.kills, kills.workers) == (1, 1)
    assert any("has ended" in line for line in kills.said)
    for site in range(SITES):
        messages = garden.client.call(wire.read_topic(garden.name, f"SITE_{site}", most=COUNT))
        assert [int(each.payload()) for each in messages] == list(range(site, COUNT, SITES))


@pytest.mark.long
def test_an_archive_on_a_cluster_is_under_kills_what_it_is_here(tmp_path: Path) -> None:
    # All other jobs: make faults-pipeline CLUSTER=--cluster
    with live_service(tmp_path / "data") as service, killing(tmp_path / "cluster", seed=2) as kills:
        _, different = campaign.run_case(campaign.CASES["archive"](2), service, tmp_path / "archive", 1, 2, kills)

    assert different == []
    assert kills.executors
