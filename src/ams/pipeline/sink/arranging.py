"""Rows that come the same each time a batch is tried.

Spark promises neither how rows are parted nor in which order they come once they were shuffled, and a batch that is
tried again must send the same requests. So all rows of a topic, or of a lane of it, go to one partition, whichever that
is, and are sorted there by everything that tells them apart. What the requests hold then depends on the rows alone.

Rows that themselves come differently each time (drawn at random, of the time of day, of a table that changes meanwhile)
are written down first, and published from there.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ams.pipeline.sink.rows import ATTRIBUTES, DATA, LANE, TOPIC
from ams.tables.location import sync


def arranged(rows: DataFrame, order_by: Sequence[str] = (), lane: Column | None = None) -> DataFrame:
    """Return the rows with a column `lane`, in an order that depends on nothing but the rows.

    The rows of a topic are published in the order of the columns `order_by`; those equal in them, in the order of their
    content. With `lane`, a whole number, only the rows of the same lane keep their order, and lanes are published side
    by side.
    """
    topic = [TOPIC] if TOPIC in rows.columns else []
    content: list[str | Column] = [DATA]
    if ATTRIBUTES in rows.columns:
        content.append(F.array_sort(F.map_entries(ATTRIBUTES)))
    # A number of partitions that is said is one that Spark does not change while it runs.
    partitions = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    return (
        rows.withColumn(LANE, F.lit(0) if lane is None else lane)
        .repartition(partitions, *topic, LANE)
        .sortWithinPartitions(*topic, LANE, *order_by, *content)
    )


def written_down(batch: DataFrame, batch_id: int, folder: Path) -> DataFrame:
    """Return the rows of a batch as they were the first time it was tried; they are kept in `folder` until the next."""
    mine = folder / f"batch-{batch_id:06d}"
    if not mine.exists():
        work = folder / "_work"
        batch.write.mode("overwrite").parquet(str(work))
        for each in (*work.iterdir(), work):
            sync(str(each))
        work.rename(mine)
        sync(str(folder))
    for each in folder.glob("batch-*"):
        if each.name < mine.name:
            shutil.rmtree(each)
    return batch.sparkSession.read.schema(batch.schema).parquet(str(mine))
