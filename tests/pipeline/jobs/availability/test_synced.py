"""Lists that come in messages: one datum or many, of one day or several, and what is refused of them."""

import io
from typing import Any

import pytest
from fastavro import schemaless_writer

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.availability.exceptions import Downtime
from ams.pipeline.jobs.availability.synced import SCHEMAS, lists, parse_for

ENDPOINT = {"type": "SITES", "group": "A", "service": "webdav", "hostname": "w1", "tags": {"monitored": "1", "x": "y"}}
DOWN = {
    "hostname": "w1",
    "service": "webdav",
    "start_time": "2024-03-05T00:00:00Z",
    "end_time": "2024-03-06T00:00:00Z",
}
PROFILE = {"profile": "P", "service": "webdav", "metric": "dav", "tags": None}


def packed(kind: str, *records: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    for record in records:
        schemaless_writer(stream, SCHEMAS[kind], record)
    return stream.getvalue()


def rows(kind: str, data: bytes, day: str = "2024-03-05", report: str = "R") -> list[tuple[str, str, str]]:
    attributes = {"type": kind, "partition_date": day, "report": report}
    return [tuple(row.values()) for row in parse_for("R")(data, attributes)]  # type: ignore[misc]  # three of them


def test_datums_of_one_message_or_of_several_make_the_same_lists() -> None:
    one = rows("downtimes", packed("downtimes", DOWN, {**DOWN, "hostname": "w2"}))
    two = rows("downtimes", packed("downtimes", {**DOWN, "hostname": "w2"})) + rows(
        "downtimes", packed("downtimes", DOWN)
    )

    assert lists(one) == lists(two + one)
    assert lists(one).downtimes["2024-03-05"][0] == Downtime(
        DOWN["start_time"], DOWN["end_time"], hostname="w1", service="webdav"
    )


def test_each_list_is_of_its_day() -> None:
    came = lists(
        [
            *rows("group_endpoints", packed("group_endpoints", ENDPOINT)),
            *rows("group_endpoints", packed("group_endpoints", {**ENDPOINT, "tags": None}), day="2024-03-06"),
            *rows("metric_profile", packed("metric_profile", PROFILE, {**PROFILE, "metric": "tcp"})),
            *rows("group_groups", packed("group_groups", {"type": "NGI", "group": "N", "subgroup": "A", "tags": None})),
        ]
    )

    assert [(each.date, each.tags.monitored) for each in came.endpoints] == [("2024-03-05", "1"), ("2024-03-06", "")]
    assert came.profiles["2024-03-05"].services[0].metrics == ["dav", "tcp"]
    assert [(each.date, each.subgroup) for each in came.groups] == [("2024-03-05", "A")]


def test_lists_of_other_reports_and_of_unused_types_are_passed_over() -> None:
    assert rows("downtimes", packed("downtimes", DOWN), report="other") == []
    assert rows("weights", b"anything") == []


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        ("sites", b"", "type 'sites' is none of group_endpoints, group_groups, metric_profile, downtimes"),
        ("downtimes", packed("downtimes", DOWN)[:-1], "not datums of the schema downtimes"),
        ("downtimes", packed("downtimes", DOWN, {**DOWN, "end_time": "soon"}), "downtimes: a time is written as 2024-"),
    ],
)
def test_a_message_that_is_not_all_datums_is_refused_whole(kind: str, data: bytes, reason: str) -> None:
    with pytest.raises(Broken) as refused:
        rows(kind, data)

    assert str(refused.value).startswith(reason)
    with pytest.raises(Broken, match="attribute partition_date is missing"):
        list(parse_for("R")(packed("downtimes", DOWN), {"type": "downtimes"}))


def test_the_day_of_a_list_is_a_day() -> None:
    assert rows("downtimes", packed("downtimes", DOWN), day="20240305")[0][1] == "2024-03-05"
    with pytest.raises(Broken, match="partition_date '2024-03-05x' is no day"):
        rows("downtimes", packed("downtimes", DOWN), day="2024-03-05x")
