"""Runs of `ams pipeline` on a cluster of Spark, as somebody types them."""

import sys

from ams.pipeline.checkpoint import Standing
from cluster.spark import SparkCluster
from tests.faults.pipeline.on_cluster import QUICK_JAVA
from tests.pipeline.garden import Garden

SECONDS = 240
NOTHING = Standing(batch=-1, time="", messages=0)
"""Where a run stands before its first batch."""


def environment(garden: Garden) -> dict[str, str]:
    """Return that of somebody whose sources and Python no executor is told."""
    return garden.environment("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME")


def command(cluster: SparkCluster, *words: str) -> list[str]:
    """Return a command that runs a job or a definition."""
    small = ("spark.executor.memory=512m", "spark.executor.cores=1", f"spark.executor.extraJavaOptions={QUICK_JAVA}")
    settings = [word for each in small for word in ("--conf", each)]
    where = ["--master", cluster.url, "--memory", "512m"]
    return [sys.executable, "-m", "ams.cli.main", "pipeline", "run", *words, *where, *settings]
