"""Observing a service: `doctor`, `status`, `metrics`, `audit`, `top` and `watch`; and measuring it by `bench`."""

import contextlib
import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ams.storage.audit.trail import LineFile
from tests.cli.conftest import SERVICE_TOKEN, Ams, StartAms
from tests.storage.audit.events import event
from tests.support.commands import PROCESS
from tests.support.service import LiveService
from tests.support.waiting import PATIENCE_SECONDS, wait_until


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
    ams("topic", "delete", "jobs")
    gone = ams("doctor", "reader")
    assert (gone.returncode, "backlog" in gone.stdout) == (1, False)


def test_without_a_subscription_the_connection_is_checked_by_whoever_asks(ams: Ams, project: str) -> None:
    consumer = ams.json("members", "create", f"{project}-c", "--role", "consumer")["token"]
    viewer = ams.json("users", "create", f"{project}-v", "--service-role", "admin_viewer")["token"]

    works, of_nobody, of_consumer = (
        ams("doctor"), ams("doctor", AMS_TOKEN=SERVICE_TOKEN), ams("doctor", AMS_TOKEN=consumer),
    )  # fmt: skip

    assert (works.returncode, of_nobody.returncode, of_consumer.returncode) == (0, 0, 0)
    connection, _, service = works.stdout.partition("\n\n")
    assert [line.split()[0] for line in connection.splitlines()] == ["endpoint", "user", "project"]
    assert ("All is well." in service) is (ams.json("doctor")["service"]["findings"] == []), service
    assert "WRONG" not in service
    assert "user      (service token)" in of_nobody.stdout.splitlines()
    assert [line.split()[0] for line in of_consumer.stdout.splitlines()] == ["endpoint", "user", "project"]
    assert "service" not in ams.json("doctor", AMS_TOKEN=consumer)
    assert ams.json("doctor", "--project", "", AMS_TOKEN=viewer, AMS_PROJECT="")["service"]["healthy"]
    assert ams("doctor", AMS_TOKEN="wrong").returncode == 3
    assert ams("doctor", AMS_ENDPOINT="https://localhost:1").returncode == 6
    assert ams.json("status")["status"] == "ok"


@contextmanager
def another_identity(registry: Path, subscription: str) -> Iterator[None]:
    """Replace a subscription's identity in the registry, so that its cursor belongs to no subscription for a while."""
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


def test_metrics_are_shown_for_people_and_usage_by_project(ams: Ams, project: str) -> None:
    ams("topic", "create", "jobs")
    ams("sub", "create", "work", "--topic", "jobs")
    ams("publish", "jobs", "--data", "hello")

    shown = [ams("metrics", *words).stdout for words in (("topic", "jobs"), ("subscription", "work"), ("project",))]

    cells = [line.split() for text in shown for line in text.splitlines()[1:]]
    values = {(each[0], each[1]): each[3] for each in cells}
    assert values["topic.number_of_bytes", "jobs"] == "8"
    assert values["subscription.number_of_messages", "work"] == "0"
    assert values["project.number_of_topics", project] == "1"
    assert ams("metrics", "service").returncode == 0
    rows = [line.split() for line in ams("metrics", "va", "--only", project).stdout.splitlines()[1:]]
    assert rows == [[project, "1", "0.01", "1", "1", "0"], ["(all)", "1", "0.01", "1", "1", "0"]]


def test_the_service_tells_who_did_what(ams: Ams, project: str) -> None:
    ams("topics", "create", "garden")
    created = ("audit", "--action", "topics:create", "--actor", "admin")
    resource = f"/projects/{project}/topics/garden"

    made = wait_until(  # the table follows the file of events
        lambda: [each for each in ams.json(*created)["events"] if each["resource"] == resource]
    )

    assert [(each["actor"], each["result"]) for each in made] == [("admin", "done")]
    assert ams("audit", "--since", "tomorrow").returncode == 1


def test_a_file_of_events_is_read_while_nothing_runs(ams: Ams, tmp_path: Path) -> None:
    path = str(tmp_path / "audit.jsonl")
    lines = LineFile(path)
    lines.append(event(0))
    lines.append(event(1000, actor="", action="login", code=401, result="refused", reason="Unauthorized", times=40))
    lines.close()

    table = ams("audit", "--file", path, "--endpoint", "http://127.0.0.1:1")
    refused = ams("audit", "--file", path, "--result", "refused", "-o", "json")

    assert [line.split("  ") for line in table.stdout.splitlines()][2][-1] == "refused (401: Unauthorized), 40 times"
    assert [json.loads(line)["action"] for line in refused.stdout.splitlines()] == ["login"]


