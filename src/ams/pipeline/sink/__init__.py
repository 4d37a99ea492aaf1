"""Publishes rows through `format("ams")`, in a deterministic order that makes it exactly once."""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame

from ams.pipeline.session import make_active
from ams.pipeline.sink.requests import arrange_rows


def publish(
    rows: DataFrame, options: Mapping[str, str], order_by: Sequence[str] = (), lane: Column | None = None
) -> None:
    """Arrange and publish rows, with the options of `format("ams")`.

    Within `foreachBatch` each message is stored exactly once. A batch that publishes to a topic several times needs a
    different `idempotencyKey` each time.
    """
    make_active(rows.sparkSession)
    writer = arrange_rows(rows, order_by, lane).write.format("ams").mode("append").options(**options)
    writer.option("orderBy", ",".join(order_by)).save()
