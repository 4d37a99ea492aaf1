"""Publishing rows: `format("ams")` to write with, and the rows brought into an order that makes it exactly once."""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ams.pipeline.errors import WrongOption
from ams.pipeline.options import KEY_WINDOW_SECONDS, Given
from ams.pipeline.session import activated
from ams.pipeline.sink.requests import arranged, written_down
from ams.pipeline.sink.writer import local_folder, refuse_stale


def publish(
    rows: DataFrame, options: Mapping[str, str], order_by: Sequence[str] = (), lane: Column | None = None
) -> None:
    """Publish rows, arranged, with the options of `format("ams")`.

    Within `foreachBatch` each message is stored exactly once; a batch that publishes more than once to a topic gives
    each time another `idempotencyKey`.
    """
    activated(rows.sparkSession)
    writer = arranged(rows, order_by, lane).write.format("ams").mode("append").options(**options)
    writer.option("orderBy", ",".join(order_by)).save()


def publish_stream(
    rows: DataFrame,
    options: Mapping[str, str],
    checkpoint: str,
    order_by: Sequence[str] = (),
    *,
    lane: Column | None = None,
    write_down: bool = False,
) -> DataStreamWriter:
    """Return a stream that publishes each batch arranged, ready to be given a trigger and started.

    With `write_down`, batches are kept in the checkpoint until they are published: for rows that come differently each
    time they are computed. Raises `StaleCheckpoint` for a checkpoint that is too old to go on from, and `WrongOption`
    for one that is not on a file system.
    """
    folder = local_folder(checkpoint)
    if folder is None:
        raise WrongOption("checkpointLocation", f"{checkpoint} is not on a file system")
    refuse_stale(folder, Given(options).seconds("keyWindow", KEY_WINDOW_SECONDS))

    def batch(each: DataFrame, batch_id: int) -> None:
        kept = written_down(each, batch_id, folder / "published") if write_down else each
        publish(kept, options, order_by, lane)

    return rows.writeStream.foreachBatch(batch).option("checkpointLocation", checkpoint)
