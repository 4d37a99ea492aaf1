"""Fields of messages that no row of the reference knows, counted by their names, in a table of the run."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType

from ams.pipeline.jobs.base import columns

UNKNOWN = columns((ArrayType(StringType()), "not_taken"))
"""The column of a record with the names of its message's unknown fields."""

NOT_TAKEN = columns(("string", "project topic kind name"), ("bigint", "times offset"))
"""In how many messages of a batch a field stood, and the offset of the first of them."""


def unknown(records: DataFrame) -> DataFrame:
    """Return the rows of `NOT_TAKEN` of records with the column of `UNKNOWN`."""
    told = records.select(
        "source.project", "source.topic", "kind", F.explode("not_taken").alias("name"), "source.offset"
    )
    counted = told.groupBy("project", "topic", "kind", "name")
    return counted.agg(F.count("*").alias("times"), F.min("offset").alias("offset")).select(*NOT_TAKEN.names)
