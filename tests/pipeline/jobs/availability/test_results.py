"""Results of the job: the page worked by hand, an oracle that checks each second, and published events."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from ams.client import Client, Message
from ams.pipeline.jobs.availability.figures import EVENTS, OUTBOX
from ams.pipeline.jobs.availability.inputs import AvailabilityOptions
from ams.pipeline.jobs.availability.job import JOB, Outbox, run
from ams.pipeline.run import Run, quarantine_of
from ams.pipeline.tables import Table, rows_of
from bench import availability as oracle
from demo.pipeline.samples import Mishaps, monitoring
from tests.pipeline.garden import Garden, make_garden
from tests.pipeline.jobs.availability.support import EXAMPLE_FOLDER, PROFILES, encode_datum, record, rows
from tests.pipeline.jobs.recorded import recorded_run, store_samples
from tests.support.served import InProcessService

PAGE = (EXAMPLE_FOLDER / "worked.md").read_text()
FIGURES = ("type", "endpoint_group", "service", "hostname", "availability", "reliability", "up", "unknown", "down")
DAY = "2024-03-05"


def table(heading: str) -> list[list[str]]:
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
        encode_datum(
            record(time, service, host(name), metric, status, monitoring_host=f"{box}.example.org", summary=status)
        )
        for time, service, name, metric, status, box in table("Results")
    ]


def read_results(spark: SparkSession, work: Path, name: str, day: str = DAY) -> DataFrame:
    return rows_of(spark, work / "results" / name).where(F.col("date") == day)


def figures(spark: SparkSession, work: Path) -> list[tuple[object, ...]]:
    return rows(read_results(spark, work, "figures"), *FIGURES)


@dataclass
class MonitoredJob:
    spark: SparkSession
    garden: Garden
    work: Path
    said: list[str] = field(default_factory=list)

    def publish(self, payloads: list[bytes]) -> None:
        self.garden.publish("metric_data", [Message(payload) for payload in payloads])

    def run(self, **options: str) -> None:
        run = Run(self.spark, self.work, self.garden.options, say=self.said.append)
        JOB.run(run, AvailabilityOptions(**{**PROFILES, "events_topic": "status_events", **options}))


@pytest.fixture(scope="module")
def monitored_job(
    spark_session: SparkSession, service: InProcessService, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MonitoredJob]:
    """A job after three batches: an empty topic; most results, some twice, the last first, with an invalid message; and
    a late result."""
    with Client(service.run.base_url, service.token) as client:
        garden = make_garden(service, client)
        garden.topic("metric_data")
        garden.topic("status_events")
        found = MonitoredJob(spark_session, garden, tmp_path_factory.mktemp("work"))
        found.run()
        early = results()[:9] + results()[10:]
        found.publish([*early[7:], *early[:9], b"\x02"])
        found.run()
        found.publish(results()[9:10])
        found.run()
        yield found


@pytest.mark.long
def test_only_days_with_news_are_computed(monitored_job: MonitoredJob) -> None:
    assert [text for text in monitored_job.said if "compute" in text][:3] == [
        "nothing to compute", "computed 2024-03-04, 2024-03-05, 2024-03-06, 2024-03-07",
        "computed 2024-03-05, 2024-03-06, 2024-03-07",
    ]  # fmt: skip
    assert "<svg" in (monitored_job.work / "board.html").read_text()


@pytest.mark.long
def test_the_statuses_are_those_worked_by_hand(spark: SparkSession, monitored_job: MonitoredJob) -> None:
    work = monitored_job.work
    expected = sorted(
        (level, service, host(name), seconds(start), seconds(end), status)
        for level, service, name, start, end, status in table(f"Statuses of {DAY}")
    )
    site = read_results(spark, work, "statuses").where("endpoint_group = 'SITE-A' and type != 'metric'")
    midnight = F.unix_timestamp(F.lit(f"{DAY} 00:00:00"))

    found = site.select(
        *("type", "service", "hostname"), (F.unix_timestamp("start") - midnight).alias("start"),
        (F.unix_timestamp("end") - midnight).alias("end"), "status",
    )  # fmt: skip

    assert rows(found, *found.columns) == expected


@pytest.mark.long
def test_the_figures_are_those_worked_by_hand(spark: SparkSession, monitored_job: MonitoredJob) -> None:
    work = monitored_job.work
    others = rows_of(spark, work / "results" / "figures").where("type = 'endpoint_group'").drop("type")
    columns = [F.date_format("date", "yyyy-MM-dd").alias("date"), *FIGURES[1:2], *FIGURES[4:]]

    found = [tuple(row) for row in others.select(*columns).where("endpoint_group = 'SITE-A'").collect()]

    assert set(expected_figures(f"Figures of {DAY}")) <= set(figures(spark, work))
    for day, _, group, *numbers in table("Figures of the other days"):
        assert (day, group, *map(Decimal, numbers)) in found


@pytest.mark.long
def test_the_events_are_those_worked_by_hand(spark: SparkSession, monitored_job: MonitoredJob) -> None:
    work = monitored_job.work
    expected = sorted(
        (f"{DAY}T{at}Z", status, before, since, service, host(name), metric)
        for at, status, before, since, service, name, metric in table(f"Events of SITE-A on {DAY}")
    )
    events = read_results(spark, work, "events").where("type = 'endpoint_group' and endpoint_group = 'SITE-A'")

    found = rows(events, "ts_monitored", "status", "prev_status", "prev_ts", "service", "hostname", "metric")

    assert found == expected


@pytest.mark.long
def test_results_name_their_message_and_others_are_set_aside(spark: SparkSession, monitored_job: MonitoredJob) -> None:
    work = monitored_job.work
    quarantine = quarantine_of(spark, work).read()
    stored = rows_of(spark, work / "tables" / "results")

    assert {row["topic"] for row in stored.select("topic").distinct().collect()} == {"metric_data"}
    assert rows(stored.where("service = 'ARC-CE' and date = '2024-03-07'"), "offset") == [(6,)]
    assert rows(quarantine, "offset", "reason") == [(16, "not a datum of the schema current")]


@pytest.mark.long
def test_events_are_published_each_once(spark: SparkSession, monitored_job: MonitoredJob) -> None:
    told = spark.read.format("ams").options(**monitored_job.garden.options, topic="status_events").load()
    events = rows_of(spark, monitored_job.work / "results" / "events")
    keys = ("type", "endpoint_group", "service", "hostname", "metric", "ts_monitored", "status", "repeat")

    published = [json.loads(row["data"]) for row in told.collect()]

    found = [tuple(each[key] for key in keys) for each in published]
    assert {tuple(row) for row in events.select(*keys).collect()} <= set(found)
    assert len(found) == len(set(found))
    assert published[0].keys() == {*EVENTS.names, "ts_processed"}


@pytest.mark.long
def test_a_request_changes_what_it_names_until_withdrawn(spark: SparkSession, monitored_job: MonitoredJob) -> None:
    before = figures(spark, monitored_job.work)
    for request in ("a", "b"):
        monitored_job.run(recomputations=str(EXAMPLE_FOLDER / f"request_{request}.json"))

        after = figures(spark, monitored_job.work)

        assert set(expected_figures(f"Figures of {DAY} after request {request.upper()}")) <= set(after)
    monitored_job.run()

    assert figures(spark, monitored_job.work) == before


def seconds(clock: str) -> int:
    hours, minutes, rest = map(int, clock.split(":"))
    return hours * 3600 + minutes * 60 + rest


EVE, DATE = date(2024, 3, 4), date(2024, 3, 5)
MISHAPS = Mishaps(late=0.1, doubled=0.1, broken=0.01)


@pytest.mark.long
def test_the_figures_of_made_up_days_are_those_of_the_oracle(spark: SparkSession, tmp_path: Path) -> None:
    """Messages are shuffled over the days, and a third comes twice or late, with the second half of the input.

    The monitored services come in messages too, and the profile of the calculation from a file.
    """
    made = [
        sample for day in (EVE, DATE) for sample in monitoring.results(7, day, sites=2, mishaps=MISHAPS, day_late=0.05)
    ]
    paths = monitoring.files(7, DATE, tmp_path / "files", sites=2)
    random = Random(7)
    random.shuffle(made)
    again = random.sample(made, len(made) // 3)
    late, early = made[: len(made) // 3], made[len(made) // 3 :]
    synced = list(monitoring.sync_messages(7, DATE, sites=2))
    told = store_samples([*early, *late, *again, *synced, *synced])
    work = tmp_path / "work"
    options = AvailabilityOptions(sync_topic="sync_data", aggregation_profile=paths["aggregation_profile"])

    run(recorded_run(spark, work, told[: len(early)]), options)
    assert not (work / "results").exists()
    run(recorded_run(spark, work, told[len(early) :]), options)
    figures = rows_of(spark, work / "results" / "figures").where("type != 'group'")
    for day in (EVE, DATE):
        expected = oracle.day_figures(made, paths, day)
        found = rows(figures.where(F.col("date") == day.isoformat()), *FIGURES)
        assert ({row[:4]: row[4:] for row in found}, len(found)) == (expected, len(expected))


def events(spark: SparkSession, *times: str) -> DataFrame:
    same = {each.name: ["OK"] if isinstance(each.dataType, ArrayType) else "same" for each in EVENTS}
    rows = [{**same, "ts_monitored": f"2024-03-05T{time}Z", "date": "2024-03-05"} for time in times]
    return spark.createDataFrame([tuple(row[name] for name in EVENTS.names) for row in rows], EVENTS)


@pytest.mark.long
def test_an_event_is_published_once(spark: SparkSession, garden: Garden, tmp_path: Path) -> None:
    topic = garden.topic("events")
    table = Table(spark, str(tmp_path / "outbox"), OUTBOX)
    outbox = Outbox(table, {**garden.options, "topic": topic}, "made-up", tmp_path / "published.json")

    outbox.put(events(spark, "10:00:00", "09:00:00"))
    assert outbox.send() == 1
    outbox.put(events(spark, "10:00:00", "11:00:00"))
    assert outbox.send() == 1
    outbox.marker.unlink()  # as if killed before it recorded the sent events
    assert outbox.send() == 2
    outbox.put(events(spark, "09:00:00"))
    assert outbox.send() == 0
    messages = spark.read.format("ams").options(**garden.options, topic=topic).load()

    found = [json.loads(row["data"]) for row in messages.orderBy("offset").collect()]
    assert [each["ts_monitored"][11:19] for each in found] == ["09:00:00", "10:00:00", "11:00:00"]
    assert (found[0].keys(), found[0]["date"]) == ({*EVENTS.names, "ts_processed"}, "20240305")
