"""Rows that have the same key, in the order in which their messages were published."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ams.pipeline.definition.fields import SOURCE

ORDER = ("publish_time", "project", "topic", "offset")
"""Of what `source` holds, what messages are put in order by."""
_NUMBER = "#number"
"""A name that no column of a definition can have."""


def one_of_each(rows: DataFrame, by: Sequence[str], *, last: bool) -> DataFrame:
    """Return of the rows that are equal in `by` the first that was published, or the last."""
    return rows.withColumn(_NUMBER, place_among(rows, by, last=last)).where(F.col(_NUMBER) == 1).drop(_NUMBER)


def place_among(rows: DataFrame, by: Sequence[str | Column], *, last: bool = False) -> Column:
    """Return the place of each row, from 1, among those that are equal in `by`.

    Rows of one message are told apart by their content, so that it is the same whatever order they come in.
    """
    order = [F.col(SOURCE).getField(name) for name in ORDER] if SOURCE in rows.columns else []
    order.append(F.to_json(F.struct(*sorted(name for name in rows.columns if name != SOURCE))))
    window = Window.partitionBy(*by).orderBy(*(each.desc() if last else each.asc() for each in order))
    return F.row_number().over(window)
