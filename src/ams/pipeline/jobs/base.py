"""Jobs, their options (strict, all errors at once), and helpers for schemas and rows.

Fields of messages that no row of the reference knows are counted by their names, in a table of the run.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Generic, TypeVar

import msgspec
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ams.pipeline.columns import ORDER, SOURCE
from ams.pipeline.errors import WrongOption
from ams.pipeline.run import Run

O = TypeVar("O", bound=msgspec.Struct)  # noqa: E741  # O for options


@dataclass(frozen=True, slots=True)
class Job(Generic[O]):
    """A job. `run` may be killed at any moment: writes are idempotent, by batch number or by replacement."""

    name: str
    summary: str
    options: type[O]  # a frozen Struct of keyword fields with defaults; the reference repeats their docstrings
    run: Callable[[Run, O], None]
    harmless: frozenset[str] = frozenset({"batch_messages"})  # may change between runs: no result depends on them


class NoOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a job that has none."""


def job(function: Callable[..., None] | None = None, /, *, options: type[msgspec.Struct] = NoOptions) -> Any:
    """Make a job of a function; its name and the first line of its docstring are those of the job.

    `@job` decorates a function that takes a `Run`. `@job(options=Options)` decorates one that takes a `Run` and its
    options: a frozen `msgspec.Struct` of keyword fields with defaults, which `--set` and files of options override.
    """

    def make(function: Callable[..., None]) -> Job[Any]:
        run = function if options is not NoOptions else lambda run, _: function(run)
        summary = (inspect.getdoc(function) or "").partition("\n")[0].rstrip(".")
        return Job(function.__name__, summary, options, run)

    return make if function is None else make(function)


def read_options(kind: type[O], given: Mapping[str, Any]) -> tuple[O | None, list[WrongOption]]:
    """Read options from plain values; return them, or all errors."""
    fields = {each.name: each for each in msgspec.structs.fields(kind)}
    wrong: list[WrongOption] = []
    read: dict[str, Any] = {}
    for name, value in given.items():
        if name not in fields:
            wrong.append(WrongOption(name, f"there is no such option; there are {', '.join(fields) or 'none'}"))
            continue
        try:
            read[name] = msgspec.convert(value, fields[name].type)
        except msgspec.ValidationError as error:
            said = re.sub(r" - at `\$[^`]*`", "", str(error)).replace("`", "")
            hint = "; a list is written [one, another]" if said.startswith("Expected array") else ""
            wrong.append(WrongOption(name, f"{said}{hint}"))
    wrong += [WrongOption(name, "must be given") for name in fields if fields[name].required and name not in given]
    if wrong:
        return None, wrong
    try:
        return kind(**read), []
    except WrongOption as error:
        return None, [error]
    except (ValueError, msgspec.ValidationError) as error:
        return None, [WrongOption("options", str(error))]


def takes_text(kind: type[msgspec.Struct], name: str) -> bool:
    """Return whether an option is text, so that `1` stays a text."""
    return any(each.name == name and each.type is str for each in msgspec.structs.fields(kind))


def describe_options(kind: type[msgspec.Struct]) -> list[dict[str, str]]:
    """Return `name`, `default` and `meaning` of a job's options; the default of one that must be given is empty."""
    found: dict[str, str] = {}
    for each in (each for each in kind.__mro__ if issubclass(each, msgspec.Struct) and each is not msgspec.Struct):
        [class_] = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(class_, ast.ClassDef)
        for field, below in pairwise(class_.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                    found.setdefault(name, " ".join(text.split()))
    return [
        {"name": each.name, "default": _default(each), "meaning": found.get(each.name, "")}
        for each in msgspec.structs.fields(kind)
    ]


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return ""
    value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return msgspec.json.encode(msgspec.to_builtins(value)).decode()


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
    """Keep the first row of each group in an order."""
    place = F.row_number().over(Window.partitionBy(*by).orderBy(*order))
    return frame.withColumn("_place", place).where("_place = 1").drop("_place")


def first_published(rows: DataFrame, *by: str) -> DataFrame:
    """Keep of the rows of the same `by` the one whose message (column `source`) was published first."""
    return first(rows, by, *_publishing_order(rows))


def last_published(rows: DataFrame, *by: str) -> DataFrame:
    """Keep of the rows of the same `by` the one whose message (column `source`) was published last."""
    return first(rows, by, *(each.desc() for each in _publishing_order(rows)))


def _publishing_order(rows: DataFrame) -> list[Column]:
    content = F.to_json(F.struct(*sorted(name for name in rows.columns if name != SOURCE)))  # of records of one message
    return [*(F.col(f"{SOURCE}.{name}") for name in ORDER), content]


UNKNOWN = columns(("array<string>", "not_taken"))  # the names of a message's unknown fields

# Unknown fields: number of messages in a batch, and offset of the first.
NOT_TAKEN = columns(("string", "project topic kind name"), ("bigint", "times offset"))


def unknown(records: DataFrame) -> DataFrame:
    """Return the rows of `NOT_TAKEN` of records with the column of `UNKNOWN`."""
    name = F.explode("not_taken").alias("name")
    told = records.select("source.project", "source.topic", "kind", name, "source.offset")
    counted = told.groupBy("project", "topic", "kind", "name")
    return counted.agg(F.count("*").alias("times"), F.min("offset").alias("offset")).select(*NOT_TAKEN.names)
