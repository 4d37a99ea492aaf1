"""Files about monitored services: their meaning, invalid ones, and each field as the reference shows it."""

import io
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from fastavro import schemaless_writer

from ams.pipeline.errors import Broken, WrongOption
from ams.pipeline.jobs.availability import documents
from ams.pipeline.jobs.availability.documents import (
    Defaults,
    Downtime,
    EndpointItem,
    Override,
    Place,
    Tags,
    overrides,
    sites_of,
)
from ams.pipeline.jobs.availability.inputs import AvailabilityOptions, Inputs, in_force
from ams.pipeline.jobs.availability.parse import LIST_SCHEMAS, RESULT_SCHEMAS, Lists, parse_lists, parse_results
from ams.pipeline.jobs.availability.timelines import StatusSpan
from tests.pipeline.jobs.availability.support import EXAMPLE_FOLDER, PROFILES, record
from tests.pipeline.jobs.inputs_page import Input, rows

NOW = 1_710_000_000
MIDNIGHT = "2024-03-05T00:00:00Z"
COUNTS = Tags(monitored="1", production="1")


def change_option(tmp_path: Path, option: str, content: Any) -> AvailabilityOptions:
    file = tmp_path / f"{option}.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return AvailabilityOptions(**{**PROFILES, option: str(file)})


