"""Required marks: a test that starts a real part needs its mark, to be skipped where that part is missing.

Collection cannot see which parts a test starts, so the mark is checked at the start of the part.
"""

import os
from typing import NoReturn

import pytest

from local_cluster.processes import Process
from tests.support import shape

_OF_PROCESSES = {"broker": "kafka", "postgres": "postgres", "haproxy": "haproxy", "s3": "go"}
"""First words of process names, and the marks of tests that start them."""
_running: list[pytest.Item] = []  # the running test, if any


class MissingMark(Exception):
    """A test uses a part without its mark."""


def begin(item: pytest.Item) -> None:
    """Note the running test."""
    _running.append(item)


def end() -> None:
    _running.pop()


def require(mark: str) -> None:
    """Raise `MissingMark` when the running test lacks a mark; on the cluster's engines every test has them."""
    if not _running or shape.is_cluster() or _running[-1].get_closest_marker(mark):
        return
    raise MissingMark(f"{_running[-1].nodeid} uses {mark} and lacks the mark: @pytest.mark.{mark}")


def skip_without(part: str, why: str) -> NoReturn:
    """Skip the running test, which found a part missing; fail where `REQUIRE` names that part.

    `scripts/test` names the part in its last line.
    """
    if {"all", part} & set(os.environ.get("REQUIRE", "").split()):
        pytest.fail(why)
    if told := os.environ.get("LACKING_PARTS"):
        with open(told, "a") as file:
            file.write(f"{part}\n")
    pytest.skip(why)


def watch_processes() -> None:
    """Check every part that this process starts from now on."""
    start = Process.start

    def start_watched_process(process: Process) -> None:
        mark = _OF_PROCESSES.get(process.name.partition(" ")[0])
        if mark:
            require(mark)
        start(process)

    Process.start = start_watched_process  # type: ignore[method-assign]
