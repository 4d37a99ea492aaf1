"""What answers to Google's clients say."""

import pytest

from tests.faults.attempts import Attempt, Outcome
from tests.faults.parallel.attempts import ACK, Lease, Leased, Settle
from tests.faults.parallel.laws import Parallel
from tests.faults.parallel.observed import as_told

PLAIN = Parallel("plain", "topic", 10.0, 5)


def id_of(offset: int, run: int) -> str:
    return f"{offset}-1.0.{run}.1.abcdef"


def lease(at: float, run: int, *offsets: int) -> Lease:
    messages = tuple(Leased(each, f"m{each}", id_of(each, run)) for each in offsets)
    return Lease(request="pull", started=at, ended=at, outcome=Outcome.DONE, subscription="plain", messages=messages)


def ack(at: float, *ids: str) -> Settle:
    return Settle(
        request="ack", started=at, ended=at, outcome=Outcome.DONE, subscription="plain", verb=ACK, ids=ids
    )  # fmt: skip


def told(sub: Parallel, *attempts: Attempt) -> list[tuple[Outcome, tuple[str, ...]]]:
    return [(each.outcome, each.ids) for each in as_told([sub], attempts) if isinstance(each, Settle)]


def test_an_ok_after_another_process_may_have_taken_over_says_nothing() -> None:
    found = told(PLAIN, lease(1, 1, 0), lease(5, 2, 1), ack(6, id_of(0, 1), id_of(1, 2)))

    assert found == [(Outcome.DONE, (id_of(1, 2),)), (Outcome.UNKNOWN, (id_of(0, 1),))]


@pytest.mark.parametrize(
    "attempts",
    [(lease(1, 1, 0), ack(2, id_of(0, 1))), (lease(1, 1, 0), lease(3, 1, 2), ack(2, id_of(0, 1)), lease(5, 2, 1))],
    ids=["nobody took over", "it gave messages later"],
)
def test_an_ok_of_a_process_that_was_there_says_that_it_is_done(attempts: tuple[Attempt, ...]) -> None:
    assert told(PLAIN, *attempts) == [(Outcome.DONE, (id_of(0, 1),))]


def test_with_exactly_once_delivery_every_ok_says_that_it_is_done() -> None:
    once = PLAIN._replace(exactly_once=True)

    assert told(once, lease(1, 1, 0), lease(5, 2, 1), ack(6, id_of(0, 1))) == [(Outcome.DONE, (id_of(0, 1),))]
