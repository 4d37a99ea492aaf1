"""The job `alarms`: messages, and results compared with plain Python."""

import json
from contextlib import closing
from datetime import UTC, date, datetime
from itertools import groupby, pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import psycopg
import pytest
from pyspark.sql import SparkSession

from ams.pipeline.errors import Broken, WrongOption, WrongTable
from ams.pipeline.jobs.alarm_messages import NOT_TAKEN, STATUSES, TAKEN, parse
from ams.pipeline.jobs.alarms import AlarmOptions, run
from ams.pipeline.report.page import page
from demo.pipeline.boards import alarm_sections, open_rows
from demo.pipeline.samples import Mishaps
from demo.pipeline.samples.alarms import TOPICS, messages
from tests.pipeline.delta import by_duckdb
from tests.pipeline.jobs.inputs_page import Input, check_reason, check_row, rows
from tests.pipeline.jobs.recorded import PROJECT, Message, read_quarantine, recorded_run, store_samples

TIME = "2024-03-05T10:20:30Z"
STATUS_NAMES = "OK, WARNING, UNKNOWN, MISSING, DOWNTIME, CRITICAL"
ALARM = {
    "execution_time": "2024-03-05T10:20:30Z", "service_flavour": "ARC-CE", "node_name": "ce01.site-a.example",
    "test_name": "org.nordugrid.ARC-CE-result", "status": "CRITICAL", "site": "SITE-A", "tags": {},
}  # fmt: skip
EVENT = {
    "report": "Critical", "type": "service", "endpoint_group": "SITE-A", "service": "ARC-CE",
    "hostname": "ce01.site-a.example", "metric": "org.nordugrid.ARC-CE-result", "status": "WARNING",
    "ts_monitored": "2024-03-05T10:20:30Z", "summary": "slow", "message": "very slow",
}  # fmt: skip
ALERT = {
    "environment": "EGI", "event": "endpoint_status", "resource": "ARC-CE/ce01.site-a.example", "severity": "ok",
    "text": "[ EGI ] - all is well", "attributes": {"_group": "SITE-A", "_ts_monitored": TIME},
}  # fmt: skip
REPORT_TIME = datetime(2024, 3, 5, 10, 20, 30, tzinfo=UTC)
DAY = date(2024, 3, 5)


def read_report(value: Any) -> dict[str, Any]:
    [report] = parse(json.dumps(value).encode(), {})
    return report


def test_an_alarm_is_of_a_metric() -> None:
    report = read_report(ALARM)

    assert report["at"] == REPORT_TIME
    place = [report[name] for name in ("kind", "report", "level", "site", "service", "hostname", "metric")]
    assert place == ["alarm", "", "metric", "SITE-A", "ARC-CE", "ce01.site-a.example", "org.nordugrid.ARC-CE-result"]
    assert read_report({**ALARM, "site": None})["site"] == ""


def test_an_event_of_a_wider_level_names_its_cause() -> None:
    report = read_report(EVENT)

    assert [report[name] for name in ("site", "service", "hostname", "metric")] == ["SITE-A", "ARC-CE", "", ""]
    assert report["cause"] == "ce01.site-a.example/org.nordugrid.ARC-CE-result"
    assert report["details"] == "slow\nvery slow"
    assert read_report({**EVENT, "type": "endpoint_group"})["cause"].startswith("ARC-CE/ce01")
    assert read_report({**EVENT, "type": "metric"})["cause"] is None


def test_an_alert_is_completed_from_its_resource() -> None:
    report = read_report(ALERT)
    of_a_site = {**ALERT, "event": "endpoint_group_status", "resource": "SITE-B", "attributes": {"_ts_monitored": TIME}}

    names = [report[name] for name in ("report", "site", "service", "hostname", "status")]
    assert names == ["EGI", "SITE-A", "ARC-CE", "ce01.site-a.example", "OK"]
    assert read_report(of_a_site)["site"] == "SITE-B"


EXAMPLES = {"alarm": ALARM, "event": EVENT, "alert": ALERT}
INPUTS = [Input(*cells) for cells in rows("alarms", "Fields")]
REPLACED_FIELDS = {"summary": "message", "message": "summary", "attributes._mon_message": "text"}
"""Fields, and another field that fills the same column and is left out."""


def make_report(kind: str, field: str, value: str) -> dict[str, Any]:
    """Return a message of a kind with a field's value, which may be in its attributes."""
    message = {name: each for name, each in EXAMPLES[kind].items() if name != REPLACED_FIELDS.get(field)}
    name = field.removeprefix("attributes.")
    if name == field:
        return message | {name: value}
    return message | {"attributes": {**message["attributes"], name: value}}


