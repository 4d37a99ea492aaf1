"""One Spark session for all tests of a process."""

import warnings
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from ams.pipeline.session import local_session

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = local_session("tests", memory="512m", settings={"spark.sql.shuffle.partitions": "1"})
    yield session
    session.stop()
