"""Publishes rows through `format("ams")`, in a deterministic order that makes it exactly once."""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ams.pipeline.errors import WrongOption
from ams.pipeline.options import KEY_WINDOW_SECONDS, RawOptions
from ams.pipeline.session import make_active
from ams.pipeline.sink.requests import arrange_rows, written_down
from ams.pipeline.sink.writer import local_folder, refuse_stale


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


def publish_stream(
    rows: DataFrame,
    options: Mapping[str, str],
    checkpoint: str,
    order_by: Sequence[str] = (),
    *,
    lane: Column | None = None,
    write_down: bool = False,
) -> DataStreamWriter:
    """Return a stream writer that arranges and publishes each batch; the caller adds a trigger and starts it.

    `write_down` keeps batches in the checkpoint until they are published: for rows that differ each time they are
    computed. Raises `StaleCheckpoint` if the checkpoint is too old, and `WrongOption` if it is not on a file system.
    """
    folder = local_folder(checkpoint)
    if folder is None:
        raise WrongOption("checkpointLocation", f"{checkpoint} is not on a file system")
    refuse_stale(folder, RawOptions(options).seconds("keyWindow", KEY_WINDOW_SECONDS))

    def batch(each: DataFrame, batch_id: int) -> None:
        kept = written_down(each, batch_id, folder / "published") if write_down else each
        publish(kept, options, order_by, lane)

    return rows.writeStream.foreachBatch(batch).option("checkpointLocation", checkpoint)
