"""Marks that must be there: a test that starts a real part is left out where that part is missing, by its mark alone.

Collection cannot see what a test starts by itself, so it is looked at when the part is started.
"""

import os
from typing import NoReturn

import pytest

from local_cluster.processes import Process
from tests.support import shape

_OF_PROCESSES = {"broker": "kafka", "postgres": "postgres", "haproxy": "haproxy", "s3": "go"}
"""First words of the names of processes, and the marks of tests that start them."""
_running: list[pytest.Item] = []  # the test at work, if there is one


class MissingMark(Exception):
    """A test uses a part that it is not marked with."""


def begin(item: pytest.Item) -> None:
    """Note the test that is at work from now on."""
    _running.append(item)


def end() -> None:
    _running.pop()


def require(mark: str) -> None:
    """Raise `MissingMark` when the test at work lacks a mark; on the cluster's engines every test may use them."""
    if not _running or shape.is_cluster() or _running[-1].get_closest_marker(mark):
        return
    raise MissingMark(f"{_running[-1].nodeid} uses {mark} and lacks the mark: @pytest.mark.{mark}")


def skip_without(part: str, why: str) -> NoReturn:
    """Skip the test at work, as it alone can tell that a part is missing; fail where `REQUIRE` names that part.

    `scripts/test` names the part in its last line.
    """
    if {"all", part} & set(os.environ.get("REQUIRE", "").split()):
        pytest.fail(why)
    if told := os.environ.get("LACKING_PARTS"):
        with open(told, "a") as file:
            file.write(f"{part}\n")
    pytest.skip(why)


def watch_processes() -> None:
    """Look at every part that is started in this process from now on."""
    start = Process.start

    def watched(process: Process) -> None:
        mark = _OF_PROCESSES.get(process.name.partition(" ")[0])
        if mark:
            require(mark)
        start(process)

    Process.start = watched  # type: ignore[method-assign]
