"""Filters tell what need not be read, and never leave out what passes them."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from ams.pipeline.source.filtering import SKEW, Window, window

NOON = datetime(2024, 3, 5, 12, tzinfo=UTC)
PASSES = {
    GreaterThan: lambda seen, value: seen > value,
    GreaterThanOrEqual: lambda seen, value: seen >= value,
    LessThan: lambda seen, value: seen < value,
    LessThanOrEqual: lambda seen, value: seen <= value,
    EqualTo: lambda seen, value: seen == value,
}
KINDS = st.sampled_from([GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, EqualTo])


@given(st.lists(st.tuples(KINDS, st.integers(0, 20)), max_size=4), st.integers(0, 20))
def test_an_offset_that_passes_is_read(given: list[tuple[type, int]], offset: int) -> None:
    found = window([kind(("offset",), value) for kind, value in given])

    if all(PASSES[kind](offset, value) for kind, value in given):
        assert found.start <= offset
        assert found.stop is None or offset < found.stop


@given(st.lists(st.tuples(KINDS, st.integers(0, 20)), max_size=4), st.integers(0, 20), st.integers(-60, 60))
def test_a_time_that_passes_is_read_though_clocks_are_a_minute_apart(
    given: list[tuple[type, int]], hour: int, skew: int
) -> None:
    moments = [(kind, NOON + timedelta(hours=value)) for kind, value in given]
    seen = NOON + timedelta(hours=hour)

    found = window([kind(("publish_time",), value) for kind, value in moments])

    if all(PASSES[kind](seen, value) for kind, value in moments):
        stored = seen + timedelta(seconds=skew)
        assert found.since is None or found.since <= stored
        assert found.until is None or stored <= found.until


def test_filters_narrow_what_is_read() -> None:
    filters: list[Filter] = [
        GreaterThanOrEqual(("offset",), 5),
        LessThan(("offset",), 9),
        GreaterThan(("publish_time",), NOON),
        LessThanOrEqual(("publish_time",), NOON + timedelta(hours=1)),
    ]

    assert window(filters) == Window(5, 10, NOON - SKEW, NOON + timedelta(hours=1) + SKEW)


def test_other_filters_change_nothing() -> None:
    filters = [EqualTo(("topic",), "t"), In(("offset",), (1, 2)), Not(EqualTo(("offset",), 1)), IsNotNull(("offset",))]

    assert window(filters) == Window()
