from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.names import ProjectName
from ams.service.usage import ProjectUsage, average, total_average
from ams.storage.registry.figures import Activity


@pytest.mark.parametrize(
    ("messages", "days", "shown"),
    [(0, 31, 0.0), (120, 31, 3.88), (1, 1, 1.0), (1, 3, 0.34), (2, 3, 0.67), (1, 20_000, 0.01), (29, 100, 0.29)],
)
def test_an_average_is_rounded_up_to_two_decimals(messages: int, days: int, shown: float) -> None:
    assert average(messages, days) == shown


@given(st.integers(0, 10**12), st.integers(1, 10**6))
def test_an_average_is_never_below_the_exact_one_nor_a_hundredth_above(messages: int, days: int) -> None:
    cents = round(average(messages, days) * 100)

    assert 0 <= Fraction(cents, 100) - Fraction(messages, days) < Fraction(1, 100)


def test_the_average_of_all_is_the_sum_of_the_rounded_ones() -> None:
    used = [ProjectUsage(ProjectName(name), Activity(), average) for name, average in (("P", 0.1), ("Q", 0.2))]

    assert total_average(used) == 0.3
