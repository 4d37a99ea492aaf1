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
from ams.pipeline.archiving import closed, is_kept_here
from ams.pipeline.errors import CheckFailed, WrongOption, WrongTable
from ams.pipeline.jobs.base import Job
from ams.pipeline.messages import PARTITIONS
from ams.pipeline.report.page import table
from ams.pipeline.running import Run
from ams.pipeline.tables import Table, frame
from ams.tables import upkeep
from ams.tables.files import File, Partition
from ams.tables.location import Location
from ams.tables.snapshot import open_table

ARCHIVE: StructType = from_arrow_schema(messages.ARCHIVE)
MOST = 1000  # steps in offsets that are told, at most
_DAY_MILLISECONDS = 86_400_000


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What can be said to `archive`."""

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


def run(run: Run, options: Options) -> None:
    """Archive what there is, then merge the days that are closed."""
    archive = archive_table(run.spark, options.path or str(run.work / "tables" / "archive"))
    if archive.exists() and is_kept_here(open_table(archive.root).query):
        raise WrongTable(
            f"{archive.root} is written by `ams archive`, whose place is in the table; go on with that, or give "
            "another folder"
        )

    def handle(messages: DataFrame, batch_id: int) -> None:
        run.append(archive, dated(messages), batch_id)

    def refresh() -> None:
        days = closed(archive.partitions_since(-1), options.closed_after) if options.merge else []
        if merged := archive.merge(days, file_bytes=options.file_mib * 2**20):
            run.say(f"archive: merged {merged} files of days that are closed")

    run.stream(run.topic(*options.topics, maxOffsetsPerTrigger=str(options.batch_messages)), handle, refresh)


def archive_table(spark: SparkSession, path: str) -> Table:
    """Return the archive in a folder, for writing."""
    return Table(spark, path, ARCHIVE, PARTITIONS, order="offset")


def dated(messages: DataFrame) -> DataFrame:
    """Return messages (`MESSAGES`) as rows of an archive (`ARCHIVE`)."""
    days = F.floor(F.unix_millis("publish_time") / _DAY_MILLISECONDS).cast("int")
    date = F.date_add(F.lit("1970-01-01").cast("date"), days)  # by number: of whatever time zone the session is
    return messages.withColumn("date", date).select(*ARCHIVE.names)


class Selection(msgspec.Struct, frozen=True):
    """Which part of an archive is meant, as options of jobs say it; the default is all of it."""

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
        """Return whether a partition is meant."""
        project, topic, date = (partition[name] or "" for name in PARTITIONS)
        if not fnmatchcase(project, self.project) or not any(fnmatchcase(topic, each) for each in self.topics):
            return False
        return (not self.first or self.first <= date) and (not self.last or date <= self.last)


def archived(spark: SparkSession, path: str, selection: Selection | None = None) -> DataFrame:
    """Return archived messages (`ARCHIVE`) as they are now; raises `WrongTable` where there is no archive."""
    return frame(spark, Location.of(path), selected(path, selection or Selection()), ARCHIVE)


def selected(path: str, selection: Selection) -> list[File]:
    """Return the files of a part of an archive; raise `WrongTable` where there is none, or another table."""
    found = open_table(path)
    if found.partition_by != PARTITIONS:
        raise WrongTable(f"{path} is no archive: its partitions are {', '.join(found.partition_by) or 'none'}")
    return found.select(where=lambda file: selection.holds(file.partition))


class CheckOptions(Selection, frozen=True, kw_only=True):
    """What can be said to `archive-check`."""

    archive: str
    """The folder of the archive."""


def run_check(run: Run, options: CheckOptions) -> None:
    """Tell what an archive holds and everything that is wrong with it; raise `CheckFailed` for anything."""
    found, wrong = check(run.spark, options.archive, options)
    run.count(sum(file.rows for file in found))
    topics: dict[str, tuple[int, int, int, int]] = {}
    for file in found:
        name = f"{file.partition['project']}/{file.partition['topic']}"
        first, last = file.least["offset"], file.greatest["offset"]
        number, least, greatest, size = topics.get(name, (0, first, last, 0))
        topics[name] = (number + file.rows, min(least, first), max(greatest, last), size + file.size)
    rows = [(name, *numbers) for name, numbers in sorted(topics.items())]
    print(table(("TOPIC", "MESSAGES", "FIRST", "LAST", "BYTES"), rows), flush=True)
    if wrong:
        print("\n".join(wrong), flush=True)
        count = "1 thing is" if len(wrong) == 1 else f"{len(wrong)} things are"
        more = ", and there may be more" if len(wrong) >= MOST else ""
        raise CheckFailed(f"{count} not as it should be in {options.archive}{more}")


def check(spark: SparkSession, path: str, selection: Selection) -> tuple[list[File], list[str]]:
    """Return the files that were looked at, and all that is wrong with them, in words."""
    found = selected(path, selection)
    wrong = upkeep.check(path).wrong
    if wrong:
        return found, wrong
    columns = StructType([ARCHIVE[name] for name in ("project", "topic", "offset")])
    offsets = frame(spark, Location.of(path), found, columns)
    taken = steps(offsets).orderBy("project", "topic", "offset").limit(MOST).collect()
    return found, [told((row.project, row.topic, row.previous, row.offset)) for row in taken]


def steps(messages: DataFrame) -> DataFrame:
    """Return where the offsets of a topic do not follow each other: `project`, `topic`, `previous`, `offset`."""
    in_order = Window.partitionBy("project", "topic").orderBy("offset").rowsBetween(-1, -1)
    following = messages.select("project", "topic", "offset", F.max("offset").over(in_order).alias("previous"))
    return following.where(F.col("offset") != F.col("previous") + 1).select("project", "topic", "previous", "offset")


def told(step: tuple[str, str, int, int]) -> str:
    """Say one step in words."""
    project, topic, previous, offset = step
    if offset == previous:
        return f"{project}/{topic}: offset {offset} is there twice"
    missing = f"offset {previous + 1} is" if offset == previous + 2 else f"offsets {previous + 1} to {offset - 1} are"
    return f"{project}/{topic}: {missing} missing"


HARMLESS = frozenset(Options.__struct_fields__) - {"path"}
JOB = Job("archive", "Topics to a Delta table, by project, topic and day", Options, run, HARMLESS)
ALL = frozenset(CheckOptions.__struct_fields__)
CHECK = Job("archive-check", "Whether an archive has every message once", CheckOptions, run_check, ALL)
