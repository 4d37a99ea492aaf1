"""The files that say what is monitored and how it counts: what they mean, and what is said of wrong ones."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ams.pipeline.errors import WrongOption
from ams.pipeline.jobs.availability.documents import (
    Downtime,
    EndpointItem,
    Place,
    Tags,
    sites_of,
)
from ams.pipeline.jobs.availability.inputs import Options, in_force, inputs
from ams.pipeline.jobs.availability.parse import Lists
from ams.pipeline.jobs.availability.timelines import Span
from tests.pipeline.jobs.availability.support import PROFILES, WORKED

NOW = 1_710_000_000
MIDNIGHT = "2024-03-05T00:00:00Z"
COUNTS = Tags(monitored="1", production="1")


def changed(tmp_path: Path, option: str, content: Any) -> Options:
    file = tmp_path / f"{option}.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return Options(**{**PROFILES, option: str(file)})


@pytest.mark.parametrize(
    ("option", "content", "reason"),
    [
        ("topology", "[{]", "JSON is malformed"),
        ("topology", [{"group": "A", "service": "B"}], "missing required field `hostname` - at `$[0]`"),
        ("topology", [{"group": "A", "service": "B", "hostname": 7}], "Expected `str`, got `int` - at `$[0].hostname`"),
        ("metric_profile", [{}, {}], "one profile is needed, not 2"),
        ("metric_profile", {"services": []}, "no service is both in the metric profile and in a group"),
        ("aggregation_profile", {"groups": [{"name": "a", "operation": "XOR", "services": []}]}, "XOR is not"),
        ("operations_profile", {"operations": [{"name": "AND", "truth_table": []}]}, "operation AND does not say what"),
        ("recomputations", [{"start_time": MIDNIGHT, "end_time": "2024-03-06"}], "a time is written as 2024-"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_field(tmp_path: Path, option: str, content: Any, reason: str) -> None:
    with pytest.raises(WrongOption) as refused:
        inputs(changed(tmp_path, option, content))

    assert reason in str(refused.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(WrongOption, match=r"option topology: /nowhere.json: No such file"):
        inputs(Options(**{**PROFILES, "topology": "/nowhere.json"}))
    with pytest.raises(WrongOption, match="option metric_profile: is needed where no sync_topic tells it"):
        Options(aggregation_profile="aggregation_profile.json")


def test_truth_tables_of_ones_own_take_the_place_of_the_usual_orders(tmp_path: Path) -> None:
    usual = inputs(Options(**PROFILES)).rules[""].metric_operation
    rows = [{"a": a, "b": b, "x": "OK" if "OK" in (a, b) else x} for (a, b), x in usual.table.items()]
    profile = {"available_states": ["OK"], "operations": [{"name": "AND", "truth_table": rows}]}

    found = inputs(changed(tmp_path, "operations_profile", profile)).rules[""]

    assert found.available == ("OK",)
    assert found.metric_operation.over(["CRITICAL", "OK"]) == "OK"
    assert found.metric_operation.over(["CRITICAL", "WARNING"]) == "CRITICAL"


def test_the_items_of_one_date_hold_until_the_next_date() -> None:
    items = [
        EndpointItem("A", "webdav", "w1", "2024-03-01", tags=COUNTS),
        EndpointItem("A", "webdav", "w2", "2024-03-05", tags=COUNTS),
        EndpointItem("A", "webdav", "w3", "2024-03-05", tags=Tags(monitored="1")),
    ]
    options = Options(**{**PROFILES, "topology": ""}, sync_topic="sync_data")
    topology = inputs(
        options, Lists(endpoints={day: [i for i in items if i.date == day] for day in ("2024-03-01", "2024-03-05")})
    ).sites

    def on(day: str) -> list[str]:
        sites = in_force(topology, day)
        return [each.hostname for each in sites["A"]] if sites else []

    assert {day: on(day) for day in ("2024-02-01", "2024-03-04", "2024-03-05")} == {
        "2024-02-01": ["w1"],
        "2024-03-04": ["w1"],
        "2024-03-05": ["w2"],
    }
    assert in_force({}, "2024-03-05") is None
    assert sites_of([]) == {}


def test_an_item_without_service_or_host_is_no_endpoint() -> None:
    items = [EndpointItem("A", service, host, tags=COUNTS) for service in ("webdav", "") for host in ("w1", "")]

    assert sites_of(items) == {"A": {Place("webdav", "w1"): ""}}


def test_a_downtime_of_days_covers_each_of_them() -> None:
    down = Downtime("2024-03-04T12:00:00Z", "2024-03-06T06:00:00Z", hostname="w1", service="webdav")
    known = inputs(Options(**PROFILES))
    known = replace(known, lists=known.lists._replace(downtimes={"": [down]}))
    found = known.on("2024-03-05", NOW)

    assert found.laid_over("A", Place("webdav", "w1")) == [Span(-43_200, 108_000, "DOWNTIME")]
    assert found.laid_over("A", Place("webdav", "w2")) == []
    assert found.laid_over("A", Place("webdav", "w1", "dav")) == found.laid_over("A", Place()) == []
    assert known.on("2024-03-09", NOW).overrides == ()


def test_what_holds_on_a_day_is_the_same_value_when_the_file_is_read_again() -> None:
    options = Options(**PROFILES, recomputations=str(WORKED / "request_b.json"))

    assert repr(inputs(options).on("2024-03-05", NOW)) == repr(inputs(options).on("2024-03-05", NOW + 5))


def test_a_profile_of_which_nothing_counts_is_passed_over_when_a_message_brought_it() -> None:
    options = Options(**{**PROFILES, "metric_profile": ""}, sync_topic="sync_data")
    fits, other = {"webdav": ["dav"]}, {"org.example.none": ["x"]}

    found = inputs(options, Lists(profiles={"2024-03-05": fits, "2024-03-06": other}))

    assert list(found.rules) == ["2024-03-05"]
    assert found.unfit == ["2024-03-06"]
    assert found.on("2024-03-07", NOW).rules.metrics == {"webdav": ("dav",)}