@pytest.fixture
def work(ams: Ams, project: str) -> str:
    """Make a topic with two subscriptions, one of them active."""
    ams("topics", "create", "readings")
    ams("subs", "create", "store", "readings")
    ams("subs", "create", "watch", "readings")
    for _ in range(3):
        ams("publish", "readings", "--data", "x")
    ams("pull", "watch", "--max", "2", "--ack")
    return project


def test_one_picture_for_programs_has_what_waits_the_most_first(ams: Ams, work: str) -> None:
    ran = ams("top", "--once", "-o", "json")

    assert ran.returncode == 0, ran.stderr
    rows = json.loads(ran.stdout)["rows"]
    assert [(row["subscription"], row["lag"]) for row in rows if row["subscription"]] == [("store", 3), ("watch", 1)]
    assert [row["messages"] for row in rows if not row["subscription"]] == [3]


@pytest.mark.parametrize("end", ["q", *(pytest.param(each, marks=pytest.mark.long) for each in ("SIGTERM", "Ctrl-C"))])
def test_it_puts_the_terminal_back(ams: Ams, work: str, environment: dict[str, str], tmp_path: Path, end: str) -> None:
    ours, theirs = pty.openpty()
    words = [*PROCESS, "top", "--every", "0.2"]
    sized = environment | {"LINES": "24", "COLUMNS": "100"}
    with subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path, env=sized, start_new_session=True
    ) as process:
        os.close(theirs)
        seen = _read_until(ours, b"readings  store")
        ams("publish", "readings", "--data", "y")
        seen += _read_until(ours, b"readings  store         4")
        if end == "q":
            os.write(ours, b"q")
        else:
            process.send_signal(signal.SIGTERM if end == "SIGTERM" else signal.SIGINT)
        seen += _read_until(ours, b"\x1b[?1049l")
        code = process.wait(timeout=PATIENCE_SECONDS)
    os.close(ours)

    assert seen.count(b"\x1b[?1049h") == 1
    assert code == (0 if end == "q" else 130)


def _read_until(fd: int, wanted: bytes) -> bytes:
    seen, end = b"", time.monotonic() + PATIENCE_SECONDS
    while wanted not in seen:
        assert time.monotonic() < end, seen[-2000:]
        with contextlib.suppress(OSError):
            seen += os.read(fd, 65536)
    return seen


def test_a_subscription_is_watched_line_by_line(ams: Ams, work: str, start_ams: StartAms) -> None:
    process = start_ams("subs", "watch", "store", "-o", "json")
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    ams("publish", "readings", "--data", "y")
    second = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGINT)

    assert (first["lag"], second["lag"], process.wait(timeout=PATIENCE_SECONDS)) == (3, 4, 130)


def remaining_names(ams: Ams) -> list[str]:
    made = ams.json("topics", "list")["topics"] + ams.json("subs", "list")["subscriptions"]
    return [each["name"] for each in made]


@pytest.mark.parametrize("what", ["publish", "consume", "roundtrip"])
def test_a_bench_measures_so_many_messages_and_deletes_what_it_made(ams: Ams, project: str, what: str) -> None:
    found = ams.json("bench", what, "--messages", "20", *(["--batch", "10"] if what != "roundtrip" else []))
    assert (found["what"], found["errors"]) == (what, 0)
    assert 20 <= found["messages"] <= 60  # callers beside each other each end with a request
    assert remaining_names(ams) == []


def test_a_bench_of_a_topic_that_there_is_not_ends(ams: Ams, project: str) -> None:
    ran = ams("bench", "publish", "--messages", "20", "--topic", "none")
    assert ran.returncode == 1
    assert "no request was answered: Topic doesn't exist" in ran.stderr


def test_an_ended_bench_gives_its_figures_and_leaves_nothing(ams: Ams, project: str, start_ams: StartAms) -> None:
    process = start_ams("bench", "publish", "--seconds", "600", "-o", "json")
    [topic] = wait_until(lambda: remaining_names(ams), process=process)
    wait_until(lambda: ams.json("topics", "offsets", topic.rpartition("/")[2])["max"], process=process)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 0
    assert json.loads(said)["seconds"] < 600
    assert remaining_names(ams) == []
