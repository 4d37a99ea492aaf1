"""Steps that look at one row at a time, so that it does not matter which batch a row comes with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from ams.pipeline.expressions import Expression
from ams.pipeline.expressions.types import struct
from ams.pipeline.flows.steps.schemas import SOURCE


@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps the rows of which the expression is true."""

    expression: Expression

    def apply(self, rows: DataFrame) -> DataFrame:
        """Return the rows that are kept."""
        return rows.where(self.expression.column())


@dataclass(frozen=True, slots=True)
class Derive:
    """Adds columns, or puts others in their place; all are computed from the columns before."""

    columns: Mapping[str, Expression]

    def apply(self, rows: DataFrame) -> DataFrame:
        """Return the rows with the columns."""
        return rows.withColumns(made(self.columns))


@dataclass(frozen=True, slots=True)
class Select:
    """Leaves nothing but these columns, and `source`, where there is one."""

    columns: Mapping[str, Expression]

    def apply(self, rows: DataFrame) -> DataFrame:
        """Return the rows with these columns."""
        named = [value.alias(name) for name, value in made(self.columns).items()]
        return rows.select(*named, *([SOURCE] if SOURCE in rows.columns else []))


@dataclass(frozen=True, slots=True)
class Explode:
    """Makes a row of each item of a list; a row whose list is empty or null ends there."""

    column: str
    name: str

    def apply(self, rows: DataFrame) -> DataFrame:
        """Return a row for each item."""
        rest = [F.col(name) for name in rows.columns if name not in (self.column, self.name)]
        return rows.select(F.explode(self.column).alias(self.name), *rest)


@dataclass(frozen=True, slots=True)
class Join:
    """Adds columns from a small table by equal keys; a row without a counterpart gets nulls."""

    by: Sequence[str]
    fields: Mapping[str, DataType]
    """The columns of the table, keys included."""
    rows: Sequence[Mapping[str, Any]]
    """Of the table; one for each key."""

    def apply(self, rows: DataFrame) -> DataFrame:
        """Return the rows with the columns."""
        schema = struct(self.fields)
        values = [tuple(each[name] for name in schema.names) for each in self.rows]
        table = rows.sparkSession.createDataFrame(values, schema)
        return rows.join(F.broadcast(table), on=list(self.by), how="left")


def made(columns: Mapping[str, Expression]) -> dict[str, Column]:
    """Return columns by name, each of exactly the type that was found for it."""
    kinds = struct({name: each.type for name, each in columns.items()})
    return {name: each.column().cast(kinds[name].dataType) for name, each in columns.items()}
