"""The job `metrics`: who used how much in a month, as a table, as CSV, and as a page with plots."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from datetime import date as Day  # a field of `Usage` is called so

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, DoubleType, LongType, StringType, StructField, StructType, TimestampType
from pyspark.storagelevel import StorageLevel

from ams.pipeline.errors import WrongOption
from ams.pipeline.jobs.archive import Selection, archived, dated
from ams.pipeline.jobs.base import Job
from ams.pipeline.report import plots, text
from ams.pipeline.report.page import Figure, Rows, Section, page, put
from ams.pipeline.running import Run
from ams.pipeline.session import activated

_NUMBERS = ("messages", "bytes", "p95_bytes", "largest_bytes", "busiest_minute")
USAGE = StructType(
    [
        *(StructField(name, StringType()) for name in ("project", "topic", "publisher")),
        StructField("date", DateType()),
        *(StructField(name, DoubleType() if name == "p95_bytes" else LongType()) for name in _NUMBERS),
        *(StructField(name, TimestampType()) for name in ("first", "last")),
        StructField("month", StringType()),
    ]
)
"""The figures (`FIGURES`) of a topic and publisher on a day."""
FIGURES = (*_NUMBERS, "first", "last")
"""Of a group of messages: how many; the bytes of their data; the size that 95 of 100 do not exceed, between two sizes
interpolated; the largest size; how many were published in the minute with the most; the first and last publish time."""
BY_DAY = ("project", "topic", "date", "publisher")
BY_MONTH = ("project", "topic", "publisher")
MOST = 7
"""Topics or publishers that have a colour of their own in a plot; the rest is one."""
_CSV = ("date", *BY_MONTH, *FIGURES[:4], "per_second", *FIGURES[4:])
_DAY_SECONDS = 86400


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


def read(run: Run, options: Options, first: Day) -> DataFrame:
    """Return the messages of the month that begins with a day, as rows of an archive."""
    last = following(first)
    if options.archive:
        found = archived(run.spark, options.archive, Selection(options.project, options.topics, f"{first}", f"{last}"))
    else:
        reader = activated(run.spark).read.format("ams").options(**run.source, topicPattern=",".join(options.topics))
        found = dated(reader.load())
    return found.where((F.col("date") >= F.lit(first)) & (F.col("date") < F.lit(last)))


def sizes(messages: DataFrame, publisher: str) -> DataFrame:
    """Return what is counted of each message: `project`, `topic`, `date`, `publisher`, `publish_time`, `bytes`.

    Args:
        messages: `columns.MESSAGES`, or rows of an archive.
        publisher: the attribute that says who published; the service itself does not tell. Empty: nobody is named.
    """
    who: Column = F.coalesce(F.col("attributes")[publisher], F.lit("")) if publisher else F.lit("")
    days = messages if "date" in messages.columns else dated(messages)
    size = F.length("data").cast("long")
    return days.select("project", "topic", "date", who.alias("publisher"), "publish_time", size.alias("bytes"))


def figures(counted: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return `keys` and `FIGURES` of each group of `sizes`."""
    totals = counted.groupBy(*keys).agg(
        F.count("*").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.percentile("bytes", 0.95).alias("p95_bytes"),
        F.max("bytes").alias("largest_bytes"),
        F.min("publish_time").alias("first"),
        F.max("publish_time").alias("last"),
    )
    minutes = counted.groupBy(*keys, F.date_trunc("minute", "publish_time").alias("minute")).count()
    busiest = minutes.groupBy(*keys).agg(F.max("count").alias("busiest_minute"))
    return totals.join(busiest, on=list(keys), how="inner").select(*keys, *FIGURES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Figures of one topic and publisher, in a day or in a month."""

    project: str
    topic: str
    publisher: str
    date: Day | None = None
    messages: int
    bytes: int
    p95_bytes: float
    largest_bytes: int
    busiest_minute: int
    first: datetime
    last: datetime


@dataclass(frozen=True, slots=True)
class Month:
    """What is reported."""

    name: str
    """Such as `2024-03`."""
    days: Sequence[Usage]
    totals: Sequence[Usage]
    by_publisher: bool

    @property
    def all_days(self) -> list[Day]:
        """The days of the month, also such as nothing was published on."""
        first = first_day(self.name)
        return [first + timedelta(days=number) for number in range((following(first) - first).days)]


def count(messages: DataFrame, name: str, publisher: str) -> Month:
    """Return the figures of messages of one month."""
    counted = sizes(messages, publisher).persist(StorageLevel.DISK_ONLY)
    try:
        days, totals = (
            [Usage(**row.asDict()) for row in figures(counted, keys).orderBy(*keys).collect()]
            for keys in (BY_DAY, BY_MONTH)
        )
    finally:
        counted.unpersist()
    return Month(name, days, totals, bool(publisher))


def first_day(month: str) -> Day:
    """Return the first day of a month; raise `WrongOption` for what is none."""
    if not month:
        return datetime.now(UTC).date().replace(day=1)
    try:
        first = datetime.strptime(month, "%Y-%m").date()  # a month has no zone
        following(first)
    except (ValueError, OverflowError):
        raise WrongOption("month", f"{month[:20]!r} is no month such as 2024-03") from None
    return first


def following(first_day: Day) -> Day:
    """Return the first day of the month after."""
    return (first_day.replace(day=28) + timedelta(days=4)).replace(day=1)


def as_text(month: Month) -> str:
    """Return the totals as a table."""
    return text.table(*_rows(month))


def as_csv(month: Month) -> str:
    """Return the figures of each day, a line each."""
    written = io.StringIO()
    writer = csv.DictWriter(written, _CSV, lineterminator="\n")
    writer.writeheader()
    for each in month.days:
        told = {
            "per_second": round(each.messages / _DAY_SECONDS, 6),
            "first": _iso(each.first),
            "last": _iso(each.last),
        }
        writer.writerow({**asdict(each), **told})
    return written.getvalue()


def as_page(month: Month) -> str:
    """Return the page."""
    messages, size = sum(each.messages for each in month.totals), sum(each.bytes for each in month.totals)
    lead = f"{messages:,} messages with {size / 2**20:,.1f} MiB of data were published in {month.name}."
    return page(f"Usage in {month.name}", lead, sections(month))


def sections(month: Month) -> list[Section]:
    """Return the sections of a page that show a month."""
    found = [_section(month, "Topics", lambda each: f"{each.project}/{each.topic}")]
    if month.by_publisher:
        found.append(_section(month, "Publishers", lambda each: each.publisher or "(not named)"))
    head, rows = _rows(month)
    return [*found, Section("Figures of usage", content=[Rows([each.capitalize() for each in head], rows)])]


def _rows(month: Month) -> tuple[list[str], list[list[object]]]:
    """Return the names of columns and the totals."""
    seconds = len(month.all_days) * _DAY_SECONDS
    columns: dict[str, Callable[[Usage], object]] = {
        "PROJECT": lambda each: each.project,
        "TOPIC": lambda each: each.topic,
        "PUBLISHER": lambda each: each.publisher,
        "MESSAGES": lambda each: each.messages,
        "BYTES": lambda each: each.bytes,
        "P95 BYTES": lambda each: each.p95_bytes,
        "LARGEST": lambda each: each.largest_bytes,
        "PER SECOND": lambda each: each.messages / seconds,
        "BUSIEST MINUTE": lambda each: each.busiest_minute,
    }
    if not month.by_publisher:
        del columns["PUBLISHER"]
    return list(columns), [[value(each) for value in columns.values()] for each in month.totals]


def _section(month: Month, title: str, name_of: Callable[[Usage], str]) -> Section:
    labels = [f"{day.day}" for day in month.all_days]
    messages = _series(month, name_of, lambda each: each.messages)
    volume = _series(month, name_of, lambda each: each.bytes / 2**20)
    return Section(
        title,
        content=[
            Figure(plots.stacked_bars(messages, labels, "messages a day"), f"{title}: messages of each day."),
            Figure(plots.stacked_bars(volume, labels, "MiB a day"), f"{title}: data of each day."),
        ],
    )


def _series(
    month: Month, name_of: Callable[[Usage], str], value: Callable[[Usage], float]
) -> Mapping[str, Sequence[float]]:
    """Return a value for each day of the largest names, and of all others together."""
    totals: dict[str, float] = {}
    for each in month.totals:
        totals[name_of(each)] = totals.get(name_of(each), 0) + value(each)
    largest = sorted(totals, key=lambda name: (-totals[name], name))[:MOST]
    series = {name: [0.0] * len(month.all_days) for name in [*largest, *(["others"] if len(totals) > MOST else [])]}
    for each in month.days:
        assert each.date is not None
        name = name_of(each)
        series[name if name in largest else "others"][each.date.day - 1] += value(each)
    return series


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


JOB = Job(
    "metrics",
    "Who used how much in a month: a table, CSV, and a page with plots",
    Options,
    run,
    harmless=frozenset(Options.__struct_fields__),
)
