"""The algebra of timelines against its plainest form: a list of 86,400 statuses, looked at second by second."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.pipeline.jobs.availability.timelines import (
    AND,
    BEST_FIRST,
    DAY,
    OR,
    SEVERITY,
    STATUSES,
    Operation,
    Span,
    Timeline,
    by_order,
    combined,
    holding,
    overridden,
)

FEW = settings(max_examples=30, deadline=None)
"""A day has 86,400 seconds, and the plain form looks at each."""
STATUS = st.sampled_from(STATUSES)
SECOND = st.sampled_from([0, 1, 2, 3, 5, 8, 13, 3600, DAY - 2, DAY - 1]) | st.integers(0, DAY - 1)
RESULTS = st.lists(st.tuples(SECOND, STATUS), max_size=8)
TIMELINES = st.builds(holding, STATUS, RESULTS)
SPANS = st.lists(
    st.builds(Span, st.integers(-DAY, DAY * 2), st.integers(-DAY, DAY * 2), STATUS)
    | st.builds(Span, SECOND, SECOND, STATUS),
    max_size=4,
)


def by_second(timeline: Timeline) -> list[str]:
    return [span.status for span in timeline.spans() for _ in range(span.start, span.end)]


def is_shortest(timeline: Timeline) -> bool:
    changes = timeline.changes
    starts_at_midnight = changes[0].second == 0
    return starts_at_midnight and all(a.second < b.second < DAY and a.status != b.status for a, b in pairwise(changes))


@FEW
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


@FEW
@given(TIMELINES)
def test_the_seconds_of_a_day_sum_to_a_day(timeline: Timeline) -> None:
    spans = list(timeline.spans())

    assert sum(span.end - span.start for span in spans) == len(by_second(timeline)) == DAY
    assert all(span.end == after.start for span, after in pairwise(spans))
    assert timeline.at(DAY - 1) == timeline.changes[-1].status == by_second(timeline)[-1]


@FEW
@given(st.lists(TIMELINES, min_size=1, max_size=4), st.sampled_from([AND, OR]))
def test_timelines_come_together_second_by_second(timelines: list[Timeline], operation: Operation) -> None:
    joined = combined(operation, timelines)

    assert by_second(joined) == [operation.over(each) for each in zip(*map(by_second, timelines), strict=True)]
    assert is_shortest(joined)


@FEW
@given(TIMELINES, SPANS)
def test_what_is_laid_over_holds_inside_its_spans_and_nowhere_else(timeline: Timeline, spans: list[Span]) -> None:
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
