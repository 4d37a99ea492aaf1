"""Options, marks and output of all tests; their fixtures are in `tests.support.fixtures`."""

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Generator

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.support import marks, shape

pytest_plugins = ["tests.support.fixtures"]

# No test asserts a duration: the machines are shared.
settings.register_profile("use_cases", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("use_cases")

SPARK = ("tests/pipeline/", "tests/acceptance/")
"""Folders of all Spark tests: `scripts/test` does not look for them elsewhere."""
MARKS = {"kafka_servers": "kafka", "postgres_url": "postgres", "spark_session": "spark"}
"""Fixtures and their marks; `make test` deselects marks of parts that the machine lacks."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shape", choices=shape.SHAPES, default="embedded", help="the engines that services stand on")


class Printing(structlog.PrintLogger):
    """Prints lines of services that run in a thread of a test, on the current standard output."""

    def msg(self, message: str) -> None:
        out = sys.stdout  # held here: `print` itself crashes when pytest exchanges it just then (CPython before 3.13)
        with contextlib.suppress(ValueError):  # it was closed just then
            print(message, file=out, flush=True)

    log = debug = info = warn = warning = fatal = failure = err = error = critical = exception = msg


def pytest_configure(config: pytest.Config) -> None:
    structlog.configure(logger_factory=lambda *_: Printing())
    shape.choose(config.getoption("shape"))
    # Processes that a test interrupts inherit signals that a shell or nohup ignores in the background, but no handler.
    for each in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(each) is signal.SIG_IGN:
            signal.signal(each, lambda *_: None)
    # Each Java lives for seconds, so what the best compiler would make of its code comes too late. Not in a file of
    # settings: with one, Java could not keep an archive of its classes.
    os.environ["SPARK_SUBMIT_OPTS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    # Likewise the programs in Go: without optimization they are built in two thirds of the time.
    os.environ.setdefault("GOFLAGS", "'-gcflags=all=-N -l'")
    marks.watch_processes()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from scanning the collected tests: they live as long as the run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On the cluster's engines, deselect tests of the embedded engines."""
    if not shape.is_cluster():
        return
    left_out = [item for item in items if item.get_closest_marker("embedded")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_itemcollected(item: pytest.Item) -> None:
    assert isinstance(item, pytest.Function)
    for fixture in MARKS.keys() & set(item.fixturenames):
        item.add_marker(MARKS[fixture])
    if item.get_closest_marker("go"):  # Go compiles its programs and the S3 server for a minute
        item.add_marker("long")
    assert not item.get_closest_marker("spark") or item.nodeid.startswith(SPARK), f"{item.nodeid} is not in {SPARK}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let no test use Kafka, PostgreSQL or haproxy without their mark."""
    marks.begin(item)
    try:
        return (yield)
    finally:
        marks.end()
