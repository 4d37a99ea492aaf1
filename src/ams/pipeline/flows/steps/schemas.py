"""Types of definitions as Spark has them."""

from collections.abc import Mapping

from pyspark.sql import types as spark

from ams.pipeline.columns import PLACE
from ams.pipeline.expressions import types
from ams.pipeline.expressions.types import Type

SOURCE, ATTRIBUTES = "source", "attributes"
"""Columns every row has besides those of its record: where its message stands, and the attributes of that."""
ORDERING_KEY = "ordering_key"
"""A column of messages as they come, for ordering keys alone: it is in no table that a definition makes of them."""

_PLAIN: Mapping[str, spark.DataType] = {
    "text": spark.StringType(),
    "whole": spark.LongType(),
    "number": spark.DoubleType(),
    "boolean": spark.BooleanType(),
    "time": spark.TimestampType(),
    "day": spark.DateType(),
    "bytes": spark.BinaryType(),
    "null": spark.StringType(),
}
_WORDS = {type(found): types.Type(word) for word, found in _PLAIN.items() if word != "null"}


def struct(columns: Mapping[str, Type]) -> spark.StructType:
    """Return the Spark schema of columns; each may be null."""
    return spark.StructType([spark.StructField(name, spark_type(each)) for name, each in columns.items()])


def spark_type(given: Type) -> spark.DataType:
    """Return the Spark type of a type."""
    if given.word == "list" and given.item:
        return spark.ArrayType(spark_type(given.item))
    if given.word == "map" and given.item:
        return spark.MapType(spark.StringType(), spark_type(given.item))
    if given.word == "record":
        return struct(dict(given.fields))
    return _PLAIN[given.word]


def _place() -> dict[str, Type]:
    return {field.name: _WORDS[type(field.dataType)] for field in PLACE.fields}


PLACE_TYPE = types.record(_place())
"""Of the column `source`."""
MESSAGE_TYPES: Mapping[str, Type] = {
    **_place(),
    ATTRIBUTES: types.map_of(types.TEXT),
    "data": types.BYTES,
    SOURCE: PLACE_TYPE,
}
"""The columns a definition begins with."""
