"""Checking an archive: do the files hold what the manifest says, and does every topic have every offset once."""

from collections.abc import Iterator, Sequence

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ams.pipeline.jobs.archive.table import ARCHIVE, RANGES, Selection, folders_of
from ams.pipeline.tables import frame
from ams.pipeline.tables.files import Storage, files_of
from ams.pipeline.tables.footers import described
from ams.pipeline.tables.manifest import Folder

MOST = 1000
"""Steps in offsets that are told, at most."""


def differences(files: Storage, path: str, folders: Sequence[Folder]) -> Iterator[str]:
    """Yield what in the files of an archive is not as its manifest says."""
    for folder in folders:
        place = f"{path}/{folder.path}"
        found = described(files, place, folder.path, folder.batch, RANGES)
        if found != folder:
            what = "is not there" if not files.exists(place) else f"holds {found.rows} rows in {found.files} files"
            yield f"{folder.path} {what}, its manifest says {folder.rows} rows in {folder.files} files"
    known = {folder.path for folder in folders}
    for partition in sorted({folder.partition for folder in folders}):
        for name in files.names(f"{path}/{partition}"):
            if f"{partition}/{name}" not in known:
                yield f"{partition}/{name} is not in the manifest"


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


def summary(folders: Sequence[Folder]) -> dict[str, tuple[int, int, int, int]]:
    """Return of each topic its messages, first and last offset, and bytes, as the manifest has them."""
    found: dict[str, tuple[int, int, int, int]] = {}
    for folder in folders:
        name = f"{folder.values['project']}/{folder.values['topic']}"
        first, last = folder.ranges["offset"]
        rows, least, greatest, size = found.get(name, (0, first, last, 0))
        found[name] = (rows + folder.rows, min(least, first), max(greatest, last), size + folder.bytes)
    return found


def check(spark: SparkSession, path: str, selection: Selection) -> tuple[list[Folder], list[str]]:
    """Return the folders that were looked at, and all that is wrong with them, in words."""
    folders = folders_of(spark, path, selection)
    wrong = list(differences(files_of(spark, path), path, folders))
    if wrong:
        return folders, wrong
    offsets = frame(spark, path, ARCHIVE, folders).select("project", "topic", "offset")
    found = steps(offsets).orderBy("project", "topic", "offset").limit(MOST).collect()
    return folders, [told((row.project, row.topic, row.previous, row.offset)) for row in found]
