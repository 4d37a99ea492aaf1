"""Timelines, days and events of sites as plain values, and their board."""

from datetime import UTC, datetime
from itertools import pairwise
from random import Random

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.pipeline.jobs.availability.documents import (
    Defaults,
    Downtime,
    Override,
    Place,
    ProfileRules,
    ServiceGroup,
    overrides,
)
from ams.pipeline.jobs.availability.figures import site_rows
from ams.pipeline.jobs.availability.inputs import DayInputs
from ams.pipeline.jobs.availability.job import Board, as_page, sections
from ams.pipeline.jobs.availability.sites import ProbeResult, timelines_of
from ams.pipeline.jobs.availability.timelines import (
    AND,
    BEST_FIRST,
    DAY,
    OR,
    SEVERITY,
    STATUSES,
    Operation,
    StatusSpan,
    Timeline,
    by_order,
    combine,
    holding,
    overridden,
)

Changes = list[tuple[Place, int, str]]
EVE, TODAY = "2024-03-04", "2024-03-05"
RULES = ProfileRules(
    metrics={"ce": ("jobs", "tcp"), "se": ("dav",)}, metric_operation=AND, profile_operation=AND,
    groups=(ServiceGroup(OR, {"ce": OR}), ServiceGroup(OR, {"se": OR})),
)  # fmt: skip
HOSTS = (Place("ce", "c1"), Place("ce", "c2"), Place("se", "s1"))
MEASURED_PLACES = [host._replace(metric=metric) for host in HOSTS for metric in RULES.metrics[host.service]]
ONE_RESULT = st.tuples(
    st.sampled_from(MEASURED_PLACES), st.integers(0, DAY - 1) | st.sampled_from([0, DAY - 1]), st.sampled_from(STATUSES)
)


def inputs(day: str = TODAY, *down: Downtime, until: int = DAY, eve: DayInputs | None = None) -> DayInputs:
    over: tuple[Override, ...] = tuple(overrides(day, down, [], Defaults()))
    return DayInputs(day, RULES, {"A": dict.fromkeys(HOSTS, "https://page.example/")}, over, until=until, eve=eve)


def collect_results(results: Changes) -> dict[Place, list[ProbeResult]]:
    held: dict[Place, list[ProbeResult]] = {}
    for measured, second, status in results:
        held.setdefault(measured, []).append(ProbeResult(second, status, "mon1", f"{status} at {second}"))
    return held


@settings(deadline=None, max_examples=25)
@given(st.lists(ONE_RESULT, max_size=12), st.lists(ONE_RESULT, max_size=4), st.randoms(use_true_random=False))
def test_at_every_second_the_site_is_what_its_parts_come_to(today: Changes, eve: Changes, random: Random) -> None:
    shuffled = today * 2
    random.shuffle(shuffled)
    found = timelines_of(inputs(), "A", collect_results(today), collect_results(eve))

    assert found == timelines_of(inputs(), "A", collect_results(shuffled), collect_results(eve))
    for second in {0, DAY - 1, *(result[1] for result in today), *(max(result[1] - 1, 0) for result in today)}:
        for host in HOSTS:
            below = [found[each].at(second) for each in MEASURED_PLACES if each[:2] == host[:2]]
            assert found[host].at(second) == AND.over(below)
        services = [found[Place("ce")].at(second), found[Place("se")].at(second)]
        assert services[0] == OR.over(found[host].at(second) for host in HOSTS[:2])
        assert found[Place()].at(second) == AND.over(services)


@settings(deadline=None, max_examples=25)
@given(st.lists(ONE_RESULT, max_size=12), st.lists(ONE_RESULT, max_size=4))
def test_there_is_an_event_for_each_change_and_no_other(today: Changes, eve: Changes) -> None:
    results = {TODAY: collect_results(today), EVE: collect_results(eve)}
    rows = list(site_rows("A", results, [inputs(eve=inputs(EVE))], "Critical", 3600))
    stretches = [row for row in rows if "event" not in row and row["type"] == "endpoint_group"]
    events = [event for row in rows if (event := row.get("event")) and event["type"] == "endpoint_group"]

    inner = [row for row in stretches if row["start"] > 0]
    changes = [event for event in events if event["repeat"] == "false"]

    assert (stretches[0]["start"], stretches[-1]["end"]) == (0, DAY)
    assert len(changes) - len(inner) in (0, 1)  # one more when the day begins with another status than the one before


