"""Functions of expressions: the allow-list, with the names of Spark's SQL.

A function returns null for arguments it cannot handle, never an error: one odd record must not end a job. So casts and
sums are Spark's `try_` forms.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType
from sqlglot import exp

from ams.pipeline.expressions import types
from ams.pipeline.expressions.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, NULL, STRING, TIMESTAMP

_FIRST_SECOND, _LAST_SECOND = -62135596800, 253402300799  # Spark's times, years 1 to 9999, in seconds since 1970
_YEAR = r"^\s*(?!0000)[0-9]{4}(-|\s*$)"  # beginning of a date of the years 1 to 9999
_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
_FORMAT = re.compile(r"(yyyy|MM|dd|HH|mm|ss|[-/:. ])+")
_PATTERN = re.compile(r"\\|.[\[({*+?^$]|[\[({*+?^$].", re.DOTALL)

Plain = str | int | float | bool | None


class Expression(NamedTuple):
    """A valid expression: its type, and how to build its column."""

    type: DataType
    column: Callable[[], Column]  # builds the column; Spark must run
    written: Plain = None  # the value of a literal


class Function(NamedTuple):
    """A function: kinds of arguments, type of the result, and how to build its column."""

    takes: str  # kinds of arguments, as in the reference and in errors; `...` after a repeated one
    gives: DataType | Callable[[Sequence[DataType]], DataType | None]
    """Type of the result, or a function of the arguments' types; None if they do not fit together."""
    build: Callable[..., Column]

    def kinds(self, count: int) -> list[str] | None:
        """Return the kinds of `count` arguments; None if the number is wrong."""
        kinds = self.takes.removesuffix(", ...").split(", ")
        if self.takes.endswith("..."):
            kinds += kinds[-1:] * (count - len(kinds))
        return kinds if len(kinds) == count else None


_WRITTEN: Mapping[str, tuple[DataType, Callable[[Plain], bool]]] = {
    "decimals": (BIGINT, lambda said: isinstance(said, int)),
    "224|256|384|512": (BIGINT, lambda said: said in (224, 256, 384, 512)),
    "separator that is no pattern": (STRING, lambda said: isinstance(said, str) and not _PATTERN.search(said)),
    "format of yyyy MM dd HH mm ss": (STRING, lambda said: isinstance(said, str) and bool(_FORMAT.fullmatch(said))),
    "|".join(_UNITS): (STRING, lambda said: said in _UNITS),
    "share from 0 to 1": (DOUBLE, lambda said: isinstance(said, int | float) and 0 <= said <= 1),
}
"""Kinds of arguments that must be literals: the same for all records."""
_KINDS = {**types.WORDS, "number": DOUBLE}
_NESTED = {"array": ArrayType, "map": MapType, "struct": StructType}


def refusal(given: Expression, kind: str) -> str | None:
    """Return why a value does not fit a kind: types separated by |, `any`, or a kind of literal."""
    if kind in _WRITTEN:
        base, right = _WRITTEN[kind]
        return None if types.fits(given.type, base) and right(given.written) else f"a {kind}, written down"
    words = kind.split("|")
    is_nested = any(isinstance(given.type, _NESTED[word]) for word in words if word in _NESTED)
    fits = any(types.fits(given.type, _KINDS[word]) for word in words if word in _KINDS)
    if given.type == NULL or "any" in words or is_nested or fits:
        return None
    return f"{kind} here, not {types.type_text(given.type)}"


def builder_argument(given: Expression, kind: str) -> Any:
    """Return the argument for a function's builder; an untyped null gets the type of the kind."""
    if kind in _WRITTEN:
        return given.written
    return given.column().cast(_KINDS[kind]) if given.type == NULL and kind in _KINDS else given.column()


CASTS: Mapping[DataType, Sequence[DataType]] = {
    STRING: (BIGINT, DOUBLE, BOOLEAN, TIMESTAMP, DATE, BINARY, NULL),
    BIGINT: (STRING, DOUBLE, BOOLEAN, NULL),
    DOUBLE: (STRING, BIGINT, BOOLEAN, NULL),
    BOOLEAN: (STRING, NULL),
    TIMESTAMP: (STRING, DATE, NULL),
    DATE: (STRING, TIMESTAMP, NULL),
    BINARY: (STRING, NULL),
}


def cast(value: Column, given: DataType, wanted: DataType) -> Column:
    """Cast a value to a type of `CASTS`; null if it cannot be cast."""
    if given == wanted:
        return value
    if wanted == STRING:
        written = value.cast("string")
        return F.try_validate_utf8(written) if given == BINARY else written
    made = value.try_cast(wanted)
    if given != STRING or wanted not in (DATE, TIMESTAMP):
        return made
    made = F.when(value.rlike(_YEAR), made)  # Spark would also accept words such as `today`, and times without a day
    if wanted == DATE:
        return made
    bounds = [F.timestamp_seconds(F.lit(each)) for each in (_FIRST_SECOND, _LAST_SECOND)]
    return F.when(made.between(*bounds), made)  # a zone may move it out of range


def _timestamp_seconds(seconds: Column) -> Column:
    return F.when(seconds.between(_FIRST_SECOND, _LAST_SECOND), F.timestamp_seconds(seconds))


def choice(count: int) -> Function:
    """Return the CASE function of `count` conditions with their results and a default."""

    def build(*given: Column) -> Column:
        made: Any = F
        for condition, then in zip(given[:-1:2], given[1::2], strict=True):
            made = made.when(condition, then)
        chosen: Column = made.otherwise(given[-1])
        return chosen

    return Function("boolean, any, " * count + "any", lambda given: types.common([*given[1::2], given[-1]]), build)


