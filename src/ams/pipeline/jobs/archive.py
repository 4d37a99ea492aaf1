"""The jobs `archive` and `archive-check`: topics as a table by project, topic and day, written exactly once."""

from datetime import datetime
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ams.pipeline import messages
from ams.pipeline.errors import CheckFailed, WrongOption, WrongTable
from ams.pipeline.jobs.base import Job
from ams.pipeline.jobs.fields import group
from ams.pipeline.messages import PARTITIONS
from ams.pipeline.report.page import table
from ams.pipeline.run import Run
from ams.pipeline.tables import Table, frame
from ams.pipeline.topic_archive import closed_partitions, is_kept_here
from ams.tables import upkeep
from ams.tables.files import File, Partition
from ams.tables.location import Location
from ams.tables.table import open_table

ARCHIVE: StructType = from_arrow_schema(messages.ARCHIVE)
MAX_REPORTED_STEPS = 1000  # gaps in offsets that are reported
_DAY_MILLISECONDS = 86_400_000


class ArchiveJobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `archive`."""

    topics: tuple[str, ...] = ("*",)
    """Topics of the project; `*` and `?` in them stand for any characters. With such, topics that are made later are
    archived too, and ones that were deleted are let go."""
    path: str = ""
    """The folder of the archive; without it `tables/archive` in the folder of the run."""
    merge: bool = True
    """True if the many small files of a day are merged into few when the day is closed."""
    closed_after: Annotated[int, msgspec.Meta(ge=0)] = 1
    """How many days after its end a day is closed."""
    file_mib: Annotated[int, msgspec.Meta(ge=1)] = 256
    """How large a merged file becomes, in MiB."""
    batch_messages: Annotated[int, msgspec.Meta(ge=1)] = 200_000
    """How many messages are stored at a time."""

    def __post_init__(self) -> None:
        if not self.topics:
            raise WrongOption("topics", "names no topic")


def run(run: Run, options: ArchiveJobOptions) -> None:
    """Archive new messages, then merge closed days."""
    archive = archive_table(run.spark, options.path or str(run.work / "tables" / "archive"))
    if archive.exists() and is_kept_here(open_table(archive.root).query):
        way_out = "go on with that, or give another folder"
        raise WrongTable(f"{archive.root} is written by `ams archive`, whose place is in the table; {way_out}")

    def refresh() -> None:
        days = closed_partitions(archive.partitions_since(-1), options.closed_after) if options.merge else []
        if merged := archive.merge(days, file_bytes=options.file_mib * 2**20):
            run.say(f"archive: merged {merged} files of days that are closed")

    topics = run.topic(*options.topics, maxOffsetsPerTrigger=str(options.batch_messages))
    run.stream(topics, lambda batch: run.append(archive, with_date(batch)), refresh)


def archive_table(spark: SparkSession, path: str) -> Table:
    """Return the archive in a folder, for writing."""
    return Table(spark, path, ARCHIVE, PARTITIONS, order="offset")


def with_date(messages: DataFrame) -> DataFrame:
    """Return messages (`MESSAGES`) as rows of an archive (`ARCHIVE`)."""
    days = F.floor(F.unix_millis("publish_time") / _DAY_MILLISECONDS).cast("int")
    date = F.date_add(F.lit("1970-01-01").cast("date"), days)  # by number: independent of the session's time zone
    return messages.withColumn("date", date).select(*ARCHIVE.names)


class Selection(msgspec.Struct, frozen=True):
    """Part of an archive, as options of jobs; default: all."""

    project: str = "*"
    """A project of the archive, or a pattern."""
    topics: tuple[str, ...] = ("*",)
    """Topics or patterns."""
    first: str = ""
    """The first day, such as 2024-03-05."""
    last: str = ""
    """The last day, itself included."""

    def __post_init__(self) -> None:
        for name in ("first", "last"):
            text = getattr(self, name)
            try:
                day = datetime.strptime(text, "%Y-%m-%d").date().isoformat() if text else ""  # a day has no zone
            except ValueError:
                raise WrongOption(name, f"{text[:20]!r} is no day such as 2024-03-05") from None
            msgspec.structs.force_setattr(self, name, day)

    def holds(self, partition: Partition) -> bool:
        """Return whether a partition is selected."""
        project, topic, date = (partition[name] or "" for name in PARTITIONS)
        if not fnmatchcase(project, self.project) or not any(fnmatchcase(topic, each) for each in self.topics):
            return False
        return (not self.first or self.first <= date) and (not self.last or date <= self.last)


def read_archive(spark: SparkSession, path: str, selection: Selection | None = None) -> DataFrame:
    """Return the current archived messages (`ARCHIVE`). Raises `WrongTable` if there is no archive."""
    return frame(spark, Location.of(path), select_files(path, selection or Selection()), ARCHIVE)


def select_files(path: str, selection: Selection) -> list[File]:
    """Return the files of a part of an archive. Raises `WrongTable` if there is none, or another table."""
    found = open_table(path)
    if found.partition_by != PARTITIONS:
        raise WrongTable(f"{path} is no archive: its partitions are {', '.join(found.partition_by) or 'none'}")
    return found.select(where=lambda file: selection.holds(file.partition))


class CheckOptions(Selection, frozen=True, kw_only=True):
    """Options of `archive-check`."""

    archive: str
    """The folder of the archive."""


def run_check(run: Run, options: CheckOptions) -> None:
    """Report an archive's content and all its errors. Raises `CheckFailed` if there are any."""
    found, wrong = check(run.spark, options.archive, options)
    run.count(sum(file.rows for file in found))
    topics = group((f"{file.partition['project']}/{file.partition['topic']}", file) for file in found)
    rows = []
    for name, files in sorted(topics.items()):
        first, last = min(file.least["offset"] for file in files), max(file.greatest["offset"] for file in files)
        rows.append((name, sum(file.rows for file in files), first, last, sum(file.size for file in files)))
    print(table(("TOPIC", "MESSAGES", "FIRST", "LAST", "BYTES"), rows), flush=True)
    if wrong:
        print("\n".join(wrong), flush=True)
        count = "1 thing is" if len(wrong) == 1 else f"{len(wrong)} things are"
        more = ", and there may be more" if len(wrong) >= MAX_REPORTED_STEPS else ""
        raise CheckFailed(f"{count} not as it should be in {options.archive}{more}")