def list_events(results: Changes, here: DayInputs, kind: str) -> list[dict[str, object]]:
    rows = site_rows("A", {TODAY: collect_results(results)}, [here], "Critical", DAY)
    return [{"date": row["date"], **row["event"]} for row in rows if "event" in row and row["type"] == kind]


ALL_OK = [(measured, 0, "OK") for measured in MEASURED_PLACES]
DOWNTIME = Downtime("2024-03-05T02:00:00Z", "2024-03-05T03:00:00Z", hostname="s1", service="se")


def test_an_event_of_the_site_names_the_metric_that_caused_it_and_all_around_it() -> None:
    [event] = list_events([*ALL_OK, (MEASURED_PLACES[4], 3600, "CRITICAL")], inputs(), "endpoint_group")

    four = ["CRITICAL", "OK", "2024-03-05T01:00:00Z", "2024-03-05T00:00:00Z"]
    place = {"report": "Critical", "type": "endpoint_group", "date": "2024-03-05", "endpoint_group": "A"}
    change = dict(zip(("status", "prev_status", "ts_monitored", "prev_ts"), four, strict=True))
    cause = {"service": "se", "hostname": "s1", "metric": "dav", "hostname_url": "https://page.example/"}
    result = {"monitoring_host": "mon1", "summary": "CRITICAL at 3600", "message": ""}
    levels = dict.fromkeys(("status_metric", "status_endpoint", "status_service", "status_egroup"), four)
    metrics = {"metric_names": ["dav"], "metric_statuses": ["CRITICAL"]}
    group = {"group_endpoints": ["c1", "c2", "s1"], "group_services": ["ce", "ce", "se"]}
    statuses = {"group_statuses": ["OK", "OK", "CRITICAL"], "repeat": "false", "reminder": "false"}
    assert event == {**place, **change, **cause, **result, **levels, **metrics, **group, **statuses}


def test_a_service_that_another_endpoint_carries_does_not_change() -> None:
    results = [*ALL_OK, (MEASURED_PLACES[0], 3600, "CRITICAL")]
    assert [event["hostname"] for event in list_events(results, inputs(), "endpoint")] == ["c1"]
    assert list_events(results, inputs(), "service") == []


def test_a_downtime_is_its_own_cause() -> None:
    events = list_events(ALL_OK, inputs(TODAY, DOWNTIME), "endpoint_group")

    assert [(event["status"], event["hostname"], event["metric"], event["summary"]) for event in events] == [
        ("DOWNTIME", "s1", "", ""),
        ("OK", "s1", "", ""),
    ]


def test_what_has_not_happened_yet_is_not_told() -> None:
    events = list_events(ALL_OK, inputs(TODAY, DOWNTIME, until=7200), "endpoint_group")
    assert [event["status"] for event in events] == ["DOWNTIME"]


def test_a_site_without_anything_that_counts_has_no_timeline() -> None:
    assert timelines_of(inputs(), "B", {}, {}) == {}
    assert list(site_rows("B", {}, [inputs()], "Critical", DAY)) == []


FEW_EXAMPLES = settings(max_examples=30, deadline=None)  # a day has 86,400 seconds, and the oracle checks each
STATUS = st.sampled_from(STATUSES)
SECOND = st.sampled_from([0, 1, 2, 3, 5, 8, 13, 3600, DAY - 2, DAY - 1]) | st.integers(0, DAY - 1)
RESULTS = st.lists(st.tuples(SECOND, STATUS), max_size=8)
TIMELINES = st.builds(holding, STATUS, RESULTS)
SPANS = st.lists(
    st.builds(StatusSpan, st.integers(-DAY, DAY * 2), st.integers(-DAY, DAY * 2), STATUS)
    | st.builds(StatusSpan, SECOND, SECOND, STATUS),
    max_size=4,
)


def by_second(timeline: Timeline) -> list[str]:
    return [span.status for span in timeline.spans() for _ in range(span.start, span.end)]


def is_shortest(timeline: Timeline) -> bool:
    changes = timeline.changes
    starts_at_midnight = changes[0].second == 0
    return starts_at_midnight and all(a.second < b.second < DAY and a.status != b.status for a, b in pairwise(changes))


