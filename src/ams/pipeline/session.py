"""Sessions of Spark on this machine, set up as all jobs here want them."""

import os
import sys
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from ams.pipeline.java import archive_options, java

SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Files are looked for in so many tasks; as many as there are folders is far too many.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.log.level": "ERROR",
    # Options whose names say that what they hold is secret, should a plan ever show them.
    "spark.redaction.regex": "(?i)secret|password|token|credential",
}
"""What holds for every session unless it is said otherwise."""

JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def local_session(
    name: str, *, cores: int = 2, memory: str = "1g", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark in a Java of its own, `cores` tasks at a time, each tried up to three times.

    Raises `Unavailable` when there is no Java for it.
    """
    chosen = {**SETTINGS, **(settings or {})}
    chosen[JAVA_OPTIONS] = f"{chosen.get(JAVA_OPTIONS, '')} {archive_options(java())}".strip()
    if chosen.get("spark.master", "local").startswith("local"):
        # Else Spark takes the first python3 on PATH for its workers, which need not know this package.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(f"local[{cores},3]").config("spark.driver.memory", memory)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def activated(spark: SparkSession) -> SparkSession:
    """Return a session after making it the one Java looks data sources up in.

    Spark finds those written in Python in the active session only. That one belongs to a thread of Java, and PySpark
    goes on in a new thread, without one, when its connection to the old was closed.
    """
    jvm: Any = spark._jvm
    jvm.SparkSession.setActiveSession(spark._jsparkSession)
    return spark