def check(spark: SparkSession, path: str, selection: Selection) -> tuple[list[File], list[str]]:
    """Return the checked files, and their errors as texts."""
    found = select_files(path, selection)
    wrong = upkeep.check(path).wrong
    if wrong:
        return found, wrong
    columns = StructType([ARCHIVE[name] for name in ("project", "topic", "offset")])
    offsets = frame(spark, Location.of(path), found, columns)
    taken = steps(offsets).orderBy("project", "topic", "offset").limit(MAX_REPORTED_STEPS).collect()
    return found, [gap_text((row.project, row.topic, row.previous, row.offset)) for row in taken]


def steps(messages: DataFrame) -> DataFrame:
    """Return gaps and repetitions in the offsets of topics: `project`, `topic`, `previous`, `offset`."""
    in_order = Window.partitionBy("project", "topic").orderBy("offset").rowsBetween(-1, -1)
    following = messages.select("project", "topic", "offset", F.max("offset").over(in_order).alias("previous"))
    return following.where(F.col("offset") != F.col("previous") + 1).select("project", "topic", "previous", "offset")


def gap_text(step: tuple[str, str, int, int]) -> str:
    """Return a gap as text."""
    project, topic, previous, offset = step
    if offset == previous:
        return f"{project}/{topic}: offset {offset} is there twice"
    missing = f"offset {previous + 1} is" if offset == previous + 2 else f"offsets {previous + 1} to {offset - 1} are"
    return f"{project}/{topic}: {missing} missing"


HARMLESS = frozenset(ArchiveJobOptions.__struct_fields__) - {"path"}
JOB = Job("archive", "Topics to a Delta table, by project, topic and day", ArchiveJobOptions, run, HARMLESS)
ALL = frozenset(CheckOptions.__struct_fields__)
CHECK = Job("archive-check", "Whether an archive has every message once", CheckOptions, run_check, ALL)
