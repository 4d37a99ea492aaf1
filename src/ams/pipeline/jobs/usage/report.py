"""The report of a month: as a table for terminals, as CSV, and as a page with plots."""

import csv
import datetime
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ams.pipeline.report import plots, text
from ams.pipeline.report.page import Figure, Rows, Section, page

MOST = 7
"""Topics or publishers that have a colour of their own in a plot; the rest is one."""
_DAY_SECONDS = 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Figures of one topic and publisher, in a day or in a month."""

    project: str
    topic: str
    publisher: str
    date: datetime.date | None = None
    messages: int
    bytes: int
    p95_bytes: float
    largest_bytes: int
    busiest_minute: int
    first: datetime.datetime
    last: datetime.datetime


@dataclass(frozen=True, slots=True)
class Month:
    """What is reported."""

    name: str
    """Such as `2024-03`."""
    days: Sequence[Usage]
    totals: Sequence[Usage]
    by_publisher: bool

    @property
    def first_day(self) -> datetime.date:
        """The first day of the month."""
        return datetime.date.fromisoformat(f"{self.name}-01")

    @property
    def all_days(self) -> list[datetime.date]:
        """The days of the month, also such as nothing was published on."""
        count = (following(self.first_day) - self.first_day).days
        return [self.first_day + datetime.timedelta(days=number) for number in range(count)]


HEAD = ("PROJECT", "TOPIC", "PUBLISHER", "MESSAGES", "BYTES", "P95 BYTES", "LARGEST", "PER SECOND", "BUSIEST MINUTE")


def as_text(month: Month) -> str:
    """Return the totals as a table."""
    return text.table(*_rows(month))


def as_csv(month: Month) -> str:
    """Return the figures of each day, a line each."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(
        ("date", "project", "topic", "publisher", "messages", "bytes", "p95_bytes", "largest_bytes", "per_second",
         "busiest_minute", "first", "last")
    )  # fmt: skip
    for each in month.days:
        writer.writerow(
            (each.date, each.project, each.topic, each.publisher, each.messages, each.bytes, each.p95_bytes,
             each.largest_bytes, round(each.messages / _DAY_SECONDS, 6), each.busiest_minute, _iso(each.first),
             _iso(each.last))
        )  # fmt: skip
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


def following(first_day: datetime.date) -> datetime.date:
    """Return the first day of the month after."""
    return (first_day.replace(day=28) + datetime.timedelta(days=4)).replace(day=1)


def _rows(month: Month) -> tuple[Sequence[str], list[Sequence[object]]]:
    seconds = len(month.all_days) * _DAY_SECONDS
    rows = [
        (each.project, each.topic, each.publisher, each.messages, each.bytes, each.p95_bytes, each.largest_bytes,
         each.messages / seconds, each.busiest_minute)
        for each in month.totals
    ]  # fmt: skip
    keep = [at for at, name in enumerate(HEAD) if month.by_publisher or name != "PUBLISHER"]
    return [HEAD[at] for at in keep], [[row[at] for at in keep] for row in rows]


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


def _iso(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
