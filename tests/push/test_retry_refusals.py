"""Which messages are put aside, and after how many refusals."""

from hypothesis import given
from hypothesis import strategies as st

from ams.core.push_config import HTTP_ENDPOINT, PushConfig
from ams.push.retry import Refusals
from tests.push.keepers import pulled

MOST = 4


def refusals(most: int = MOST) -> Refusals:
    return Refusals(PushConfig(HTTP_ENDPOINT, dead_letter_topic="dead", max_delivery_attempts=most))


@given(st.integers(1, 20))
def test_a_message_alone_is_put_aside_at_the_configured_refusal(most: int) -> None:
    counted = refusals(most)

    assert [counted.refused([pulled(7)], 422) for _ in range(most)] == [0] * (most - 1) + [most]


@given(st.lists(st.integers(2, 12), max_size=8))
def test_a_message_in_company_is_never_put_aside(sizes: list[int]) -> None:
    counted = refusals()

    assert not any(counted.refused([pulled(offset) for offset in range(size)], 422) for size in sizes)


def test_refusals_in_company_count_once_a_message_is_alone() -> None:
    counted = refusals()
    for _ in range(MOST):
        counted.refused([pulled(1), pulled(2)], 422)

    assert counted.refused([pulled(1)], 422) == MOST + 1


def test_what_passed_and_what_was_to_blame_are_forgotten() -> None:
    counted = refusals()
    for _ in range(MOST):
        counted.refused([pulled(1), pulled(2)], 422)
    counted.passed(pulled(1))

    assert counted.refused([pulled(2)], 422) == MOST + 1
    counted.dead_lettered()
    assert counted.refused([pulled(2)], 422) == 0


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 8)), max_size=12))
def test_what_is_remembered_does_not_grow_behind_the_position(pulls: list[tuple[int, int]]) -> None:
    counted = refusals()
    for first, size in pulls:
        counted.refused([pulled(offset) for offset in range(first, first + size)], 422)

        assert min(counted._counts) >= first
