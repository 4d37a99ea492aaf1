"""Steps that look at one row at a time, so that it does not matter which batch a row comes with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ams.pipeline.expressions.compiling import column
from ams.pipeline.expressions.tree import Node
from ams.pipeline.expressions.types import Type
from ams.pipeline.flows.steps.schemas import SOURCE, spark_type, struct

Types = Mapping[str, Type]
"""The columns before a step."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps the rows of which the expression is true."""

    expression: Node
    types: Types

    def apply(self, rows: DataFrame) -> DataFrame:
        """Return the rows that are kept."""
        return rows.where(column(self.expression, self.types))


@dataclass(frozen=True, slots=True)
class Derive:
    """Adds columns, or puts others in their place; all are computed from the columns before."""

    columns: Mapping[str, Node]
    types: Types
    after: Types

    def apply(self, rows: DataFrame) -> DataFrame:
        """Return the rows with the columns."""
        return rows.withColumns(_made(self.columns, self.types, self.after))


@dataclass(frozen=True, slots=True)
class Select:
    """Leaves nothing but these columns, and `source`, where there is one."""

    columns: Mapping[str, Node]
    types: Types
    after: Types

    def apply(self, rows: DataFrame) -> DataFrame:
        """Return the rows with these columns."""
        named = [value.alias(name) for name, value in _made(self.columns, self.types, self.after).items()]
        return rows.select(*named, *([SOURCE] if SOURCE in self.after else []))


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
    fields: Types
    """The columns of the table, keys included."""
    rows: Sequence[Mapping[str, Any]]
    """Of the table; one for each key."""

    def apply(self, rows: DataFrame) -> DataFrame:
        """Return the rows with the columns."""
        schema = struct(self.fields)
        values = [tuple(each[name] for name in schema.names) for each in self.rows]
        table = rows.sparkSession.createDataFrame(values, schema)
        return rows.join(F.broadcast(table), on=list(self.by), how="left")


def _made(columns: Mapping[str, Node], before: Types, after: Types) -> dict[str, Column]:
    """Return columns by name, each of exactly the type that was found for it."""
    return {name: column(node, before).cast(spark_type(after[name])) for name, node in columns.items()}
