"""Rows to messages: what Spark publishes, against the load generator publishing 1000 at a time."""

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ams.pipeline.session import local_session
from ams.pipeline.sink import publish
from bench import preparing
from bench.callers import Publish
from bench.report import Result, at_least
from bench.run import Bench, messages_per_second, middle
from bench.tally import Outcome

CORES = 2
CONNECTIONS = 16
PER_REQUEST = 1000
MESSAGES_FOR_EACH_OF_BACKLOG = 5


class Published(NamedTuple):
    """What one write took."""

    messages: int
    seconds: float

    @property
    def messages_per_second(self) -> float:
        return self.messages / self.seconds


def spark_publish(bench: Bench) -> Iterator[Result]:
    """Yield a result for rows as they are, and one for rows arranged for a topic that keeps their order."""
    with bench.service() as service:
        [topic] = preparing.topics(service, preparing.project(service, "BENCH"), "spark", 1)
        spark = local_session("bench", cores=CORES)
        rows = _rows(spark, bench.plan.backlog * MESSAGES_FOR_EACH_OF_BACKLOG)
        options = {"endpoint": service.url, "token": service.token, "project": "BENCH", "topic": "spark-0"}
        try:
            _as_they_are(_rows(spark, 1000), options)
            pairs = bench.in_turn(
                "publish a frame, and requests of 1000",
                lambda: _timed(lambda: _as_they_are(rows, options), rows),
                lambda: bench.load(service, Publish([topic], PER_REQUEST), CONNECTIONS),
            )
            yield _result("as they are", pairs)
            ordered = _timed(lambda: publish(rows, options, ["id"]), rows)
            yield _result("arranged", [(ordered, theirs) for _, theirs in pairs[:1]])
        finally:
            spark.stop()


def _rows(spark: SparkSession, count: int) -> DataFrame:
    """Rows of 1 KiB."""
    data = F.repeat(F.sha2(F.col("id").cast("string"), 256), 16).cast("binary")
    return spark.range(count, numPartitions=CORES).select("id", data.alias("data"))


def _as_they_are(rows: DataFrame, options: dict[str, str]) -> None:
    rows.select("data").write.format("ams").mode("append").options(**options).save()


def _timed(work: Callable[[], None], rows: DataFrame) -> Published:
    count = rows.count()
    began = time.perf_counter()
    work()
    return Published(count, time.perf_counter() - began)


def _result(shape: str, pairs: list[tuple[Published, Outcome]]) -> Result:
    ours = [each for each, _ in pairs]
    return Result(
        "spark-publish",
        {"rows": shape, "cores": CORES},
        {
            "messages_s": median(each.messages_per_second for each in ours),
            "load_messages_s": middle([each for _, each in pairs], messages_per_second),
        },
        median(first.messages_per_second / second.messages_per_second for first, second in pairs),
        f"messages/s published {PER_REQUEST} a request at {CONNECTIONS} connections",
        at_least(0.5) if shape == "as they are" else None,
    )
