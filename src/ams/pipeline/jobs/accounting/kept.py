"""Which of several records of the same thing is kept.

Messages come twice, late and in any order, so what is kept depends on the records alone, never on when they came: the
one that is greatest by `order`, and of equals the one whose content has the greatest hash.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F


def kept(records: DataFrame, key: Sequence[str], order: Sequence[Column], content: Sequence[str]) -> DataFrame:
    """Return one record for each `key`; a missing part of a key is a value like any other."""
    # A hash passes over nulls, so that it takes their places too.
    digest = F.xxhash64(*content, *(F.col(name).isNull() for name in content))
    last = [*(each.desc_nulls_last() for each in order), digest.desc()]
    place = F.row_number().over(Window.partitionBy(*key).orderBy(*last))
    return records.withColumn("_place", place).where(F.col("_place") == 1).drop("_place")
