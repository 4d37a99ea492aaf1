import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.backoff import Backoff, Pauses


def test_pauses_grow_by_the_factor_up_to_the_longest() -> None:
    pauses = Pauses(Backoff(0.1, 1.0, factor=3.0), lambda: 0.5)

    assert [pauses.next() for _ in range(5)] == pytest.approx([0.1, 0.3, 0.9, 1.0, 1.0])


def test_after_a_success_the_first_pause_comes_again() -> None:
    pauses = Pauses(Backoff(1.0, 60.0))
    assert [pauses.next() for _ in range(3)] == [1.0, 2.0, 4.0]

    pauses.reset()

    assert [pauses.next() for _ in range(2)] == [1.0, 2.0]


def test_chance_draws_a_pause_between_the_shares_of_it() -> None:
    around = Backoff(10.0, 60.0, jitter=(0.9, 1.1))
    assert [around.pause(1, chance) for chance in (0.0, 0.5, 1.0)] == pytest.approx([18.0, 20.0, 22.0])


def test_full_jitter_leaves_at_least_the_least() -> None:
    """Push contract 15, P2: one to sixty seconds."""
    full = Backoff(1.0, 60.0, jitter=(0.0, 1.0), least=1.0)

    assert [full.pause(0, chance) for chance in (0.0, 1.0)] == [1.0, 1.0]
    assert [full.pause(3, chance) for chance in (0.0, 0.5, 1.0)] == [1.0, 4.5, 8.0]
    assert full.pause(10**6, 1.0) == 60.0


def test_a_pause_shorter_than_the_least_is_not_made_longer() -> None:
    assert Backoff(0.1, 60.0, jitter=(0.0, 1.0), least=1.0).pause(0, 0.3) == pytest.approx(0.1)


@given(
    first=st.floats(0.001, 10),
    growth=st.floats(1, 1000),
    factor=st.floats(1, 5),
    low=st.floats(0, 1),
    spread=st.floats(0, 1),
    failures=st.integers(0, 10**9),
    seed=st.integers(),
)
def test_pauses_stay_within_their_bounds(
    first: float, growth: float, factor: float, low: float, spread: float, failures: int, seed: int
) -> None:
    backoff = Backoff(first, first * growth, factor, (low, low + spread))

    pause = backoff.pause(failures, random.Random(seed).random())

    nominal = backoff.nominal(failures)
    assert first <= nominal <= first * growth
    assert nominal * low * 0.999 <= pause <= nominal * (low + spread) * 1.001
    assert backoff.nominal(failures) <= backoff.nominal(failures + 1)
