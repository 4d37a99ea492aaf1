"""Reading alarms, status events and alerts."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.alarms.parse import parse

TIME = "2024-03-05T10:20:30Z"
KNOWN = "OK, WARNING, UNKNOWN, MISSING, DOWNTIME, CRITICAL"
ALARM = {
    "execution_time": "2024-03-05T10:20:30Z",
    "service_flavour": "ARC-CE",
    "node_name": "ce01.site-a.example",
    "test_name": "org.nordugrid.ARC-CE-result",
    "status": "CRITICAL",
    "site": "SITE-A",
    "tags": {},
}
EVENT = {
    "report": "Critical",
    "type": "service",
    "endpoint_group": "SITE-A",
    "service": "ARC-CE",
    "hostname": "ce01.site-a.example",
    "metric": "org.nordugrid.ARC-CE-result",
    "status": "WARNING",
    "ts_monitored": "2024-03-05T10:20:30Z",
    "summary": "slow",
    "message": "very slow",
}
ALERT = {
    "environment": "EGI",
    "event": "endpoint_status",
    "resource": "ARC-CE/ce01.site-a.example",
    "severity": "ok",
    "text": "[ EGI ] - all is well",
    "attributes": {"_group": "SITE-A", "_ts_monitored": TIME},
}
AT = datetime(2024, 3, 5, 10, 20, 30, tzinfo=UTC)


def read(value: Any) -> dict[str, Any]:
    [report] = parse(json.dumps(value).encode(), {})
    return report


def test_an_alarm_is_of_a_metric() -> None:
    report = read(ALARM)

    assert report["at"] == AT
    place = [report[name] for name in ("kind", "report", "level", "site", "service", "hostname", "metric")]
    assert place == ["alarm", "", "metric", "SITE-A", "ARC-CE", "ce01.site-a.example", "org.nordugrid.ARC-CE-result"]
    assert read({**ALARM, "site": None})["site"] == ""


def test_an_event_of_a_wider_level_names_its_cause() -> None:
    report = read(EVENT)

    assert [report[name] for name in ("site", "service", "hostname", "metric")] == ["SITE-A", "ARC-CE", "", ""]
    assert report["cause"] == "ce01.site-a.example/org.nordugrid.ARC-CE-result"
    assert report["details"] == "slow\nvery slow"
    assert read({**EVENT, "type": "endpoint_group"})["cause"].startswith("ARC-CE/ce01")
    assert read({**EVENT, "type": "metric"})["cause"] is None


def test_an_alert_is_completed_from_its_resource() -> None:
    report = read(ALERT)
    of_a_site = {**ALERT, "event": "endpoint_group_status", "resource": "SITE-B", "attributes": {"_ts_monitored": TIME}}

    names = [report[name] for name in ("report", "site", "service", "hostname", "status")]
    assert names == ["EGI", "SITE-A", "ARC-CE", "ce01.site-a.example", "OK"]
    assert read(of_a_site)["site"] == "SITE-B"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({}, "neither an alarm, a status event nor an alert"),
        ({**ALARM, "status": "BURNING"}, f"status is none of {KNOWN}: 'BURNING'"),
        ({**ALARM, "node_name": ""}, "node_name is missing"),
        ({**ALARM, "execution_time": "noon"}, "execution_time is not a time: 'noon'"),
        ({**EVENT, "type": "planet"}, "type is none of endpoint_group, service, endpoint, metric: 'planet'"),
        ({**EVENT, "service": None}, "service is missing, which the level service needs"),
        ({**ALERT, "attributes": None}, "attributes is not an object"),
        ({**ALERT, "severity": "red"}, f"severity is none of {KNOWN}: 'RED'"),
    ],
)
def test_what_cannot_be_read_says_why(value: Any, reason: str) -> None:
    with pytest.raises(Broken) as broken:
        read(value)

    assert str(broken.value) == reason


VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.none(), max_size=1) | st.just({})


@given(st.sampled_from([ALARM, EVENT, ALERT]), st.data())
def test_an_alarm_with_any_field_replaced_is_read_or_broken(told: dict[str, Any], data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(sorted(told)))
    try:
        report = read({**told, field: data.draw(VALUES)})
    except Broken:
        return
    assert None not in [report[name] for name in ("kind", "report", "level", "site", "service", "at", "status")]


@given(st.binary(max_size=50))
def test_any_bytes_are_read_or_broken(data: bytes) -> None:
    with pytest.raises(Broken):
        list(parse(data, {}))


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        ("2024-03-06T10:20:31Z", "its time lies in the future"),
        ("9999-12-31T23:59:59Z", "its time lies in the future"),
        ("0001-01-01T00:00:00Z", "its time lies before 1970"),
    ],
)
def test_a_time_that_cannot_be_is_broken(at: str, reason: str) -> None:
    latest = AT.timestamp() + 86_400
    assert parse(json.dumps(ALARM).encode(), {}, latest)

    with pytest.raises(Broken, match=f"^{reason}$"):
        parse(json.dumps({**ALARM, "execution_time": at}).encode(), {}, latest)


def test_a_name_that_is_too_long_for_an_index_is_broken() -> None:
    assert read({**ALARM, "node_name": "h" * 255})["hostname"] == "h" * 255
    with pytest.raises(Broken, match="^hostname is longer than 255 bytes$"):
        read({**ALARM, "node_name": "é" * 128})
