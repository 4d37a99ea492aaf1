"""One Spark session and one service for all tests of a process."""

import itertools
import warnings
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from ams.client import Client
from cluster.spark import SparkCluster
from tests.pipeline.garden import Garden, make_garden
from tests.support.served import Served

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def spark_session() -> Iterator[SparkSession]:
    from ams.pipeline.session import local_session

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = local_session("tests", memory="512m", settings={"spark.sql.shuffle.partitions": "1"})
    yield session
    session.stop()


@pytest.fixture
def spark(spark_session: SparkSession) -> SparkSession:
    """The session of all tests, active in whatever thread of Java serves this one."""
    from ams.pipeline.session import activated

    return activated(spark_session)


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers, each with an environment of its own."""
    with SparkCluster(tmp_path_factory.mktemp("spark"), workers=2, memory="512m") as cluster:
        yield cluster


@pytest.fixture
def garden(service: Served) -> Iterator[Garden]:
    """A project of its own on that service."""
    with Client(service.run.base_url, service.token) as client:
        yield make_garden(service, client, f"garden-{next(_numbers)}")
