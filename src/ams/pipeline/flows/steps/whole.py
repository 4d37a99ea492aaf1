"""Steps over all rows there are, computed anew whenever there are more: so it does not matter when a row came."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ams.pipeline.expressions.compiling import column
from ams.pipeline.expressions.tree import Node
from ams.pipeline.flows.steps.rows import Types
from ams.pipeline.flows.steps.schemas import SOURCE, spark_type

_ORDER = ("publish_time", "project", "topic", "offset")
_NUMBER = "#number"
"""A name that no column of a definition can have."""


@dataclass(frozen=True, slots=True)
class Deduplicate:
    """Keeps one row of those that are equal in `by`: the first that was published, or the last."""

    by: Sequence[str]
    last: bool

    def apply(self, rows: DataFrame) -> DataFrame:
        """Return one row for each key. Rows of one message are told apart by their content, so that it is the same
        whatever order they come in."""
        order: list[Column] = [F.col(SOURCE).getField(name) for name in _ORDER]
        order.append(F.to_json(F.struct(*sorted(name for name in rows.columns if name != SOURCE))))
        directed = [each.desc() if self.last else each.asc() for each in order]
        window = Window.partitionBy(*self.by).orderBy(*directed)
        return rows.withColumn(_NUMBER, F.row_number().over(window)).where(F.col(_NUMBER) == 1).drop(_NUMBER)


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of an aggregate: a function of `AGGREGATES` over an expression."""

    function: str
    argument: Node | None
    """None of `count`, which counts rows."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Makes one row for each key, with figures over the rows that have it."""

    by: Sequence[str]
    figures: Mapping[str, Figure]
    types: Types
    after: Types

    def apply(self, rows: DataFrame) -> DataFrame:
        """Return one row for each key; without keys, one row."""
        made = [
            self._figure(each).cast(spark_type(self.after[name])).alias(name) for name, each in self.figures.items()
        ]
        return rows.groupBy(*self.by).agg(*made)

    def _figure(self, figure: Figure) -> Column:
        argument = None if figure.argument is None else column(figure.argument, self.types)
        return _COMPUTED[figure.function](argument)


_COMPUTED: Mapping[str, Callable[[Any], Column]] = {
    "count": lambda _: F.count(F.lit(1)),
    "count_distinct": F.count_distinct,
    "sum": F.try_sum,
    "average": F.try_avg,
    "min": F.min,
    "max": F.max,
    "median": lambda each: F.percentile(each, F.lit(0.5)),
    "p95": lambda each: F.percentile(each, F.lit(0.95)),
}
