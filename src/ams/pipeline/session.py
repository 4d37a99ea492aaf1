"""Sessions of Spark on this machine, set up as all jobs here want them."""

from collections.abc import Mapping

from pyspark.sql import SparkSession

SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.log.level": "ERROR",
}
"""What holds for every session unless it is said otherwise."""


def local_session(
    name: str, *, cores: int = 2, memory: str = "1g", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark in this process's own Java, `cores` tasks at a time, each tried up to three times."""
    builder = SparkSession.builder.appName(name).master(f"local[{cores},3]").config("spark.driver.memory", memory)
    for key, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
