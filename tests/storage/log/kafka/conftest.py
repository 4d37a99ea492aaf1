import pytest

from tests.storage.log.engines import Kafka


@pytest.fixture
def engine() -> Kafka:
    return Kafka()