@FEW_EXAMPLES
@given(STATUS, RESULTS)
def test_a_status_holds_until_the_next_result(before: str, results: list[tuple[int, str]]) -> None:
    expected, current = [], before
    worst: dict[int, str] = {}
    for second, status in results:
        worst[second] = max(status, worst.get(second, status), key=SEVERITY.__getitem__)
    for second in range(DAY):
        current = worst.get(second, current)
        expected.append(current)

    timeline = holding(before, results)

    assert by_second(timeline) == expected
    assert is_shortest(timeline)


@FEW_EXAMPLES
@given(TIMELINES)
def test_the_seconds_of_a_day_sum_to_a_day(timeline: Timeline) -> None:
    spans = list(timeline.spans())
    assert sum(span.end - span.start for span in spans) == len(by_second(timeline)) == DAY
    assert all(span.end == after.start for span, after in pairwise(spans))
    assert timeline.at(DAY - 1) == timeline.changes[-1].status == by_second(timeline)[-1]


@FEW_EXAMPLES
@given(st.lists(TIMELINES, min_size=1, max_size=4), st.sampled_from([AND, OR]))
def test_timelines_come_together_second_by_second(timelines: list[Timeline], operation: Operation) -> None:
    joined = combine(operation, timelines)
    assert by_second(joined) == [operation.over(each) for each in zip(*map(by_second, timelines), strict=True)]
    assert is_shortest(joined)


@FEW_EXAMPLES
@given(TIMELINES, SPANS)
def test_what_is_laid_over_holds_inside_its_spans_and_nowhere_else(timeline: Timeline, spans: list[StatusSpan]) -> None:
    expected = by_second(timeline)
    for start, end, status in spans:
        for second in range(max(start, 0), min(end, DAY)):
            expected[second] = status

    laid_over = overridden(timeline, spans)

    assert by_second(laid_over) == expected
    assert is_shortest(laid_over)


@given(st.lists(STATUS, min_size=1))
def test_and_is_the_worst_and_or_the_first_of_its_order(statuses: list[str]) -> None:
    assert AND.over(statuses) == max(statuses, key=SEVERITY.__getitem__)
    assert OR.over(statuses) == next(status for status in BEST_FIRST if status in statuses)


def test_a_table_that_leaves_a_pair_out_is_refused() -> None:
    table = {pair: status for pair, status in AND.table.items() if pair != ("OK", "CRITICAL")}
    with pytest.raises(ValueError, match="operation mine does not say what OK and CRITICAL give"):
        Operation("mine", table)


@pytest.mark.parametrize("pair", [("OK", "WARNING"), ("OK", "OK")])
def test_a_table_whose_outcome_depends_on_the_order_is_refused(pair: tuple[str, str]) -> None:
    table = {**AND.table, pair: "MISSING"}
    with pytest.raises(ValueError, match="in another order"):
        Operation("mine", table)


def test_an_order_makes_an_operation() -> None:
    mine = by_order("mine", ("MISSING", *[status for status in STATUSES if status != "MISSING"]))
    assert mine.over(["CRITICAL", "MISSING", "OK"]) == "MISSING"


FIGURES = pd.DataFrame(
    [
        ("SITE-A", "2024-03-04", 100.0, 100.0, False), ("SITE-B", "2024-03-05", None, None, True),
        ("SITE-A", "2024-03-05", 70.81509, 89.46537, True), ("SITE-C", "2024-03-05", 98.0, 99.0, True),
    ],
    columns=["site", "date", "availability", "reliability", "partial"],
)  # fmt: skip
BOARD_SPANS = {"SITE-A": [(datetime(2024, 3, 5, tzinfo=UTC), datetime(2024, 3, 6, tzinfo=UTC), "CRITICAL")]}


def test_the_least_available_site_comes_first_and_one_without_figures_last() -> None:
    cells = Board(FIGURES, BOARD_SPANS).availability
    [*_, figures] = sections(Board(FIGURES, BOARD_SPANS))

    assert "nan" not in as_page(Board(FIGURES, BOARD_SPANS))
    assert sections(Board(FIGURES[:0], {}))[0].text == "No day has been computed yet."
    assert list(cells.columns) == ["2024-03-04", "2024-03-05"]
    assert list(cells.index) == ["SITE-A", "SITE-C", "SITE-B"]
    assert [row[:2] for row in figures.content[0].body][:2] == [("SITE-A", 70.81509), ("SITE-C", 98.0)]
