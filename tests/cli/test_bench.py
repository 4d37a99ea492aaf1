"""`ams bench` against a real service: what is counted was done, and nothing is left behind."""

import json
import signal
import time

import pytest

from tests.cli.conftest import Ams, Begin
from tests.support.waiting import wait_until


def left(ams: Ams) -> list[str]:
    made = ams.json("topics", "list")["topics"] + ams.json("subs", "list")["subscriptions"]
    return [each["name"] for each in made]


@pytest.mark.parametrize("what", ["publish", "consume", "roundtrip"])
def test_so_many_messages_are_measured_and_what_was_made_is_deleted(ams: Ams, project: str, what: str) -> None:
    ran = ams("bench", what, "--messages", "20", "-o", "json", *(["--batch", "10"] if what != "roundtrip" else []))

    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert (found["what"], found["errors"]) == (what, 0)
    assert 20 <= found["messages"] <= 60  # callers beside each other each end with a request
    assert found["bytes"] == found["messages"] * 200
    assert 0 < found["p50"] <= found["p99"] <= found["max"]
    assert left(ams) == []


def test_a_topic_that_is_named_gets_the_messages_and_stays_and_people_see_the_rates(ams: Ams, project: str) -> None:
    ams("topics", "create", "readings")
    ran = ams("bench", "publish", "--messages", "6", "--batch", "3", "--connections", "1", "--topic", "readings")

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("publish ")
    assert "6 messages in 2 requests" in ran.stdout
    assert "p99" in ran.stdout
    assert left(ams) == [f"/projects/{project}/topics/readings"]
    assert ams.json("topics", "offsets", "readings")["max"] == 6


def test_sigterm_gives_what_was_measured_so_far_and_leaves_nothing(ams: Ams, project: str, begin: Begin) -> None:
    process = begin("bench", "publish", "--seconds", "60", "-o", "json")
    wait_until(lambda: left(ams), process=process)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=30)

    assert process.returncode == 0
    assert json.loads(said)["seconds"] < 60
    assert left(ams) == []


def test_a_topic_that_is_not_there_is_one_clear_error(ams: Ams, project: str) -> None:
    ran = ams("bench", "publish", "--seconds", "0.5", "--topic", "none")

    assert ran.returncode == 1
    assert "no request was answered: Topic doesn't exist" in ran.stderr
