"""The job against the page worked by hand, `worked/worked.md`: figures, late results, requests and withdrawals."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ams.client import Client, Message
from ams.pipeline.jobs.availability.columns import EVENTS
from ams.pipeline.jobs.availability.inputs import Options
from ams.pipeline.jobs.availability.job import JOB
from ams.pipeline.running import Run, quarantine_of
from ams.pipeline.tables import rows_of
from tests.pipeline.garden import Garden, make_garden
from tests.pipeline.jobs.availability.support import PROFILES, WORKED, datum, record, rows
from tests.support.served import Served

pytestmark = pytest.mark.long

PAGE = (WORKED / "worked.md").read_text()
FIGURES = ("type", "endpoint_group", "service", "hostname", "availability", "reliability", "up", "unknown", "down")
DAY = "2024-03-05"


def table(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading of the page."""
    part = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def host(short: str) -> str:
    return f"{short}.site-a.example" if short else ""


def expected_figures(heading: str) -> list[tuple[object, ...]]:
    return sorted(
        (level, group, service, host(name), *map(Decimal, figures))
        for level, group, service, name, *figures in table(heading)
    )


def results() -> list[bytes]:
    return [
        datum(record(time, service, host(name), metric, status, monitoring_host=f"{box}.example.org", summary=status))
        for time, service, name, metric, status, box in table("Results")
    ]


def read(spark: SparkSession, work: Path, name: str, day: str = DAY) -> DataFrame:
    return rows_of(spark, work / "results" / name).where(F.col("date") == day)


def figures(spark: SparkSession, work: Path) -> list[tuple[object, ...]]:
    return rows(read(spark, work, "figures"), *FIGURES)


@dataclass
class Monitored:
    """A project on a real service, and the folder of a job that follows it."""

    spark: SparkSession
    garden: Garden
    work: Path
    said: list[str] = field(default_factory=list)

    def publish(self, payloads: list[bytes]) -> None:
        self.garden.publish("metric_data", [Message(payload) for payload in payloads])

    def run(self, **options: str) -> None:
        run = Run(self.spark, self.work, self.garden.options, say=self.said.append)
        JOB.run(run, Options(**{**PROFILES, "events_topic": "status_events", **options}))


@pytest.fixture(scope="module")
def monitored(
    spark_session: SparkSession, service: Served, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Monitored]:
    """The job has met an empty topic; then most results, some twice, the last first, and a message that is none; then
    a result that came late."""
    with Client(service.run.base_url, service.token) as client:
        garden = make_garden(service, client, "monitoring")
        garden.topic("metric_data")
        garden.topic("status_events")
        found = Monitored(spark_session, garden, tmp_path_factory.mktemp("work"))
        found.run()
        early = results()[:9] + results()[10:]
        found.publish([*early[7:], *early[:9], b"\x02"])
        found.run()
        found.publish(results()[9:10])
        found.run()
        yield found


@pytest.fixture(scope="module")
def work(monitored: Monitored) -> Path:
    return monitored.work


def test_only_days_with_news_are_computed(monitored: Monitored) -> None:
    told = [text for text in monitored.said if "compute" in text][:3]

    assert told == [
        "nothing to compute",
        "computed 2024-03-04, 2024-03-05, 2024-03-06, 2024-03-07",
        "computed 2024-03-05, 2024-03-06, 2024-03-07",
    ]
    assert "<svg" in (monitored.work / "board.html").read_text()


def test_the_statuses_are_those_worked_by_hand(spark: SparkSession, work: Path) -> None:
    expected = sorted(
        (level, service, host(name), seconds(start), seconds(end), status)
        for level, service, name, start, end, status in table(f"Statuses of {DAY}")
    )
    site = read(spark, work, "statuses").where("endpoint_group = 'SITE-A' and type != 'metric'")
    midnight = F.unix_timestamp(F.lit(f"{DAY} 00:00:00"))

    found = site.select(
        *("type", "service", "hostname"),
        (F.unix_timestamp("start") - midnight).alias("start"),
        (F.unix_timestamp("end") - midnight).alias("end"),
        "status",
    )

    assert rows(found, *found.columns) == expected


def test_the_figures_are_those_worked_by_hand(spark: SparkSession, work: Path) -> None:
    others = rows_of(spark, work / "results" / "figures").where("type = 'endpoint_group'").drop("type")
    columns = [F.date_format("date", "yyyy-MM-dd").alias("date"), *FIGURES[1:2], *FIGURES[4:]]

    found = [tuple(row) for row in others.select(*columns).where("endpoint_group = 'SITE-A'").collect()]

    assert set(expected_figures(f"Figures of {DAY}")) <= set(figures(spark, work))
    for day, _, group, *numbers in table("Figures of the other days"):
        assert (day, group, *map(Decimal, numbers)) in found


def test_the_events_are_those_worked_by_hand(spark: SparkSession, work: Path) -> None:
    expected = sorted(
        (f"{DAY}T{at}Z", status, before, since, service, host(name), metric)
        for at, status, before, since, service, name, metric in table(f"Events of SITE-A on {DAY}")
    )
    events = read(spark, work, "events").where("type = 'endpoint_group' and endpoint_group = 'SITE-A'")

    found = rows(events, "ts_monitored", "status", "prev_status", "prev_ts", "service", "hostname", "metric")

    assert found == expected


def test_a_status_that_stays_bad_for_a_day_is_told_again(spark: SparkSession, work: Path) -> None:
    events = read(spark, work, "events").where("hostname = 'w2.site-a.example' and type = 'endpoint'")

    assert rows(events, "ts_monitored", "status", "prev_status", "repeat") == [
        ("2024-03-05T00:00:00Z", "MISSING", "MISSING", "true")
    ]


def test_what_is_no_result_is_set_aside_and_counted(spark: SparkSession, work: Path) -> None:
    quarantine = quarantine_of(spark, work).read()

    assert rows(quarantine, "offset", "reason") == [(16, "not a datum of the schema current")]


def test_each_result_says_from_which_message_it_came(spark: SparkSession, work: Path) -> None:
    stored = rows_of(spark, work / "tables" / "results")

    assert {row["topic"] for row in stored.select("topic").distinct().collect()} == {"metric_data"}
    assert rows(stored.where("service = 'ARC-CE' and date = '2024-03-07'"), "offset") == [(6,)]


def test_events_are_published_each_once(spark: SparkSession, monitored: Monitored) -> None:
    told = spark.read.format("ams").options(**monitored.garden.options, topic="status_events").load()
    events = rows_of(spark, monitored.work / "results" / "events")
    keys = ("type", "endpoint_group", "service", "hostname", "metric", "ts_monitored", "status", "repeat")

    published = [json.loads(row["data"]) for row in told.collect()]

    found = [tuple(each[key] for key in keys) for each in published]
    assert {tuple(row) for row in events.select(*keys).collect()} <= set(found)
    assert len(found) == len(set(found))
    assert published[0].keys() == {*EVENTS.names, "ts_processed"}


def test_a_request_changes_what_it_names_until_it_is_withdrawn(spark: SparkSession, monitored: Monitored) -> None:
    before = figures(spark, monitored.work)
    for request in ("a", "b"):
        monitored.run(recomputations=str(WORKED / f"request_{request}.json"))

        after = figures(spark, monitored.work)

        assert set(expected_figures(f"Figures of {DAY} after request {request.upper()}")) <= set(after)
    monitored.run()

    assert figures(spark, monitored.work) == before


def seconds(clock: str) -> int:
    hours, minutes, rest = map(int, clock.split(":"))
    return hours * 3600 + minutes * 60 + rest
