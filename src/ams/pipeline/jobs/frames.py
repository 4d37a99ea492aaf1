"""Schemas and groups of rows, as several jobs write them down."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

_TYPES: Final = {
    each.simpleString(): each
    for each in (
        *(T.StringType(), T.LongType(), T.IntegerType(), T.DoubleType(), T.BooleanType(), T.BinaryType()),
        *(T.TimestampType(), T.DateType(), T.ArrayType(T.StringType())),
    )
}


def columns(*parts: tuple[str | T.DataType, str] | T.StructType) -> T.StructType:
    """Return a schema, of types with the names of their columns and of other schemas; `name!` is never null.

    >>> columns(("string", "site! vo"), ("bigint", "jobs")).simpleString()
    'struct<site:string,vo:string,jobs:bigint>'
    """
    found: list[T.StructField] = []
    for part in parts:
        if isinstance(part, T.StructType):
            found += part.fields
            continue
        kind = _TYPES[part[0]] if isinstance(part[0], str) else part[0]
        found += [T.StructField(name.removesuffix("!"), kind, not name.endswith("!")) for name in part[1].split()]
    return T.StructType(found)


def first(frame: DataFrame, by: Sequence[str], *order: str | Column) -> DataFrame:
    """Keep one row of each group, the first in an order."""
    place = F.row_number().over(Window.partitionBy(*by).orderBy(*order))
    return frame.withColumn("_place", place).where("_place = 1").drop("_place")
