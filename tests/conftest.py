"""Fixtures every test may ask for: the real parts of the cluster shape, started when first asked for.

What they stand on is imported then as well, so that tests which need none of them pay nothing.
"""

from collections.abc import Iterator

import pytest

MARKS = {"kafka_servers": "kafka", "postgres_url": "postgres"}
"""Fixtures, and how tests that use them are marked; by these marks `make test` leaves out what the machine lacks."""


def pytest_itemcollected(item: pytest.Item) -> None:
    assert isinstance(item, pytest.Function)
    for fixture in MARKS.keys() & set(item.fixturenames):
        item.add_marker(MARKS[fixture])


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
