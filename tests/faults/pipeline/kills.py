"""Kills drivers of Spark at random moments and restarts them.

A driver has child processes: Java, and workers in Python, some in process groups of their own. A machine that fails
takes all of them at once, so the whole session is killed.
"""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

STEP_SECONDS = 0.02
START_SECONDS = 300.0
END_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class KilledDriver:
    """Result of a driver that was killed."""

    kills: int  # kills while it worked; fewer than wanted if it finished before
    output: str  # output of its last run, which was not killed, on both streams


def run_through_kills(
    command: Sequence[str], *, kills: int, working: Callable[[], bool], log: Path, spread: float = 3.0, seed: int = 0,
    environment: Mapping[str, str] | None = None, others: Sequence[Callable[[], None]] = (),
) -> KilledDriver:  # fmt: skip
    """Run a driver, kill it at random moments, and let it finish at last.

    Args:
        command: starts it; a restart resumes its work.
        kills: how often it is killed at work.
        working: returns whether the run has begun to work; called repeatedly.
        log: a file for its output.
        spread: seconds of work within which each kill comes.
        seed: of the random moments.
        environment: variables beside those of this process.
        others: kill something else that the driver depends on; each is called at a random moment before the driver's
        kill.

    Raises:
        AssertionError: it did not begin to work in time, or its last run failed.
    """
    draw = random.Random(seed)
    done = 0
    for _ in range(kills):
        with _Driver(command, log, environment) as driver:
            if not driver.waits_for(working):
                continue
            for kill in others:
                if driver.lives_on(draw.uniform(0, spread)):
                    kill()
            done += driver.lives_on(draw.uniform(0, spread))
    with _Driver(command, log, environment) as driver:
        driver.ends_well()
    return KilledDriver(done, log.read_text())


def batch_begins(checkpoint: Path) -> Callable[[], bool]:
    """Return a function for `working`: whether a batch began in a checkpoint since the last call."""
    return _watch_folder(checkpoint / "offsets", "[0-9]*")


def commit_appears(table: Path) -> Callable[[], bool]:
    """Return a function for `working`: whether a Delta table got a commit since the last call."""
    return _watch_folder(table / "_delta_log", "*.json")


def _watch_folder(folder: Path, names: str) -> Callable[[], bool]:
    known: set[str] = set()

    def has_appeared() -> bool:
        there = {path.name for path in folder.glob(names)}
        new = bool(there - known)
        known.update(there)
        return new

    return has_appeared


class _Driver:
    """A driver in its own session; the end of the block kills all its processes."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None) -> None:
        self._command = command
        self._log = log
        self._environment = {**os.environ, **(environment or {})}

    def __enter__(self) -> "_Driver":
        with self._log.open("w") as output:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env=self._environment, start_new_session=True,
            )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        while members := session_of(self._process.pid):
            for pid in members:
                _kill(pid)
            self._process.poll()
            time.sleep(STEP_SECONDS)
        self._process.wait()

    def waits_for(self, working: Callable[[], bool]) -> bool:
        """Return True once it works, False if it ended before."""
        deadline = time.monotonic() + START_SECONDS
        while not working():
            assert time.monotonic() < deadline, f"the driver does not begin to work: {self._read_log_tail()}"
            if self._process.poll() is not None:
                assert self._process.returncode == 0, self._read_log_tail()
                return False
            time.sleep(STEP_SECONDS)
        return True

    def lives_on(self, seconds: float) -> bool:
        time.sleep(seconds)
        return self._process.poll() is None

    def ends_well(self) -> None:
        assert self._process.wait(END_SECONDS) == 0, self._read_log_tail()

    def _read_log_tail(self) -> str:
        return self._log.read_text()[-4000:]


def session_of(pid: int) -> list[int]:
    """Return the living processes of the session that a process leads."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal() and _belongs(entry, pid)]


def _belongs(entry: Path, session: int) -> bool:
    try:
        # The fields after the name in brackets: state, parent, group, session.
        state, _, _, leader = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z" and int(leader) == session


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
