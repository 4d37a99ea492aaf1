"""Types of columns: Spark's own, by the names that SQL has for them."""

from collections.abc import Mapping, Sequence

from pyspark.sql import types as spark
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

STRING, BIGINT, DOUBLE, BOOLEAN = spark.StringType(), spark.LongType(), spark.DoubleType(), spark.BooleanType()
TIMESTAMP, DATE, BINARY, NULL = spark.TimestampType(), spark.DateType(), spark.BinaryType(), spark.NullType()
STRINGS = MapType(STRING, STRING)

WORDS = {each.simpleString(): each for each in (STRING, BIGINT, DOUBLE, BOOLEAN, TIMESTAMP, DATE, BINARY)}
NAMED: dict[str, DataType] = {**WORDS, STRINGS.simpleString(): STRINGS}
"""The types a definition can write as one text; lists and records are written with [] and {} around these."""
OTHER_NAMES = {
    **dict.fromkeys(("int", "integer", "long", "smallint", "tinyint", "whole"), "bigint"),
    **dict.fromkeys(("float", "real", "decimal", "numeric", "number"), "double"),
    **dict.fromkeys(("text", "varchar", "char"), "string"),
    "time": "timestamp",
    "day": "date",
    "bytes": "binary",
    "bool": "boolean",
    "map": "map<string,string>",
}

_ORDERED = (STRING, BIGINT, DOUBLE, BOOLEAN, TIMESTAMP, DATE)


def struct(columns: Mapping[str, DataType]) -> StructType:
    """Return the schema of columns, all nullable. A column that is always null is stored as text."""
    return StructType([spark.StructField(name, STRING if kind == NULL else kind) for name, kind in columns.items()])


def type_text(given: DataType) -> str:
    """Return a type as messages name it."""
    return "null" if given == NULL else str(given.simpleString())


def is_nested(given: DataType) -> bool:
    """Return whether it is an array, a map or a struct."""
    return isinstance(given, ArrayType | MapType | StructType)


def fits(given: DataType, wanted: DataType) -> bool:
    """Return whether a value of type `given` can stand where `wanted` is asked for."""
    return given in (wanted, NULL) or (given == BIGINT and wanted == DOUBLE)


def common(given: Sequence[DataType]) -> DataType | None:
    """Return the type all of `given` fit, None when there is none."""
    return next((each for each in given if all(fits(other, each) for other in given)), None)


def is_ordered(given: DataType) -> bool:
    """Return whether values of it come before and after one another."""
    return given in (*_ORDERED, NULL)
