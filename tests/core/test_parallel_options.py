"""Options of parallel subscriptions: their limits, and that they are stored as they are. The texts: contract 19.1."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.clock import Milliseconds, seconds_span, seconds_text
from ams.core.errors import InvalidInput
from ams.core.parallel_options import (
    MAX_BACKOFF,
    MAX_RETENTION,
    MIN_RETENTION,
    MIN_TTL,
    DeadLetterPolicy,
    ParallelOptions,
    RetryPolicy,
    check,
)
from ams.storage.registry.parallel import read, stored

spans = st.integers(0, MAX_BACKOFF).map(Milliseconds)
good = st.builds(
    ParallelOptions,
    st.none() | st.tuples(spans, spans).map(lambda pair: RetryPolicy(*sorted(pair))),
    st.none() | st.builds(DeadLetterPolicy, st.sampled_from(["D", "projects/P/topics/D"]), st.integers(5, 100)),
    st.sampled_from(["", "attributes:a", 'attributes."\u00e4" != "\\""']),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.none() | st.integers(MIN_TTL, 10**15),
    st.none() | st.integers(MIN_RETENTION, MAX_RETENTION),
    st.booleans(),
)
BAD = [
    ParallelOptions(RetryPolicy(Milliseconds(-1))),
    ParallelOptions(RetryPolicy(maximum_backoff=Milliseconds(MAX_BACKOFF + 1))),
    ParallelOptions(RetryPolicy(Milliseconds(2), Milliseconds(1))),
    ParallelOptions(dead_letter_policy=DeadLetterPolicy("D", 4)),
    ParallelOptions(dead_letter_policy=DeadLetterPolicy("D", 101)),
    ParallelOptions(dead_letter_policy=DeadLetterPolicy("")),
    ParallelOptions(filter="a"),
    ParallelOptions(expiration_ttl=Milliseconds(MIN_TTL - 1)),
    ParallelOptions(message_retention=Milliseconds(MIN_RETENTION - 1)),
    ParallelOptions(message_retention=Milliseconds(MAX_RETENTION + 1)),
]


@given(good)
def test_what_keeps_the_limits_is_good_and_is_stored_as_it_is(options: ParallelOptions) -> None:
    check(options)

    assert read(stored(options)) == options


@given(good, st.sampled_from(BAD))
def test_one_bad_option_is_enough(options: ParallelOptions, bad: ParallelOptions) -> None:
    plain = ParallelOptions()
    wrong = {
        name: getattr(bad, name) for name in ParallelOptions.__slots__ if getattr(bad, name) != getattr(plain, name)
    }

    with pytest.raises(InvalidInput):
        check(replace(options, **wrong))


@given(st.integers(0, 10**15 - 1))
def test_a_span_is_read_as_it_is_written(span: int) -> None:
    assert seconds_span(seconds_text(Milliseconds(span))) == span


@given(st.text(max_size=20) | st.from_regex(r"-?[0-9]{0,14}(\.[0-9]{0,11})?s?", fullmatch=True))
def test_any_text_is_a_span_or_is_none(text: str) -> None:
    try:
        span = seconds_span(text)
    except ValueError as error:
        assert repr(text) in str(error)
    else:
        assert 0 <= span <= 10**15
