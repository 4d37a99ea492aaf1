"""The job `metrics`: who used how much in a month, as a table, as CSV, and as a page with plots."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

import msgspec
import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from ams.pipeline.errors import WrongOption
from ams.pipeline.jobs.archive import Selection, read_archive, with_date
from ams.pipeline.jobs.base import Job, columns
from ams.pipeline.report import plots
from ams.pipeline.report.page import Figure, Rows, Section, page, put, table
from ams.pipeline.run import Run
from ams.pipeline.session import make_active, persist_rows

USAGE = columns(
    ("string", "project topic publisher"),
    ("date", "date"),
    ("bigint", "messages bytes"),
    ("double", "p95_bytes"),
    ("bigint", "largest_bytes busiest_minute"),
    ("timestamp", "first last"),
    ("string", "month"),
)
FIGURES = USAGE.names[4:-1]
"""Of a group of messages: how many; the bytes of their data; the size that 95 of 100 do not exceed, between two sizes
interpolated; the largest size; how many were published in the minute with the most; the first and last publish time."""
BY_DAY = ("project", "topic", "date", "publisher")
BY_MONTH = ("project", "topic", "publisher")
COLOURED_NAMES = 7  # topics or publishers with their own colour in a plot
_CSV = ("date", *BY_MONTH, *FIGURES[:4], "per_second", *FIGURES[4:])
_DAY_SECONDS = 86400


class MetricsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `metrics`."""

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


def run(run: Run, options: MetricsOptions) -> None:
    """Count, print the table, and write `usage-MONTH.csv`, `usage-MONTH.html` and the table `usage` of the run."""
    first = first_day(options.month)
    month = count(read(run, options, first), f"{first:%Y-%m}", options.publisher)
    run.count(int(month.totals["messages"].sum()))
    days = run.spark.createDataFrame(month.days.assign(month=month.name)[USAGE.names], USAGE)
    run.result("usage", USAGE, ("month",)).replace(days, [{"month": month.name}])
    print(as_text(month), flush=True)
    for ending, content in (("csv", as_csv(month)), ("html", as_page(month))):
        path = run.work / "results" / f"usage-{month.name}.{ending}"
        put(path, content)
        run.say(f"metrics: {path}")


def read(run: Run, options: MetricsOptions, first: date) -> DataFrame:
    """Return the messages of the month that begins with a day, as rows of an archive."""
    last = following(first)
    if options.archive:
        selection = Selection(options.project, options.topics, f"{first}", f"{last}")
        found = read_archive(run.spark, options.archive, selection)
    else:
        reader = make_active(run.spark).read.format("ams").options(**run.source, topicPattern=",".join(options.topics))
        found = with_date(reader.load())
    return found.where((F.col("date") >= F.lit(first)) & (F.col("date") < F.lit(last)))


def sizes(messages: DataFrame, publisher: str) -> DataFrame:
    """Return keys, `publish_time` and `bytes` of each message (`columns.MESSAGES`)."""
    who: Column = F.coalesce(F.col("attributes")[publisher], F.lit("")) if publisher else F.lit("")
    days = messages if "date" in messages.columns else with_date(messages)
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


class Month(NamedTuple):
    """Figures of the report."""

    name: str
    days: pd.DataFrame
    totals: pd.DataFrame
    by_publisher: bool

    @property
    def length(self) -> int:
        """Number of days in the month."""
        first = first_day(self.name)
        return (following(first) - first).days


def count(messages: DataFrame, name: str, publisher: str) -> Month:
    """Return the figures of messages of one month."""
    with persist_rows(sizes(messages, publisher), StorageLevel.DISK_ONLY) as counted:
        days, totals = (figures(counted, keys).orderBy(*keys).toArrow().to_pandas() for keys in (BY_DAY, BY_MONTH))
    return Month(name, days, totals, bool(publisher))


def first_day(month: str) -> date:
    """Return the first day of a month. Raises `WrongOption`."""
    if not month:
        return datetime.now(UTC).date().replace(day=1)
    try:
        first = datetime.strptime(month, "%Y-%m").date()  # a month has no zone
        following(first)
    except (ValueError, OverflowError):
        raise WrongOption("month", f"{month[:20]!r} is no month such as 2024-03") from None
    return first


def following(first_day: date) -> date:
    """Return the first day of the month after."""
    return (first_day.replace(day=28) + timedelta(days=4)).replace(day=1)


def as_text(month: Month) -> str:
    """Return the totals as a table."""
    return table(*_rows(month))


def as_csv(month: Month) -> str:
    """Return the figures of each day, a line each."""
    times = {name: month.days[name].map(_iso) for name in ("first", "last")}
    told = month.days.assign(per_second=(month.days["messages"] / _DAY_SECONDS).round(6), **times)
    return str(told.to_csv(columns=_CSV, index=False))


def as_page(month: Month) -> str:
    """Return the page."""
    messages, size = month.totals["messages"].sum(), month.totals["bytes"].sum()
    lead = f"{messages:,} messages with {size / 2**20:,.1f} MiB of data were published in {month.name}."
    return page(f"Usage in {month.name}", lead, sections(month))


def sections(month: Month) -> list[Section]:
    """Return the sections of a page that show a month."""
    found = [_section(month, "Topics", month.days["project"] + "/" + month.days["topic"])]
    if month.by_publisher:
        found.append(_section(month, "Publishers", month.days["publisher"].replace("", "(not named)")))
    head, rows = _rows(month)
    return [*found, Section("Figures of usage", content=[Rows([each.capitalize() for each in head], rows)])]


def _rows(month: Month) -> tuple[list[str], list[tuple[object, ...]]]:
    per_second = month.totals["messages"] / (month.length * _DAY_SECONDS)
    names = [*BY_MONTH, *FIGURES[:4], "per_second", "busiest_minute"]
    shown = month.totals.assign(per_second=per_second)[names].rename(columns={"largest_bytes": "largest"})
    if not month.by_publisher:
        shown = shown.drop(columns="publisher")
    head = [name.upper().replace("_", " ") for name in shown.columns]
    return head, list(shown.itertuples(index=False, name=None))


def _section(month: Month, title: str, names: pd.Series) -> Section:
    labels = [f"{number}" for number in range(1, month.length + 1)]
    messages = _series(month, names, month.days["messages"])
    volume = _series(month, names, month.days["bytes"] / 2**20)
    drawn = [
        Figure(plots.stacked_bars(messages, labels, "messages a day"), f"{title}: messages of each day."),
        Figure(plots.stacked_bars(volume, labels, "MiB a day"), f"{title}: data of each day."),
    ]
    return Section(title, content=drawn)


def _series(month: Month, names: pd.Series, values: pd.Series) -> Mapping[str, Sequence[float]]:
    totals = values.groupby(names).sum().sort_index().sort_values(ascending=False, kind="stable")
    shown = names.where(names.isin(totals.index[:COLOURED_NAMES]), "others")
    by_day = values.groupby([shown, month.days["date"].map(lambda day: day.day)]).sum()
    order = [*totals.index[:COLOURED_NAMES], *(["others"] if len(totals) > COLOURED_NAMES else [])]
    return {name: by_day[name].reindex(range(1, month.length + 1), fill_value=0.0).tolist() for name in order}


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


SUMMARY = "Who used how much in a month: a table, CSV, and a page with plots"
JOB = Job("metrics", SUMMARY, MetricsOptions, run, harmless=frozenset(MetricsOptions.__struct_fields__))
