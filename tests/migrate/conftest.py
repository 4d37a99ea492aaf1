"""An old installation in MongoDB and Kafka for each test, and the parts of a cutover."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.migrate.cuts import HaProxy, Site, Starter
from tests.migrate.test_move import Original
from tests.support.mongodb import mongodb
from tests.support.parts import kafka_servers


@pytest.fixture(scope="session")
def uri() -> Iterator[str]:
    with mongodb() as found:
        yield found


@pytest.fixture
def original(uri: str) -> Original:
    """A separate installation for each test: names in Kafka contain the project's uuid."""
    made = Original(uri, kafka_servers())
    made.put_records()
    return made


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[HaProxy]:
    made = HaProxy(tmp_path / "haproxy.sock")
    yield made
    made.close()


@pytest.fixture
def site(original: Original, proxy: HaProxy, tmp_path: Path) -> Iterator[Site]:
    made = Site(original, proxy, Starter(tmp_path / "data"), tmp_path / "data")
    yield made
    made.starter.end()
