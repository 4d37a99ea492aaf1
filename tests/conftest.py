"""Fixtures every test may ask for: the real parts of the cluster shape, started when first asked for.

What they stand on is imported then as well, so that tests which need none of them pay nothing.
"""

from collections.abc import Iterator

import pytest


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
