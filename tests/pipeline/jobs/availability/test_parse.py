"""Parsing results and lists from messages: their formats, one datum or many, and refusals."""

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from fastavro import schemaless_writer

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.availability.documents import Downtime
from ams.pipeline.jobs.availability.parse import LIST_SCHEMAS, Shape, lists, parse_lists, parse_results, response_time
from tests.pipeline.jobs.availability.support import encode_datum, record

RESULT = record(
    "2024-03-05T10:20:30Z", "webdav", "w1.site-a.example", "ch.cern.WebDAV", "WARNING",
    monitoring_host="mon1.example.org", actual_data="time=2.227776s;;;0.000000 size=69485B;;;0", summary="slow",
    tags={"endpoint_group": "SITE-A", "vofqan": None},
)  # fmt: skip

ENDPOINT = {"type": "SITES", "group": "A", "service": "webdav", "hostname": "w1", "tags": {"monitored": "1", "x": "y"}}
DOWNTIME = {
    "hostname": "w1", "service": "webdav", "start_time": "2024-03-05T00:00:00Z", "end_time": "2024-03-06T00:00:00Z",
}  # fmt: skip
PROFILE = {"profile": "P", "service": "webdav", "metric": "dav", "tags": None}


@pytest.mark.parametrize("shape", ["current", "without_actual_data", "actual_data_last"])
def test_a_result_is_read_in_the_shape_it_was_written_in(shape: Shape) -> None:
    [found] = parse_results(encode_datum(RESULT, shape), {"partition_date": "2024-03-05"}, shape)

    assert found == {
        "date": "2024-03-05", "timestamp": datetime(2024, 3, 5, 10, 20, 30, tzinfo=UTC), "service": "webdav",
        "hostname": "w1.site-a.example", "metric": "ch.cern.WebDAV", "status": "WARNING",
        "monitoring_host": "mon1.example.org", "summary": "slow", "message": "",
        "response_time": None if shape == "without_actual_data" else 2.227776,
    }  # fmt: skip


@pytest.mark.parametrize(("data", "reason"), [
    (b"", "not a datum of the schema current"),
    (encode_datum(RESULT)[:-3], "not a datum of the schema current"),
    (encode_datum(RESULT) + b"\x00", "1 bytes after the datum of the schema current"),
    (encode_datum({**RESULT, "status": "SLEEPY"}),
     "status 'SLEEPY' is none of OK, WARNING, UNKNOWN, MISSING, DOWNTIME"),
    (encode_datum({**RESULT, "hostname": ""}), "hostname is empty"),
    (encode_datum({**RESULT, "timestamp": "yesterday"}),
     "timestamp 'yesterday': a time is written as 2024-03-05T10:20"),
    (encode_datum({**RESULT, "timestamp": "2024-02-30T00:00:00Z"}), "timestamp '2024-02-30T00:00:00Z': day is out of"),
    (encode_datum({**RESULT, "timestamp": "0001-01-01T00:00:00Z"}), "timestamp 0001-01-01T00:00:00Z lies before 1970"),
    (encode_datum({**RESULT, "timestamp": "2242-03-05T10:20:30Z"}),
     "timestamp 2242-03-05T10:20:30Z lies in the future"),
    (encode_datum({**RESULT, "timestamp": "2042-03-05T10:20:30Z"}),
     "timestamp 2042-03-05 is not of the partition_date"),
])  # fmt: skip
def test_what_is_no_result_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(Broken) as refused:
        list(parse_results(data, {"partition_date": "2024-03-05"}, "current", latest=2**32))
    assert str(refused.value).startswith(reason)


@pytest.mark.parametrize("attributes", [{}, {"partition_date": "2024-03-06"}, {"partition_date": "today"}])
def test_the_result_itself_says_its_day(attributes: dict[str, str]) -> None:
    [found] = parse_results(encode_datum(RESULT), attributes, "current")
    assert found["date"] == "2024-03-05"


@pytest.mark.parametrize(("performance", "seconds"), [
    ("time=0.5s;;;0.000000", 0.5), ("size=6B;;;0 time=250ms;;;0", 0.25), ("'time'=3", 3.0), ("uptime=4s", None),
    ("time=fast", None), ("time=1.2.3s", None), ("", None),
])  # fmt: skip
def test_the_response_time_is_the_time_of_the_performance_data(performance: str, seconds: float | None) -> None:
    assert response_time(performance) == seconds


