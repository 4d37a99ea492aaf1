"""Steps over all rows there are, computed anew whenever there are more: so it does not matter when a row came."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ams.pipeline.expressions import Expression
from ams.pipeline.flows.steps.rows import made
from ams.pipeline.flows.steps.schemas import SOURCE

_ORDER = ("publish_time", "project", "topic", "offset")
_NUMBER = "#number"
"""A name that no column of a definition can have."""


@dataclass(frozen=True, slots=True)
class Deduplicate:
    """Keeps one row of those that are equal in `by`: the first that was published, or the last."""

    by: Sequence[str]
    last: bool

    def apply(self, rows: DataFrame) -> DataFrame:
        """Return one row for each key."""
        directed = [each.desc() if self.last else each.asc() for each in published(rows)]
        window = Window.partitionBy(*self.by).orderBy(*directed)
        return rows.withColumn(_NUMBER, F.row_number().over(window)).where(F.col(_NUMBER) == 1).drop(_NUMBER)


def published(rows: DataFrame) -> list[Column]:
    """Return what rows are put in order by: when their messages were published.

    Rows of one message are told apart by their content, so that the order is the same however they come.
    """
    placed = [F.col(SOURCE).getField(name) for name in _ORDER] if SOURCE in rows.columns else []
    return [*placed, F.to_json(F.struct(*sorted(name for name in rows.columns if name != SOURCE)))]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Makes one row for each key, with figures over the rows that have it."""

    by: Sequence[str]
    figures: Mapping[str, Expression]

    def apply(self, rows: DataFrame) -> DataFrame:
        """Return one row for each key; without keys, one row."""
        return rows.groupBy(*self.by).agg(*(value.alias(name) for name, value in made(self.figures).items()))
