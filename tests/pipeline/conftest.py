"""One Spark session and one service for all tests of a process."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from ams.client import Client
from ams.pipeline.run import Run
from ams.pipeline.tables import rows_of
from local_cluster.spark import SparkCluster
from tests.pipeline.garden import Garden, make_garden
from tests.support.served import InProcessService

os.environ["PYTHON_OF_TESTS"] = sys.executable
os.environ["PYSPARK_PYTHON"] = str(Path(__file__).parents[1] / "support" / "python_of_spark")


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
    """The session of all tests, active in the current thread of Java."""
    from ams.pipeline.session import make_active

    return make_active(spark_session)


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers, each with an environment of its own."""
    with SparkCluster(tmp_path_factory.mktemp("spark"), workers=2, memory="512m") as cluster:
        yield cluster


@pytest.fixture
def garden(service: InProcessService) -> Iterator[Garden]:
    with Client(service.run.base_url, service.token) as client:
        yield make_garden(service, client)


@dataclass(frozen=True)
class Runs:
    spark: SparkSession
    garden: Garden
    folder: Path

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def begin(self, work: str = "work") -> Run:
        return Run(self.spark, self.folder / work, self.garden.options, say=lambda _: None)

    def do(self, function: Callable[[Run], None], run: Run | None = None) -> Run:
        """Run a job to its end, in a new run by default; return the run."""
        begun = run or self.begin()
        function(begun)
        return begun

    def rows(self, table: str) -> DataFrame:
        return rows_of(self.spark, self.work / table)


@pytest.fixture
def runs(spark: SparkSession, garden: Garden, tmp_path: Path) -> Runs:
    return Runs(spark, garden, tmp_path)


@pytest.fixture
def database(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AMS_PIPELINE_DATABASE", postgres_url)
    return postgres_url