def pack_datums(kind: str, *datums: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    for each in datums:
        schemaless_writer(stream, LIST_SCHEMAS[kind], each)
    return stream.getvalue()


def rows(kind: str, data: bytes, day: str = "2024-03-05", report: str = "R") -> list[tuple[str, str, str]]:
    attributes = {"type": kind, "partition_date": day, "report": report}
    return [tuple(row.values()) for row in parse_lists(data, attributes, "R")]  # type: ignore[misc]  # three of them


def test_datums_of_one_message_or_of_several_make_the_same_lists() -> None:
    other = {**DOWNTIME, "hostname": "w2"}
    one = rows("downtimes", pack_datums("downtimes", DOWNTIME, other))
    two = [row for each in (other, DOWNTIME) for row in rows("downtimes", pack_datums("downtimes", each))]

    assert lists(one) == lists(two + one)
    assert lists(one).downtimes["2024-03-05"][0] == Downtime(**DOWNTIME)


def test_each_list_is_of_its_day() -> None:
    came = lists([
        *rows("group_endpoints", pack_datums("group_endpoints", ENDPOINT)),
        *rows("group_endpoints", pack_datums("group_endpoints", {**ENDPOINT, "tags": None}), day="2024-03-06"),
        *rows("metric_profile", pack_datums("metric_profile", PROFILE, {**PROFILE, "metric": "tcp"})),
        *rows("group_groups",
              pack_datums("group_groups", {"type": "NGI", "group": "N", "subgroup": "A", "tags": None})),
    ])  # fmt: skip

    endpoints = [(day, each.tags.monitored) for day, items in came.endpoints.items() for each in items]
    assert endpoints == [("2024-03-05", "1"), ("2024-03-06", "")]
    assert came.profiles == {"2024-03-05": {"webdav": ["dav", "tcp"]}}
    assert [(day, each.subgroup) for day, [each] in came.groups.items()] == [("2024-03-05", "A")]


def test_lists_of_other_reports_and_of_unused_types_are_passed_over() -> None:
    assert rows("downtimes", pack_datums("downtimes", DOWNTIME), report="other") == []
    assert rows("weights", b"anything") == []


@pytest.mark.parametrize(("kind", "data", "reason"), [
    ("sites", b"", "type 'sites' is none of group_endpoints, group_groups, metric_profile, downtimes"),
    ("downtimes", pack_datums("downtimes", DOWNTIME)[:-1], "not datums of the schema downtimes"),
    ("downtimes", pack_datums("downtimes", DOWNTIME, {**DOWNTIME, "end_time": "soon"}),
     "downtimes: a time is written as 2024-"),
])  # fmt: skip
def test_a_message_that_is_not_all_datums_is_refused_whole(kind: str, data: bytes, reason: str) -> None:
    with pytest.raises(Broken) as refused:
        rows(kind, data)

    assert str(refused.value).startswith(reason)
    with pytest.raises(Broken, match="attribute partition_date is missing"):
        list(parse_lists(pack_datums("downtimes", DOWNTIME), {"type": "downtimes"}, "R"))


def test_a_downtime_that_ends_before_it_starts_is_set_aside_alone() -> None:
    data = pack_datums(
        "downtimes", DOWNTIME, {**DOWNTIME, "end_time": "2024-03-04T00:00:00Z"}, {**DOWNTIME, "hostname": "w2"}
    )

    first, reversed_one, last = parse_lists(data, {"type": "downtimes", "partition_date": "2024-03-05"}, "R")

    assert str(reversed_one) == "downtimes: end_time lies before start_time"
    held = [json.loads(each["item"])["hostname"] for each in (first, last) if not isinstance(each, Broken)]
    assert held == ["w1", "w2"]


def test_the_day_of_a_list_is_a_day() -> None:
    assert rows("downtimes", pack_datums("downtimes", DOWNTIME), day="20240305")[0][1] == "2024-03-05"
    with pytest.raises(Broken, match="partition_date '2024-03-05x' is no day"):
        rows("downtimes", pack_datums("downtimes", DOWNTIME), day="2024-03-05x")