@pytest.mark.parametrize("row", INPUTS, ids=" ".join)
def test_what_a_producer_says_becomes_what_the_reference_shows(row: Input) -> None:
    message = make_report(row.form, row.key, row.example)
    check_row(row, read_report, message, EXAMPLES[row.form], is_known=row.key in list_fields(row.form))


def list_fields(kind: str) -> set[str]:
    within = f"{kind} attributes"
    return {*TAKEN[kind], *NOT_TAKEN[kind]} | {
        f"attributes.{each}" for each in (*TAKEN.get(within, ()), *NOT_TAKEN.get(within, ()))
    }


@pytest.mark.parametrize("kind", EXAMPLES)
def test_every_field_that_is_known_has_a_row_and_no_other(kind: str) -> None:
    counted = "not taken: counted as"
    assert {row.key for row in INPUTS if row.form == kind and not row.result.startswith(counted)} == list_fields(kind)


def test_all_that_the_samples_say_is_known() -> None:
    for sample in messages(7, DAY, sites=4, outages=10, mishaps=Mishaps(broken=0.0)):
        [report] = parse(sample.data, {})
        assert report["not_taken"] == []


@pytest.mark.parametrize(("value", "reason"), [
    ({}, "neither an alarm, a status event nor an alert"),
    ({**ALARM, "status": "BURNING"}, f"status is none of {STATUS_NAMES}: 'BURNING'"),
    ({**ALARM, "node_name": ""}, "node_name is missing"),
    ({**ALARM, "execution_time": "noon"}, "execution_time is not a time: 'noon'"),
    ({**EVENT, "type": "planet"}, "type is none of endpoint_group, service, endpoint, metric: 'planet'"),
    ({**EVENT, "service": None}, "service is missing, which the level service needs"),
    ({**ALERT, "attributes": None}, "attributes is not an object"),
    ({**ALERT, "severity": "red"}, f"severity is none of {STATUS_NAMES}: 'RED'"),
])  # fmt: skip
def test_what_cannot_be_read_says_why(value: Any, reason: str) -> None:
    check_reason(read_report, value, reason)


@pytest.mark.parametrize(("at", "reason"), [
    ("2024-03-06T10:20:31Z", "its time lies in the future"),
    ("9999-12-31T23:59:59Z", "its time lies in the future"),
    ("0001-01-01T00:00:00Z", "its time lies before 1970"),
])  # fmt: skip
def test_a_time_that_cannot_be_is_broken(at: str, reason: str) -> None:
    latest = REPORT_TIME.timestamp() + 86_400
    assert parse(json.dumps(ALARM).encode(), {}, latest)
    with pytest.raises(Broken, match=f"^{reason}$"):
        parse(json.dumps({**ALARM, "execution_time": at}).encode(), {}, latest)


def test_a_name_that_is_too_long_for_an_index_is_broken() -> None:
    assert read_report({**ALARM, "node_name": "h" * 255})["hostname"] == "h" * 255
    with pytest.raises(Broken, match="^hostname is longer than 255 bytes$"):
        read_report({**ALARM, "node_name": "é" * 128})


MISHAPS = Mishaps(late=0.3, doubled=0.3, broken=0.05)
FIRST_PART = 40
OPTIONS = AlarmOptions(topics=TOPICS)


@pytest.mark.long
def test_late_double_or_broken_messages_leave_tables_right(spark: SparkSession, database: str, tmp_path: Path) -> None:
    told = store_samples(messages(7, DAY, sites=4, outages=30, mishaps=MISHAPS))
    expected = ExpectedRows.of(told)
    shuffled = list(told)
    Random(1).shuffle(shuffled)

    job = recorded_run(spark, tmp_path / "one", told)
    run(job, OPTIONS)
    first = rows_of(database)
    run(
        recorded_run(spark, tmp_path / "two", shuffled[:FIRST_PART], [*shuffled[FIRST_PART:], *told[:FIRST_PART]]),
        OPTIONS,
    )

    assert rows_of(database) == first
    assert (first.alarms, first.history) == (expected.alarms, expected.history)
    assert first.changes == expected.changes
    assert len(read_quarantine(job)) == expected.broken > 5
    for folder in (job.work, tmp_path / "two"):  # every report, repeated or not
        kept = by_duckdb(folder / "tables" / "reports", 'SELECT DISTINCT alarm, "at", status FROM rows')
        assert len(kept) == len(expected.history)
    with closing(psycopg.connect(database)) as connection:
        assert {row[4] for row in open_rows(connection, PROJECT).body} <= set(STATUSES[1:])
        assert "How often something went wrong" in page("Alarms", "", alarm_sections(connection, PROJECT))


