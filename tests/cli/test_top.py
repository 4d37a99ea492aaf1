"""`ams top` and `ams subs watch` against a real service, also in a terminal."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Ams, Begin

SECONDS = 30


@pytest.fixture
def work(ams: Ams, project: str) -> str:
    """Make a topic with two subscriptions, of which one has done something."""
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


def test_names_are_chosen_and_sorted(ams: Ams, work: str) -> None:
    ran = ams("top", "--once", "--sort", "name", "--match", "w*")

    header, row = ran.stdout.splitlines()
    assert header.split() == ["TOPIC", "SUBSCRIPTION", "LAG", "OLDEST", "IN/S", "OUT/S", "MESSAGES", "PUSH"]
    assert row.split()[1] == "watch"


@pytest.mark.parametrize("end", ["q", *(pytest.param(each, marks=pytest.mark.long) for each in ("SIGTERM", "Ctrl-C"))])
def test_in_a_terminal_it_is_drawn_again_and_again_and_puts_the_terminal_back(
    ams: Ams, work: str, environment: dict[str, str], tmp_path: Path, end: str
) -> None:
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "ams.cli.main", "top", "--every", "0.2"]
    sized = environment | {"LINES": "24", "COLUMNS": "100"}
    with subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path, env=sized, start_new_session=True
    ) as process:
        os.close(theirs)
        seen = _until(ours, b"readings  store")
        ams("publish", "readings", "--data", "y")
        seen += _until(ours, b"readings  store         4")
        if end == "q":
            os.write(ours, b"q")
        else:
            process.send_signal(signal.SIGTERM if end == "SIGTERM" else signal.SIGINT)
        seen += _until(ours, b"\x1b[?1049l")
        code = process.wait(timeout=SECONDS)
    os.close(ours)

    assert seen.count(b"\x1b[?1049h") == 1
    assert code == (0 if end == "q" else 130)


def _until(fd: int, wanted: bytes) -> bytes:
    seen, end = b"", time.monotonic() + SECONDS
    while wanted not in seen:
        assert time.monotonic() < end, seen[-2000:]
        with contextlib.suppress(OSError):
            seen += os.read(fd, 65536)
    return seen


def test_a_subscription_is_watched_line_by_line(ams: Ams, work: str, begin: Begin) -> None:
    process = begin("subs", "watch", "store", "-o", "json")
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    ams("publish", "readings", "--data", "y")
    second = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGINT)

    assert (first["lag"], second["lag"], process.wait(timeout=SECONDS)) == (3, 4, 130)
