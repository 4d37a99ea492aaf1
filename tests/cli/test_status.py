import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ams import __version__
from tests.cli.conftest import SERVICE_TOKEN, Ams
from tests.support.service import LiveService


def test_a_subscription_that_nobody_pulls_from_is_told_with_times_written_one_way(ams: Ams, project: str) -> None:
    ams("topic", "create", "jobs")
    ams("topics", "retention", "jobs", "36h")
    ams("sub", "create", "reader", "--topic", "jobs")
    well = ams("doctor", "reader")
    ams("publish", "jobs", "--data", "hello")

    told = ams("doctor", "reader")

    assert (well.returncode, told.returncode) == (0, 1)
    assert "note   Nothing was ever published to its topic." in well.stdout.splitlines()
    assert "WRONG  1 message waits, and nobody has pulled since the service started." in told.stdout.splitlines()
    shown = dict(re.split("  +", line) for line in told.stdout.splitlines() if "  " in line and "WRONG" not in line)
    assert (shown["deadline"], shown["retention"], shown["last pull"]) == ("10s", "36h", "-")
    assert re.fullmatch(r"\d+(\.\d)?s ago", shown["last publish"])
    found = ams.json("doctor", "reader", code=1)
    assert (found["healthy"], found["standing"]["backlog"]) == (False, 1)


def test_a_subscription_without_its_topic_has_no_figures(ams: Ams, project: str) -> None:
    ams("topic", "create", "jobs")
    ams("sub", "create", "reader", "--topic", "jobs")
    ams("topic", "delete", "jobs")

    told = ams("doctor", "reader")

    assert told.returncode == 1
    assert "backlog" not in told.stdout


def test_without_a_subscription_the_connection_is_checked(ams: Ams, project: str) -> None:
    works = ams("doctor")

    assert works.returncode == 0
    connection, _, service = works.stdout.partition("\n\n")
    assert [line.split()[0] for line in connection.splitlines()] == ["endpoint", "user", "project"]
    assert service
    assert "WRONG" not in service
    assert ams("doctor", AMS_TOKEN="wrong").returncode == 3
    assert ams("doctor", AMS_ENDPOINT="https://localhost:1").returncode == 6


def test_the_token_of_the_service_is_let_in_though_it_is_nobodys(ams: Ams, project: str) -> None:
    works = ams("doctor", AMS_TOKEN=SERVICE_TOKEN)

    assert works.returncode == 0, works.stderr
    assert "user      (service token)" in works.stdout.splitlines()
    assert "All is well." in works.stdout


def test_a_consumer_of_the_project_is_let_in(ams: Ams, project: str) -> None:
    made = ams.json("members", "create", f"{project}-c", "--role", "consumer")

    let_in = ams("doctor", AMS_TOKEN=made["token"])

    assert let_in.returncode == 0
    assert [line.split()[0] for line in let_in.stdout.splitlines()] == ["endpoint", "user", "project"]
    assert "service" not in ams.json("doctor", AMS_TOKEN=made["token"])


@contextmanager
def another_identity(registry: Path, subscription: str) -> Iterator[None]:
    """Give a subscription another identity behind the service's back, so that its cursor is nobody's, for a while."""
    change = "UPDATE subscriptions SET id = ? WHERE name = ?"
    with closing(sqlite3.connect(registry, isolation_level=None)) as connection:
        (was,) = connection.execute("SELECT id FROM subscriptions WHERE name = ?", (subscription,)).fetchone()
        connection.execute(change, ("somebody-else", subscription))
        try:
            yield
        finally:
            connection.execute(change, (was, subscription))


@pytest.mark.embedded("the registry is a file")
def test_what_is_wrong_with_the_service_ends_the_command_with_1(ams: Ams, project: str, service: LiveService) -> None:
    ams("topics", "create", "jobs")
    ams("subs", "create", f"{project}-s", "--topic", "jobs")

    with another_identity(service.data / "registry.db", f"{project}-s"):
        told = ams("doctor")
        found = ams.json("doctor", code=1)["service"]

    findings = told.stdout.partition("\n\n")[2].splitlines()
    assert told.returncode == 1
    assert findings[0].startswith(f"WRONG  The position of projects/{project}/subscriptions/{project}-s is gone")
    assert findings[1].startswith("note   The cursor ")
    assert [found["healthy"], *(each["wrong"] for each in found["findings"][:2])] == [False, True, False]
    assert ams("doctor").returncode == 0


def test_what_is_wrong_with_the_service_is_for_viewers_too(ams: Ams, project: str) -> None:
    made = ams.json("users", "create", f"{project}-v", "--service-role", "admin_viewer")

    assert ams.json("doctor", "--project", "", AMS_TOKEN=made["token"], AMS_PROJECT="")["service"]["healthy"]


def test_the_status_is_shown(ams: Ams) -> None:
    assert ams("status").stdout.splitlines()[0].split() == ["status", "ok"]
    assert ams.json("status")["status"] == "ok"


def test_both_versions_are_shown_also_without_a_token(ams: Ams) -> None:
    shown = ams("version", AMS_TOKEN="")
    for_programs = ams.json("version")

    assert shown.stdout.splitlines()[0].split() == ["client", __version__]
    assert for_programs["client"] == __version__
    assert "build_time" in for_programs["service"]
