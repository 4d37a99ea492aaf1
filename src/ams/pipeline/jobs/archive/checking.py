"""Checking an archive: do the files hold what the table's log says, and does every topic have every offset once."""

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ams.pipeline.jobs.archive.table import ARCHIVE, Selection, selected
from ams.pipeline.tables import frame
from ams.tables import upkeep
from ams.tables.files import File
from ams.tables.location import Location

MOST = 1000
"""Steps in offsets that are told, at most."""


def steps(messages: DataFrame) -> DataFrame:
    """Return where the offsets of a topic do not follow each other: `project`, `topic`, `previous`, `offset`.

    Between `previous` and a larger `offset` messages are missing; an `offset` that is not larger came again.
    """
    in_order = Window.partitionBy("project", "topic").orderBy("offset").rowsBetween(-1, -1)
    following = messages.select("project", "topic", "offset", F.max("offset").over(in_order).alias("previous"))
    return following.where(F.col("offset") != F.col("previous") + 1).select("project", "topic", "previous", "offset")


def told(step: "tuple[str, str, int, int]") -> str:
    """Say one step in words."""
    project, topic, previous, offset = step
    if offset == previous:
        return f"{project}/{topic}: offset {offset} is there twice"
    missing = f"offset {previous + 1} is" if offset == previous + 2 else f"offsets {previous + 1} to {offset - 1} are"
    return f"{project}/{topic}: {missing} missing"


def summary(files: Iterable[File]) -> dict[str, tuple[int, int, int, int]]:
    """Return of each topic its messages, first and last offset, and bytes, as the table's log has them."""
    found: dict[str, tuple[int, int, int, int]] = {}
    for file in files:
        name = f"{file.partition['project']}/{file.partition['topic']}"
        first, last = file.least["offset"], file.greatest["offset"]
        rows, least, greatest, size = found.get(name, (0, first, last, 0))
        found[name] = (rows + file.rows, min(least, first), max(greatest, last), size + file.size)
    return found


def check(spark: SparkSession, path: str, selection: Selection) -> tuple[list[File], list[str]]:
    """Return the files that were looked at, and all that is wrong with them, in words."""
    found = selected(path, selection)
    wrong = upkeep.check(path).wrong
    if wrong:
        return found, wrong
    offsets = frame(
        spark, Location.of(path), found, StructType([ARCHIVE[name] for name in ("project", "topic", "offset")])
    )
    taken = steps(offsets).orderBy("project", "topic", "offset").limit(MOST).collect()
    return found, [told((row.project, row.topic, row.previous, row.offset)) for row in taken]
