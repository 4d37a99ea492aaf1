import json
import re

from tests.cli.conftest import Ams


def test_a_subscription_that_nobody_pulls_from_is_told(ams: Ams, project: str) -> None:
    ams("topic", "create", "jobs")
    ams("sub", "create", "reader", "--topic", "jobs")
    well = ams("doctor", "reader")
    ams("publish", "jobs", "--data", "hello")

    told = ams("doctor", "reader")

    assert (well.returncode, told.returncode) == (0, 1)
    assert "note   Nothing was ever published to its topic." in well.stdout.splitlines()
    assert "WRONG  1 message waits, and nobody has pulled since the service started." in told.stdout.splitlines()
    assert "last pull       -" in told.stdout.splitlines()
    found = json.loads(ams("doctor", "reader", "-o", "json").stdout)
    assert (found["healthy"], found["standing"]["backlog"]) == (False, 1)


def test_times_are_written_one_way(ams: Ams, project: str) -> None:
    ams("topics", "create", "jobs")
    ams("topics", "retention", "jobs", "36h")
    ams("subs", "create", "reader", "--topic", "jobs")
    ams("publish", "jobs", "--data", "hello")

    told = dict(re.split("  +", line) for line in ams("doctor", "reader").stdout.splitlines() if "  " in line)

    assert (told["deadline"], told["retention"]) == ("10s", "36h")
    assert re.fullmatch(r"\d+(\.\d)?s ago", told["last publish"])


def test_a_subscription_without_its_topic_has_no_figures(ams: Ams, project: str) -> None:
    ams("topic", "create", "jobs")
    ams("sub", "create", "reader", "--topic", "jobs")
    ams("topic", "delete", "jobs")

    told = ams("doctor", "reader")

    assert told.returncode == 1
    assert "backlog" not in told.stdout


def test_an_unknown_subscription_is_not_found(ams: Ams, project: str) -> None:
    assert ams("doctor", "none").returncode == 4


def test_without_a_subscription_the_connection_is_checked(ams: Ams, project: str) -> None:
    works = ams("doctor")

    assert works.returncode == 0
    assert [line.split()[0] for line in works.stdout.splitlines()] == ["endpoint", "user", "project"]
    assert ams("doctor", AMS_TOKEN="wrong").returncode == 3
    assert ams("doctor", "--project", "none").returncode == 4
    assert ams("doctor", AMS_ENDPOINT="https://localhost:1").returncode == 6


def test_a_consumer_of_the_project_is_let_in(ams: Ams, project: str) -> None:
    made = json.loads(ams("members", "create", f"{project}-c", "--role", "consumer", "-o", "json").stdout)

    assert ams("doctor", AMS_TOKEN=made["token"]).returncode == 0