@pytest.mark.parametrize(("option", "content", "reason"), [
    ("topology", "[{]", "JSON is malformed"),
    ("topology", [{"group": "A", "service": "B"}], "missing required field `hostname` - at `$[0]`"),
    ("topology", [{"group": "A", "service": "B", "hostname": 7}], "Expected `str`, got `int` - at `$[0].hostname`"),
    ("metric_profile", [{}, {}], "one profile is needed, not 2"),
    ("metric_profile", {"services": []}, "no service is both in the metric profile and in a group"),
    ("aggregation_profile", {"groups": [{"name": "a", "operation": "XOR", "services": []}]}, "XOR is not"),
    ("operations_profile", {"operations": [{"name": "AND", "truth_table": []}]}, "operation AND does not say what"),
    ("recomputations", [{"start_time": MIDNIGHT, "end_time": "2024-03-06"}], "a time is written as 2024-"),
])  # fmt: skip
def test_what_is_wrong_in_a_file_is_said_with_field(tmp_path: Path, option: str, content: Any, reason: str) -> None:
    with pytest.raises(WrongOption) as refused:
        Inputs(change_option(tmp_path, option, content))
    assert reason in str(refused.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(WrongOption, match=r"option topology: /nowhere.json: No such file"):
        Inputs(AvailabilityOptions(**{**PROFILES, "topology": "/nowhere.json"}))
    with pytest.raises(WrongOption, match="option metric_profile: is needed where no sync_topic tells it"):
        AvailabilityOptions(aggregation_profile="aggregation_profile.json")


def test_truth_tables_of_ones_own_take_the_place_of_the_usual_orders(tmp_path: Path) -> None:
    usual = Inputs(AvailabilityOptions(**PROFILES)).rules[""].metric_operation
    rows = [{"a": a, "b": b, "x": "OK" if "OK" in (a, b) else x} for (a, b), x in usual.table.items()]
    profile = {"available_states": ["OK"], "operations": [{"name": "AND", "truth_table": rows}]}

    found = Inputs(change_option(tmp_path, "operations_profile", profile)).rules[""]

    assert (found.available, found.metric_operation.over(["CRITICAL", "OK"])) == (("OK",), "OK")
    assert found.metric_operation.over(["CRITICAL", "WARNING"]) == "CRITICAL"


def test_the_items_of_one_date_hold_until_the_next_date() -> None:
    items = [
        EndpointItem("A", "webdav", "w1", "2024-03-01", tags=COUNTS),
        EndpointItem("A", "webdav", "w2", "2024-03-05", tags=COUNTS),
        EndpointItem("A", "webdav", "w3", "2024-03-05", tags=Tags(monitored="1")),
    ]
    options = AvailabilityOptions(**{**PROFILES, "topology": ""}, sync_topic="sync_data")
    topology = Inputs(
        options, Lists(endpoints={day: [i for i in items if i.date == day] for day in ("2024-03-01", "2024-03-05")})
    ).sites

    def hosts_on(day: str) -> list[str]:
        sites = in_force(topology, day)
        return [each.hostname for each in sites["A"]] if sites else []

    assert {day: hosts_on(day) for day in ("2024-02-01", "2024-03-04", "2024-03-05")} == {
        "2024-02-01": ["w1"], "2024-03-04": ["w1"], "2024-03-05": ["w2"],
    }  # fmt: skip
    assert in_force({}, "2024-03-05") is None
    assert sites_of([]) == {}


def test_an_item_without_service_or_host_is_no_endpoint() -> None:
    items = [EndpointItem("A", service, host, tags=COUNTS) for service in ("webdav", "") for host in ("w1", "")]
    assert sites_of(items) == {"A": {Place("webdav", "w1"): ""}}


def test_a_downtime_of_days_covers_each_of_them() -> None:
    down = Downtime("2024-03-04T12:00:00Z", "2024-03-06T06:00:00Z", hostname="w1", service="webdav")
    known = Inputs(AvailabilityOptions(**PROFILES))
    known.lists = known.lists._replace(downtimes={"": [down]})
    found = known.on("2024-03-05", NOW)

    assert found.laid_over("A", Place("webdav", "w1")) == [StatusSpan(-43_200, 108_000, "DOWNTIME")]
    assert found.laid_over("A", Place("webdav", "w2")) == []
    assert found.laid_over("A", Place("webdav", "w1", "dav")) == found.laid_over("A", Place()) == []
    assert known.on("2024-03-09", NOW).overrides == ()


def test_what_holds_on_a_day_is_the_same_value_when_the_file_is_read_again() -> None:
    options = AvailabilityOptions(**PROFILES, recomputations=str(EXAMPLE_FOLDER / "request_b.json"))
    assert repr(Inputs(options).on("2024-03-05", NOW)) == repr(Inputs(options).on("2024-03-05", NOW + 5))


def test_a_profile_of_which_nothing_counts_is_passed_over_when_a_message_brought_it() -> None:
    options = AvailabilityOptions(**{**PROFILES, "metric_profile": ""}, sync_topic="sync_data")
    fits, other = {"webdav": ["dav"]}, {"org.example.none": ["x"]}

    found = Inputs(options, Lists(profiles={"2024-03-05": fits, "2024-03-06": other}))

    assert list(found.rules) == ["2024-03-05"]
    assert (found.unfit, found.on("2024-03-07", NOW).rules.metrics) == (["2024-03-06"], {"webdav": ("dav",)})


NIGHT = {"start_time": "2024-03-05T00:00:00Z", "end_time": "2024-03-05T06:00:00Z"}
DOWNTIME = {"hostname": "w1", "service": "webdav", **NIGHT}
REQUEST = {
    **NIGHT, "exclude": ["A"], "exclude_metrics": [{"metric": "dav"}],
    "exclude_monitoring_source": [{"host": "mon1", **NIGHT}],
    "applied_status_changes": [{"state": "CRITICAL", "group": "A"}],
}  # fmt: skip
BOTH, OR = ("webdav", "SRM"), {"operation": "OR"}
COUNTED_TAGS = {"monitored": "1", "production": "1"}
FILES: dict[str, tuple[Any, Any]] = {
    "metric_profile": (documents.MetricProfile, {"services": [{"service": name, "metrics": ["dav"]} for name in BOTH]}),
    "aggregation_profile": (
        documents.AggregationProfile,
        {"groups": [{"name": "g", **OR, "services": [{"name": each, **OR}]} for each in BOTH]},
    ),
    "operations_profile": (documents.OperationsProfile, {}),
    "topology": (documents.EndpointItem, [{"group": "A", "service": "webdav", "hostname": "w1", "tags": COUNTED_TAGS}]),
    "groups": (documents.GroupItem, [{"group": "N", "subgroup": "A"}]),
    "downtimes": (documents.Downtime, [DOWNTIME]),
    "recomputations": (documents.RecomputationRequest, [REQUEST]),
}
"""Options, their kinds of file, and an example of each."""


ROWS = [Input(*row) for row in rows("availability", "Fields")]


def read_inputs(folder: Path, option: str = "", content: Any = None) -> Inputs:
    files = {}
    for name, (_, usual) in FILES.items():
        (folder / name).write_text(json.dumps(content if name == option else usual))
        files[name] = str(folder / name)
    return Inputs(AvailabilityOptions(**files, report="R"))


def outcome(found: Inputs) -> str:
    return repr((found.on("2024-03-05", 1_710_000_000), sorted(found.sites), sorted(found.lists.groups)))


def changed_content(row: Input) -> Any:
    content = json.loads(json.dumps(FILES[row.form][1]))
    inside = content[0] if isinstance(content, list) else content
    *above, last = row.key.replace("*", "scope").split(".")
    for each in above:
        name = each.removesuffix("[]")
        inside = inside.setdefault(name, {})
        inside = inside[0] if each.endswith("[]") else inside
    inside[last] = json.loads(row.example)
    return content


@pytest.mark.parametrize("row", [row for row in ROWS if row.example != "-"], ids=" ".join)
def test_what_the_api_says_becomes_what_the_reference_shows(row: Input, tmp_path: Path) -> None:
    if row.result.startswith("set aside: "):
        with pytest.raises(WrongOption) as refused:
            read_inputs(tmp_path, row.form, changed_content(row))
        assert refused.value.option == row.form
        assert row.result.removeprefix("set aside: ") in str(refused.value)
        return

    found = read_inputs(tmp_path, row.form, changed_content(row))

    passed_over = [row.result.removeprefix("passed over: ")] if row.result.startswith("passed over") else []
    assert found.passed_over == passed_over
    same = row.result.startswith("not taken") or row.result.endswith("on which nothing depends")
    assert (outcome(found) == outcome(read_inputs(tmp_path))) is same


def fields(kind: Any, path: str = "") -> Iterator[str]:
    for each in msgspec.structs.fields(kind):
        [inner, *_] = [*(part for part in get_args(each.type) if isinstance(part, type)), each.type]
        several = "[]" if inner is not each.type else ""
        if isinstance(inner, type) and issubclass(inner, documents.Document):
            yield from fields(inner, f"{path}{each.encode_name}{several}.")
        else:
            yield f"{path}{each.encode_name}"
    yield from (f"{path}{name}" for name in kind.NOT_TAKEN)


@pytest.mark.parametrize("option", FILES)
def test_every_field_that_is_known_has_a_row_and_no_other(option: str) -> None:
    in_reference = {row.key for row in ROWS if row.form == option and "unknown field" not in row.result}
    of_days = {f"(list of a day) {name}" for name in ("date", "endpoints", *documents.DowntimesOfDate.NOT_TAKEN)}
    assert in_reference == {*fields(FILES[option][0]), *(of_days if option == "downtimes" else ())}


MESSAGES = [Input(*row) for row in rows("availability", "Messages")]
DATUMS: dict[str, dict[str, Any]] = {
    "result": record("2024-03-05T10:20:30Z", "webdav", "w1", "dav", "CRITICAL", actual_data="none"),
    "group_endpoints": {"type": "-", "group": "A", "service": "webdav", "hostname": "w1", "tags": {"monitored": "1"}},
    "group_groups": {"type": "-", "group": "N", "subgroup": "A", "tags": {}},
    "metric_profile": {"profile": "-", "service": "webdav", "metric": "dav", "tags": {}}, "downtimes": DOWNTIME,
}  # fmt: skip
"""A datum of each kind of message."""


def parse_datum(kind: str, datum: dict[str, Any]) -> list[Any]:
    """Return the parsed message of one datum, or the reason of its refusal."""
    stream = io.BytesIO()
    schemaless_writer(stream, RESULT_SCHEMAS["current"] if kind == "result" else LIST_SCHEMAS[kind], datum)
    attributes = {"partition_date": "2024-03-05", **({} if kind == "result" else {"type": kind})}
    parse = partial(parse_results, shape="current") if kind == "result" else partial(parse_lists, report="R")
    try:
        return [str(each) if isinstance(each, Broken) else each for each in parse(stream.getvalue(), attributes)]
    except Broken as error:
        return [str(error)]


@pytest.mark.parametrize("row", MESSAGES, ids=" ".join)
def test_what_a_message_says_becomes_what_the_reference_shows(row: Input) -> None:
    value = json.loads(row.example) if row.example.startswith("{") else row.example
    found = parse_datum(row.form, {**DATUMS[row.form], row.key: value})

    if row.result.startswith("set aside: "):
        assert found == [row.result.removeprefix("set aside: ")]
    else:
        assert (found == parse_datum(row.form, DATUMS[row.form])) is row.result.startswith("not taken")


def test_every_field_of_a_schema_has_a_row_and_no_other() -> None:
    schemas = {"result": RESULT_SCHEMAS["current"], **LIST_SCHEMAS}
    of_schemas = {(kind, field["name"]) for kind, schema in schemas.items() for field in schema["fields"]}

    assert {(row.form, row.key) for row in MESSAGES} == of_schemas
    for shape in RESULT_SCHEMAS.values():
        assert {field["name"] for field in shape["fields"]} <= {name for kind, name in of_schemas if kind == "result"}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_files_of_editors_are_read_by_their_mark(encoding: str, tmp_path: Path) -> None:
    plain = outcome(read_inputs(tmp_path))
    for name in FILES:
        file = tmp_path / name
        file.write_bytes(file.read_text().encode(encoding))

    assert outcome(Inputs(AvailabilityOptions(**{name: str(tmp_path / name) for name in FILES}, report="R"))) == plain


@pytest.mark.parametrize("name", ["data", "root"])
@pytest.mark.parametrize("option", FILES)
def test_answers_of_the_api_may_be_kept_as_they_are(name: str, option: str, tmp_path: Path) -> None:
    usual = FILES[option][1]
    forms = [usual, [usual]] if isinstance(usual, dict) else [usual, usual[0]]
    plain = outcome(read_inputs(tmp_path))

    for form in forms:
        answer = {"status": {"message": "Success", "code": "200"}, name: form}
        assert outcome(read_inputs(tmp_path, option, answer)) == plain


def test_lists_of_downtimes_hold_for_their_days(tmp_path: Path) -> None:
    other = {**DOWNTIME, "hostname": "w9"}
    backwards = {**DOWNTIME, "end_time": "2024-03-01T00:00:00Z"}
    answer = {
        "data": [
            {"date": "2024-03-05", "endpoints": [DOWNTIME, backwards]}, {"date": "2024-03-06", "endpoints": None},
            {"date": "2024-03-07", "id": "1", "name": "x", "endpoints": [other]},
        ]
    }  # fmt: skip

    found = read_inputs(tmp_path, "downtimes", answer)

    hosts = {date: [each.hostname for each in held] for date, held in found.lists.downtimes.items()}
    assert hosts == {"2024-03-05": ["w1"], "2024-03-06": [], "2024-03-07": ["w9"]}
    assert found.passed_over == ["downtimes: item 1 ends at 2024-03-01T00:00:00Z, before it starts"]


@pytest.mark.parametrize(("change", "level", "names"), [
    ({"group": "A"}, "endpoint_group", ("A", "", "", "")),
    ({"service": "webdav"}, "service", (None, "webdav", "", "")),
    ({"service": "webdav", "group": "A"}, "service", ("A", "webdav", "", "")),
    ({"hostname": "w1"}, "endpoint", (None, None, "w1", "")),
    ({"endpoint": "w1", "group": "A"}, "endpoint", ("A", None, "w1", "")),
    ({"metric": "dav"}, "metric", (None, None, None, "dav")),
    ({"metric": "dav", "hostname": "w1", "group": "A"}, "metric", ("A", None, "w1", "dav")),
])  # fmt: skip
def test_a_status_holds_at_its_last_name(change: dict[str, str], level: str, names: tuple[str | None, ...]) -> None:
    request = msgspec.convert(
        {**NIGHT, "applied_status_changes": [{"state": "OK", **change}]}, documents.RecomputationRequest
    )
    assert list(overrides("2024-03-05", [], [request], Defaults())) == [
        Override(level, names, StatusSpan(0, 6 * 3600, "UNKNOWN")._replace(status="OK"))
    ]


def test_of_statuses_that_are_applied_the_one_that_names_more_counts() -> None:
    changes = [
        {"state": "CRITICAL", "service": "webdav", "group": "A"}, {"state": "OK", "service": "webdav"},
        {"state": "EXCLUDED", "service": "webdav"},
    ]  # fmt: skip
    request = msgspec.convert(
        {**NIGHT, "exclude": ["A"], "applied_status_changes": changes}, documents.RecomputationRequest
    )

    found = list(overrides("2024-03-05", [], [request], Defaults()))

    assert [each.span.status for each in found] == ["UNKNOWN", "OK", "UNKNOWN", "CRITICAL"]