def test_other_tables_of_these_names_are_refused_and_left_alone(database: str, tmp_path: Path) -> None:
    with closing(psycopg.connect(database, autocommit=True)) as connection:
        connection.execute("CREATE TABLE alarms (alarm uuid PRIMARY KEY)")
        with pytest.raises(WrongTable, match="table alarms"):
            run(recorded_run(None, tmp_path), OPTIONS)  # type: ignore[arg-type]  # Spark is not asked

        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    assert tables == [("alarms",)]


def test_a_database_without_an_address_is_a_wrong_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AMS_PIPELINE_DATABASE", raising=False)
    not_started: Any = recorded_run(None, tmp_path)  # type: ignore[arg-type]  # Spark is not asked

    with pytest.raises(WrongOption, match="option database: .*set AMS_PIPELINE_DATABASE"):
        run(not_started, AlarmOptions())
    with pytest.raises(WrongOption, match="option database: leave the password out"):
        run(not_started, AlarmOptions(database="postgresql://me:secret@127.0.0.1:1/x"))


class Rows(NamedTuple):
    alarms: dict[Any, Any]
    """Alarm, place, status, since, first seen, last seen, reports, changes, and the source of the last."""
    history: set[Any]
    changes: set[Any]


def rows_of(database: str) -> Rows:
    place = "kind, report, level, site, service, hostname, metric"
    with closing(psycopg.connect(database)) as connection:
        connection.execute("SET timezone = 'UTC'")
        ask = connection.execute
        figures = "status, since, first_seen, last_seen, reports, changes, details"
        alarms = {row[:7]: row[7:] for row in ask(f"SELECT {place}, {figures} FROM alarms")}
        joined = "alarm_history JOIN alarms USING (alarm)"
        history = set(ask(f'SELECT {place}, at, alarm_history.status, topic, "offset" FROM {joined}'))
        changes = set(ask(f"SELECT {place}, at, status FROM alarm_changes"))
    return Rows(alarms, history, changes)


class ExpectedRows(NamedTuple):
    alarms: dict[Any, Any]
    history: set[Any]
    changes: set[Any]
    broken: int

    @classmethod
    def of(cls, told: list[Message]) -> "ExpectedRows":
        newest: dict[Any, Any] = {}
        broken = 0
        for message in told:
            report = parse_plainly(message["data"])
            if report is None:
                broken += 1
                continue
            place, at, status, details = report
            rank = (message["publish_time"], message["topic"], message["offset"])
            if (place, at, status) not in newest or newest[place, at, status][0] < rank:
                newest[place, at, status] = (rank, details)
        ordered = sorted(newest, key=lambda key: (key[0], key[1], STATUSES.index(key[2])))
        alarms, changes = {}, set()
        for place, keys in groupby(ordered, key=lambda key: key[0]):
            reports = list(keys)
            turns = [reports[0], *(key for before, key in pairwise(reports) if before[2] != key[2])]
            last = reports[-1]
            alarms[place] = (
                last[2], turns[-1][1], reports[0][1], last[1], len(reports), len(turns) - 1, newest[last][1]
            )  # fmt: skip
            changes |= {(*place, at, status) for _, at, status in turns}
        history = {(*place, at, status, *newest[place, at, status][0][1:]) for place, at, status in newest}
        return cls(alarms, history, changes, broken)


def parse_plainly(data: bytes) -> Any:
    """Parse a message the short way: this data's broken ones lack something."""
    try:
        kind, report, level, names, time, status, details = _parts(json.loads(data))
        at = datetime.strptime(time, "%Y-%m-%dT%H:%M:%S%z")
    except (ValueError, KeyError, TypeError):
        return None
    if status not in STATUSES:
        return None
    depth = ("endpoint_group", "service", "endpoint", "metric").index(level) + 1
    return (kind, report, level, *names[:depth], *[""] * (4 - depth)), at, status, details


def _parts(told: dict[str, Any]) -> tuple[Any, ...]:
    if "execution_time" in told:
        names = [told[name] for name in ("site", "service_flavour", "node_name", "test_name")]
        return "alarm", "", "metric", names, told["execution_time"], told["status"], told["details"]
    if "report" in told:
        names = [told[name] for name in ("endpoint_group", "service", "hostname", "metric")]
        return "event", told["report"], told["type"], names, told["ts_monitored"], told["status"], told["summary"]
    more = told["attributes"]
    names = [more[name] for name in ("_group", "_service", "_endpoint", "_metric")]
    level, status = told["event"].removesuffix("_status"), told["severity"].upper()
    return "alert", told["environment"], level, names, more["_ts_monitored"], status, more["_mon_summary"]