def _number(given: Sequence[DataType]) -> DataType:
    return DOUBLE if DOUBLE in given else BIGINT


def _has_item(given: Sequence[DataType]) -> DataType | None:
    of = given[0]
    return BOOLEAN if not isinstance(of, ArrayType) or types.fits(given[1], of.elementType) else None


_ORDERED = "string|number|boolean|timestamp|date"

FUNCTIONS: Mapping[str, Function] = {
    # text
    "lower": Function("string", STRING, F.lower),
    "upper": Function("string", STRING, F.upper),
    "trim": Function("string", STRING, F.trim),
    "length": Function("string|binary", BIGINT, F.length),
    "concat": Function("string, ...", STRING, F.concat),
    "substring": Function(
        "string, bigint, bigint",  # an impossible position or length gives null
        STRING,
        lambda text, place, count: F.substring(text, place.try_cast("int"), count.try_cast("int")),
    ),
    "replace": Function("string, string, string", STRING, F.replace),
    "startswith": Function("string, string", BOOLEAN, F.startswith),
    "endswith": Function("string, string", BOOLEAN, F.endswith),
    "contains": Function("string, string", BOOLEAN, F.contains),
    "split": Function(
        "string, separator that is no pattern",  # Spark would read a pattern, so it is quoted
        ArrayType(STRING),
        lambda text, separator: F.split(text, f"\\Q{separator}\\E"),
    ),
    "sha2": Function("string|binary, 224|256|384|512", STRING, lambda of, bits: F.sha2(of.cast("binary"), bits)),
    # numbers
    "abs": Function("number", _number, lambda of: F.when(of < 0, F.try_subtract(F.lit(0), of)).otherwise(of)),
    "round": Function("number, decimals", DOUBLE, lambda of, places: F.round(of.cast("double"), min(places, 15))),
    "floor": Function("number", BIGINT, F.floor),
    "ceil": Function("number", BIGINT, F.ceil),
    "least": Function(f"{_ORDERED}, {_ORDERED}, ...", types.common, F.least),
    "greatest": Function(f"{_ORDERED}, {_ORDERED}, ...", types.common, F.greatest),
    # choices
    "if": choice(1),
    "coalesce": Function("any, ...", types.common, F.coalesce),
    # times, all in UTC; to_date and to_timestamp are casts
    "timestamp_seconds": Function("bigint", TIMESTAMP, _timestamp_seconds),
    "unix_seconds": Function("timestamp", BIGINT, F.unix_seconds),
    "date_trunc": Function(f"{'|'.join(_UNITS)}, timestamp", TIMESTAMP, F.date_trunc),
    "date_format": Function("timestamp|date, format of yyyy MM dd HH mm ss", STRING, F.date_format),
    "year": Function("timestamp|date", BIGINT, F.year),
    # arrays, maps and structs
    "size": Function("array|map", BIGINT, lambda of: F.when(of.isNotNull(), F.size(of))),
    "array_contains": Function("array, any", _has_item, F.array_contains),
    "map_contains_key": Function("map, string", BOOLEAN, F.map_contains_key),
    "to_json": Function("array|map|struct", STRING, F.to_json),
}
CASTING: Mapping[str, DataType] = {"to_date": DATE, "to_timestamp": TIMESTAMP}
AGGREGATES: Mapping[str, Function] = {
    "count": Function("any", BIGINT, F.count),
    "sum": Function("number", _number, F.try_sum),
    "avg": Function("number", DOUBLE, F.try_avg),
    "min": Function(_ORDERED, types.common, F.min),
    "max": Function(_ORDERED, types.common, F.max),
    "median": Function("number", DOUBLE, F.median),
    "percentile": Function("number, share from 0 to 1", DOUBLE, F.percentile),
}
DISTINCT = Function(f"{_ORDERED}|binary", BIGINT, F.count_distinct)
OPERATORS: Mapping[type[exp.Expr], tuple[str, Function]] = {
    exp.Or: ("OR", Function("boolean, boolean", BOOLEAN, operator.or_)),
    exp.And: ("AND", Function("boolean, boolean", BOOLEAN, operator.and_)),
    exp.Not: ("NOT", Function("boolean", BOOLEAN, operator.inv)),
    exp.DPipe: ("||", FUNCTIONS["concat"]),
    exp.Add: ("+", Function("number, number", _number, F.try_add)),
    exp.Sub: ("-", Function("number, number", _number, F.try_subtract)),
    exp.Mul: ("*", Function("number, number", _number, F.try_multiply)),
    exp.Div: ("/", Function("number, number", DOUBLE, F.try_divide)),
    exp.Mod: ("%", Function("number, number", _number, F.try_mod)),
    exp.Neg: ("-", Function("number", _number, lambda of: F.try_subtract(F.lit(0), of))),
}
COMPARISONS: Mapping[type[exp.Expr], Callable[[Column, Column], Column]] = {
    exp.EQ: operator.eq,
    exp.NullSafeEQ: Column.eqNullSafe,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}

OTHER_NAMES = {  # common other names, and the function that a hint suggests
    "text": "cast(x as string)",
    "whole": "cast(x as bigint)",
    "number": "cast(x as double)",
    "json": "to_json(x)",
    "time": "to_timestamp(x)",
    "day": "to_date(x)",
    "month": "date_format(x, 'yyyy-MM')",
    "hour": "date_trunc('hour', x)",
    "minute": "date_trunc('minute', x)",
    "seconds": "unix_seconds(x)",
    "sha256": "sha2(x, 256)",
    "has": "map_contains_key(x, key)",
    "count_distinct": "count(DISTINCT x)",
    "average": "avg(x)",
    "p95": "percentile(x, 0.95)",
}
