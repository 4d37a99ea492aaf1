"""Copies and cuts that are killed at any moment and run again: in the end all is there once."""

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.migrate.test_back import Both
from tests.support import marks
from tests.support.commands import PROCESS

pytestmark = pytest.mark.kafka


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    marks.require("kafka")
    made = Both(tmp_path)
    try:
        made.fill()
        yield made
    finally:
        made.stop()


def killed(both: Both, command: str, seconds: float, *more: str) -> bool:
    """Run a command and kill it after so long, unless it has ended before; return whether it was killed."""
    environment = {**os.environ, "AMS_ENDPOINT": both.new.endpoint, "AMS_TOKEN": both.day.admin_token}
    words = [*PROCESS, "migrate", command, *both.sources, "--data", str(both.data), *more]
    with subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    ) as running:  # fmt: skip
        try:
            running.wait(seconds)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
            return True
    return False


KILLS = 10


@pytest.mark.long
def test_what_was_killed_goes_on_and_nothing_is_lost_or_there_twice(both: Both) -> None:
    chance = random.Random(KILLS)
    took = 0
    for _ in range(KILLS):
        took += killed(both, "copy", chance.uniform(0.5, 6))
        took += killed(both, "cut", chance.uniform(1, 8), "--stop", "true", "--start", "false")
    assert took  # some were in the middle of their work

    done = both.migrate("cut", "--data", str(both.data), "--stop", "true", "--start", both.new.command)
    assert done.returncode == 0, done.stderr
    verified = both.migrate("verify")
    assert json.loads(verified.stdout)["differences"] == []
