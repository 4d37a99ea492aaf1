"""The job `metrics`."""

from dataclasses import asdict
from datetime import UTC, date, datetime

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, DoubleType, LongType, StringType, StructField, StructType, TimestampType
from pyspark.storagelevel import StorageLevel

from ams.pipeline.errors import WrongOption
from ams.pipeline.jobs.archive.table import Selection, archived, dated
from ams.pipeline.jobs.base import Job
from ams.pipeline.jobs.usage.figures import BY_DAY, BY_MONTH, figures, sizes
from ams.pipeline.jobs.usage.report import Month, Usage, as_csv, as_page, as_text, following
from ams.pipeline.report.page import put
from ams.pipeline.running import Run
from ams.pipeline.session import activated

USAGE = StructType(
    [
        *(StructField(name, StringType()) for name in ("project", "topic", "publisher")),
        StructField("date", DateType()),
        *(StructField(name, LongType()) for name in ("messages", "bytes")),
        StructField("p95_bytes", DoubleType()),
        *(StructField(name, LongType()) for name in ("largest_bytes", "busiest_minute")),
        *(StructField(name, TimestampType()) for name in ("first", "last")),
        StructField("month", StringType()),
    ]
)
"""The figures of a topic and publisher on a day (`figures.FIGURES`)."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What can be said to `metrics`."""

    month: str = ""
    """The month, such as 2024-03; without it the one that is."""
    archive: str = ""
    """The folder of an archive to count in; without it the topics of the project are read, as far as they are kept."""
    project: str = "*"
    """A project of the archive, or a pattern; topics are always read of the project of the run."""
    topics: tuple[str, ...] = ("*",)
    """Topics or patterns."""
    publisher: str = ""
    """The attribute that says who published, such as `origin`; the service tells nobody."""

    def __post_init__(self) -> None:
        first_day(self.month)
        if not self.topics:
            raise WrongOption("topics", "names no topic")


def run(run: Run, options: Options) -> None:
    """Count, print the table, and write `usage-MONTH.csv`, `usage-MONTH.html` and the table `usage` of the run."""
    first = first_day(options.month)
    month = count(read(run, options, first), f"{first:%Y-%m}", options.publisher)
    run.count(sum(each.messages for each in month.totals))
    days = run.spark.createDataFrame([{**asdict(each), "month": month.name} for each in month.days], USAGE)
    run.result("usage", USAGE, ("month",)).replace(days, [{"month": month.name}])
    print(as_text(month), flush=True)
    for ending, content in (("csv", as_csv(month)), ("html", as_page(month))):
        path = run.work / "results" / f"usage-{month.name}.{ending}"
        put(path, content)
        run.say(f"metrics: {path}")


def read(run: Run, options: Options, first: date) -> DataFrame:
    """Return the messages of the month that begins with a day, as rows of an archive."""
    last = f"{following(first)}"
    if options.archive:
        part = Selection(options.project, options.topics, f"{first}", last)
        found = archived(run.spark, options.archive, part)
    else:
        reader = activated(run.spark).read.format("ams").options(**run.source, topicPattern=",".join(options.topics))
        found = dated(reader.load())
    return found.where((F.col("date") >= F.lit(first)) & (F.col("date") < F.lit(following(first))))


def count(messages: DataFrame, name: str, publisher: str) -> Month:
    """Return the figures of messages of one month."""
    counted = sizes(messages, publisher).persist(StorageLevel.DISK_ONLY)
    try:
        days = figures(counted, BY_DAY).orderBy(*BY_DAY).collect()
        totals = figures(counted, BY_MONTH).orderBy(*BY_MONTH).collect()
    finally:
        counted.unpersist()
    return Month(
        name, [Usage(**row.asDict()) for row in days], [Usage(**row.asDict()) for row in totals], bool(publisher)
    )


def first_day(month: str) -> date:
    """Return the first day of a month; raise `WrongOption` for what is none."""
    if not month:
        return datetime.now(UTC).date().replace(day=1)
    try:
        first = datetime.strptime(month, "%Y-%m").date()  # a month has no zone
        following(first)
    except (ValueError, OverflowError):
        raise WrongOption("month", f"{month[:20]!r} is no month such as 2024-03") from None
    return first


JOB = Job(
    "metrics",
    "Who used how much in a month: a table, CSV, and a page with plots",
    Options,
    run,
    harmless=frozenset(Options.__struct_fields__),
)
