import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.conftest import Ams
from tests.support.service import live_service

Follow = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def follow(project: str, ams: Ams, environment: dict[str, str], tmp_path: Path) -> Iterator[Follow]:
    """Start `ams tail`, ready to see what is published."""
    ams("topics", "create", "jobs")
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **variables: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "ams.cli.main", "tail", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment | variables,
            cwd=tmp_path,
        )
        started.append(process)
        assert process.stderr is not None
        assert process.stderr.readline().startswith("following jobs as subscription tail-")
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def subscriptions(ams: Ams) -> list[object]:
    return json.loads(ams("subs", "list", "-o", "json").stdout)["subscriptions"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_new_messages_are_shown_until_it_is_stopped_and_nothing_stays(
    ams: Ams, follow: Follow, how: signal.Signals
) -> None:
    ams("publish", "jobs", "--data", "before")
    process = follow("jobs")

    ams("publish", "jobs", "--data", "first", "--attr", "k=v")
    first = line(process)
    ams("publish", "jobs", "--data", "second")
    second = line(process)
    process.send_signal(how)

    assert first.split()[0] == "1"
    assert first.split()[2:] == ["k=v", "first"]
    assert second.split()[-1] == "second"
    assert process.wait(timeout=10) == 130
    assert subscriptions(ams) == []


def test_everything_kept_can_be_shown_and_it_ends_after_so_many(ams: Ams, follow: Follow) -> None:
    ams("publish", "jobs", stdin="".join(f"{number}\n" for number in range(250)))

    process = follow("jobs", "--oldest", "--max", "220", "-o", "json")
    shown, said = process.communicate(timeout=20)

    assert [json.loads(each)["messageId"] for each in shown.splitlines()] == [str(number) for number in range(220)]
    assert (process.returncode, said) == (0, "")
    assert subscriptions(ams) == []


def test_a_line_of_json_is_the_message_as_a_pull_shows_it(ams: Ams, follow: Follow) -> None:
    ams("sub", "create", "reader", "--topic", "jobs")
    ams("publish", "jobs", "--data", "ä", "--attr", "k=v")

    process = follow("jobs", "--oldest", "--max", "1", "-o", "json")

    shown, _ = process.communicate(timeout=20)
    [received] = json.loads(ams("pull", "reader", "-o", "json").stdout)["receivedMessages"]
    assert json.loads(shown) == received["message"]


def test_a_reader_that_goes_away_ends_it_quietly(ams: Ams, follow: Follow) -> None:
    process = follow("jobs")
    assert process.stdout is not None
    assert process.stderr is not None

    process.stdout.close()
    ams("publish", "jobs", "--data", "unseen")

    assert process.wait(timeout=10) == 141
    assert process.stderr.read() == ""
    assert subscriptions(ams) == []


def test_a_topic_that_is_not_there_is_said(ams_process: Ams, project: str) -> None:
    ran = ams_process("tail", "nothing")

    assert (ran.returncode, ran.stderr) == (4, "ams: Topic doesn't exist\n")


def test_a_restart_of_the_service_is_lived_through(ams: Ams, follow: Follow, tmp_path: Path) -> None:
    data = tmp_path / "own-service"
    flags = ("--tls-self-signed", "--min-free-bytes", "0", "--reserve-bytes", "0")
    with live_service(data, *flags) as service:
        own = {"AMS_ENDPOINT": service.base_url, "AMS_TOKEN": service.token, "AMS_CA": str(service.ca)}
        ams("projects", "create", "garden", **own)
        ams("topics", "create", "jobs", "--project", "garden", **own)
        process = follow("jobs", "--project", "garden", "--max", "1", **own)
        service.kill()

    with live_service(data, *flags, "--port", str(urlsplit(own["AMS_ENDPOINT"]).port)):
        ams("publish", "jobs", "--project", "garden", "--data", "after", **own)
        shown, said = process.communicate(timeout=20)

    assert shown.split()[-1] == "after"
    assert (process.returncode, said.count("trying again for 30 seconds")) == (0, 1)
