"""A driver that is killed with its executors in processes of their own: nothing is missed, and nothing leaks."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pyspark
import pytest

from ams.pipeline.source.readers import plain
from tests.pipeline.garden import Garden, numbered
from tests.pipeline.source import driver

MESSAGES = 400
APART, HERE = "local-cluster[1,2,512]", "local[2,3]"
"""Executors in processes of their own, and in the driver's."""
GIVE_UP = 300
"""Seconds."""
LOGS = Path(pyspark.__file__).parent / "work"
"""Where executors in processes of their own write, whatever they are told."""


@contextmanager
def driven(garden: Garden, folder: Path, master: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the driver with all its children in a process group of their own; kill the group at the end."""

    with (folder / "output").open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, driver.__file__, master, str(folder)], env=garden.environment("SPARK_HOME"),
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def finished(checkpoint: Path) -> int:
    """Return the end of the last batch that is finished, as the checkpoint has it; 0 before the first."""
    done = [int(each.name) for each in (checkpoint / "commits").glob("[0-9]*")]
    if not done:
        return 0
    *_, offsets = (checkpoint / "offsets" / str(max(done))).read_text().splitlines()
    [end] = plain(msgspec.json.decode(offsets)).values()
    return end


def watch(garden: Garden, folder: Path, process: "subprocess.Popen[bytes]", until: int) -> None:
    """Look again and again whether the cursor is ahead of the checkpoint, until it is so far or the driver ends."""
    give_up = time.monotonic() + GIVE_UP
    while (cursor := garden.cursor("spark")) < until and process.poll() is None:
        assert cursor <= finished(folder / "checkpoint")
        assert time.monotonic() < give_up, (folder / "output").read_text()[-5000:]
        time.sleep(0.02)
    assert cursor <= finished(folder / "checkpoint")


@pytest.mark.long
@pytest.mark.spark
def test_a_killed_driver_misses_nothing_and_its_cursor_was_never_ahead(garden: Garden, tmp_path: Path) -> None:
    garden.topic("plants")
    garden.subscription("spark", "plants")
    garden.publish("plants", numbered(MESSAGES))
    logs = set(LOGS.glob("app-*"))

    with driven(garden, tmp_path, APART) as process:
        watch(garden, tmp_path, process, until=MESSAGES // 4)
        assert process.poll() is None, (tmp_path / "output").read_text()[-5000:]
    assert 0 < garden.cursor("spark") <= finished(tmp_path / "checkpoint") < MESSAGES
    with driven(garden, tmp_path, HERE) as process:
        watch(garden, tmp_path, process, until=MESSAGES + 1)
        assert process.wait(GIVE_UP) == 0, (tmp_path / "output").read_text()[-5000:]

    noted = [each.read_text() for each in tmp_path.glob("batch-*")]
    assert sorted(int(offset) for each in noted for offset in each.split(",")) == list(range(MESSAGES))
    assert garden.cursor("spark") == finished(tmp_path / "checkpoint") == MESSAGES
    logs = set(LOGS.glob("app-*")) - logs
    written = [each for folder in (tmp_path, *logs) for each in folder.rglob("*") if each.is_file()]
    assert len(written) > 20
    assert any(each.name == "stderr" for each in written)
    assert not [each for each in written if garden.served.token.encode() in each.read_bytes()]
