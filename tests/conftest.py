"""Fixtures every test may ask for: the real parts of the cluster shape and a server of files, started when first asked.

What they stand on is imported then as well, so that tests which need none of them pay nothing.
"""

import contextlib
import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import settings

from tests.support import marks, shape

if TYPE_CHECKING:
    from tests.support.publishing import Publishing

settings.register_profile("house", deadline=None)  # no test asserts a time: the machines are shared
settings.load_profile("house")

MARKS = {"kafka_servers": "kafka", "postgres_url": "postgres", "spark_session": "spark"}
"""Fixtures, and how tests that use them are marked; by these marks `make test` leaves out what the machine lacks."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shape", choices=shape.SHAPES, default="embedded", help="the engines that services stand on")


class Printing(structlog.PrintLogger):
    """Prints lines of services that run in a thread of a test, on whatever standard output is just then."""

    def msg(self, message: str) -> None:
        out = sys.stdout  # held here: `print` itself crashes when pytest exchanges it just then (CPython before 3.13)
        with contextlib.suppress(ValueError):  # it was closed just then
            print(message, file=out, flush=True)

    log = debug = info = warn = warning = fatal = failure = err = error = critical = exception = msg


def pytest_configure(config: pytest.Config) -> None:
    structlog.configure(logger_factory=lambda *_: Printing())
    shape.choose(config.getoption("shape"))
    marks.watch_processes()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On the cluster's engines, leave out what is about the embedded ones."""
    if not shape.is_cluster():
        return
    left_out = [item for item in items if item.get_closest_marker("embedded")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_itemcollected(item: pytest.Item) -> None:
    assert isinstance(item, pytest.Function)
    for fixture in MARKS.keys() & set(item.fixturenames):
        item.add_marker(MARKS[fixture])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let no test use Kafka, PostgreSQL or haproxy without their mark."""
    marks.begin(item)
    try:
        return (yield)
    finally:
        marks.end()


@pytest.fixture
def kafka_servers() -> str:
    from tests.support.parts import kafka_servers

    return kafka_servers()


@pytest.fixture
def kafka_prefix() -> str:
    from tests.support.parts import kafka_prefix

    return kafka_prefix()


@pytest.fixture
def postgres_url() -> Iterator[str]:
    from tests.support.parts import scratch_database

    with scratch_database() as url:
        yield url


@pytest.fixture(scope="session")
def running_publishing() -> "Iterator[Publishing]":
    from tests.support.publishing import published

    with published() as publishing:
        yield publishing


@pytest.fixture
def publishing(running_publishing: "Publishing") -> "Publishing":
    """A server of files, shared by tests, that has nothing yet."""
    running_publishing.forget()
    return running_publishing
