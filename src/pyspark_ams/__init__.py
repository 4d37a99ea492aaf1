"""Registers `format("ams")`: Spark looks through installed packages named `pyspark_*` for a `DefaultSource`."""

from ams.pipeline.datasource import AmsDataSource as DefaultSource

__all__ = ["DefaultSource"]
