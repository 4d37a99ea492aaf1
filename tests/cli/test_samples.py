"""Made-up days, published by a command that the demo of the pipeline has besides."""

import json

import pytest

from ams.cli.main import COMMANDS
from demo.pipeline.samples.__main__ import ENTRY, NAME
from tests.cli.conftest import Ams


@pytest.fixture(autouse=True)
def _command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, NAME, ENTRY)


def test_a_made_up_day_is_published_and_the_same_again(ams: Ams, project: str) -> None:
    arguments = ("sample", "federation", "--day", "2024-03-05", "--size", "services=3", "-o", "json")

    first, again = ams(*arguments), ams(*arguments)

    assert (first.returncode, first.stdout) == (0, again.stdout), first.stderr
    topics = json.loads(first.stdout)
    assert sum(topics.values()) > 3
    for topic, count in topics.items():
        described = ams.json("metrics", "topic", topic)
        [counted] = [each for each in described["metrics"] if each["metric"] == "topic.number_of_messages"]
        assert counted["timeseries"][0]["value"] == 2 * count


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ["nowhere"],
            "option WORLD: there is no 'nowhere'; there are accounting, alarms, cloud, federation, monitoring",
        ),
        (["alarms", "--size", "moons=3"], "option --size: alarms has no 'moons'; there are sites, outages"),
        (["alarms", "--size", "sites=many"], "option --size: sites is int, and 'many' is none"),
        (["alarms", "--size", "sites"], "--size 'sites' must look like KEY=VALUE"),
        (["alarms", "--day", "today"], "--day 'today' is no day such as 2024-03-05"),
    ],
)
def test_what_cannot_be_made_up_is_said(ams: Ams, arguments: list[str], reason: str) -> None:
    ran = ams("sample", *arguments)

    assert (ran.returncode, ran.stderr) == (2, f"ams: {reason}\n")
