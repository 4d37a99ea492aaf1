"""The laws over a parallel subscription, by histories written by hand: who is accused, and what is excused."""

import pytest

from tests.faults.attempts import Attempt, Held, Outcome
from tests.faults.parallel.attempts import ACK, EXTEND, NACK, Lease, Leased, Letter, Settle
from tests.faults.parallel.laws import Parallel, ParallelEnding, TakeOvers, violations
from tests.faults.payload import ordering_key

PLAIN = Parallel("s", "t", deadline=10, most_attempts=5)
ONCE = PLAIN._replace(exactly_once=True)
KEYED = PLAIN._replace(ordered=True)


def ack_id(offset: int, hand_out: int = 1, attempt: int = 1, run: int = 1) -> str:
    return f"projects/P/subscriptions/s:{offset}-{attempt}.0.{run}.{hand_out}.abcdef"


def pull(start: float, *ids: str, end: float | None = None, name: str = "a") -> Lease:
    messages = tuple(Leased(int(each.rpartition(":")[2].partition("-")[0]), name, each) for each in ids)
    ended = start + 0.1 if end is None else end
    return Lease(
        request=f"pull-{start}", started=start, ended=ended, outcome=Outcome.DONE, subscription="s", messages=messages
    )


def settle(
    start: float, verb: str, *ids: str, outcome: Outcome = Outcome.DONE, late: tuple[str, ...] = (), seconds: float = 0
) -> Settle:
    return Settle(
        request=f"{verb}-{start}", started=start, ended=start + 0.1, outcome=outcome,
        subscription="s", verb=verb, ids=ids, late=late, seconds=seconds,
    )  # fmt: skip


def found(
    attempts: list[Attempt],
    kind: Parallel = PLAIN,
    held: tuple[str, ...] = ("a",),
    letters: tuple[Letter, ...] = (),
    floor: int | None = None,
) -> list[str]:
    topic = [Held(number, name) for number, name in enumerate(held)]
    ending = ParallelEnding(letters, {"s": len(topic) if floor is None else floor})
    return list(violations(kind, topic, attempts, ending))


FIRST, SECOND = ack_id(0), ack_id(0, hand_out=2)
OVER = ack_id(0, run=2)
"""Given by who took the subscription over."""
NEXT = ack_id(1, run=2)
FAILED = ack_id(0, hand_out=2, attempt=2)
LETTER, OTHER = Letter("s", 0, "a"), Letter("s", 1, "a")


@pytest.mark.parametrize(
    ("attempts", "more"),
    [
        ([pull(0, FIRST), settle(1, ACK, FIRST)], {}),
        ([pull(0, FIRST), settle(1, ACK, FIRST, outcome=Outcome.UNKNOWN), pull(2, OVER)], {}),
        ([pull(0, FIRST), settle(11, ACK, FIRST, late=(FIRST,)), pull(12, FAILED), settle(13, ACK, FAILED)], {}),
        ([pull(0, FIRST), pull(1, OVER), settle(2, ACK, OVER)], {}),
        ([pull(0, FIRST), settle(15, ACK, FIRST), pull(16, NEXT)], {"held": ("a", "a"), "letters": (OTHER,)}),
        ([pull(0, FIRST), settle(1, NACK, FIRST), pull(1.05, FAILED), settle(2, ACK, FAILED)], {"kind": ONCE}),
        ([pull(0, FIRST), settle(1, EXTEND, FIRST, seconds=1), pull(2.2, FAILED), settle(3, ACK, FAILED)], {}),
        ([pull(0, FIRST), settle(1, EXTEND, FIRST, seconds=60), settle(40, ACK, FIRST)], {}),
        ([pull(0, FIRST), settle(1, ACK, FIRST), settle(2, ACK, FIRST), settle(90, ACK, FIRST)], {}),
        ([pull(0, FIRST)], {"letters": (LETTER,)}),
        ([pull(0, FIRST), settle(0.2, NACK, FIRST), pull(1, OVER), settle(2, ACK, OVER)], {}),
    ],
    ids=[
        "an acknowledgement",
        "an acknowledgement without an answer that did not happen",
        "a late one, and the next delivery",
        "a lease that a restart forgot",
        "a lease that goes on for a while after a restart",
        "a nack",
        "a lease that was cut",
        "one that was extended",
        "acknowledged again, whenever",
        "put aside",
        "a nack over a restart, which counts nothing",
    ],
)
def test_who_keeps_the_laws_is_not_accused(attempts: list[Attempt], more: dict[str, object]) -> None:
    assert found(attempts, **more) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("attempts", "more", "law"),
    [
        ([pull(0, FIRST), settle(1, ACK, FIRST), pull(2, OVER)], {}, "came back"),
        ([pull(0, FIRST)], {}, "forgotten"),
        ([pull(0, FIRST), settle(1, ACK, FIRST)], {"floor": 0}, "forgotten"),
        ([pull(0, FIRST)], {"letters": (LETTER, LETTER)}, "forgotten"),
        ([pull(0, FIRST, name="b"), settle(1, ACK, FIRST)], {}, "forgotten"),
        ([pull(0, FIRST), pull(1, SECOND), settle(2, ACK, SECOND)], {}, "given twice"),
        ([pull(0, FIRST), pull(1, OVER), settle(2, ACK, OVER)], {"kind": ONCE}, "given twice"),
        (
            [pull(0, FIRST), settle(1, EXTEND, FIRST, seconds=60), pull(30, SECOND), settle(31, ACK, SECOND)],
            {},
            "given twice",
        ),
        ([pull(0, FIRST), settle(11, ACK, FIRST)], {}, "late"),
        ([pull(0, FIRST), pull(20, FAILED), settle(21, ACK, FIRST)], {}, "late"),
        ([pull(0, FIRST), settle(1, NACK, FIRST), pull(2, SECOND), settle(3, ACK, SECOND)], {}, "counted down"),
        ([pull(0, ack_id(0, attempt=6)), settle(1, ACK, ack_id(0, attempt=6))], {}, "counted down"),
    ],
)
def test_who_breaks_a_law_is_accused_by_it(attempts: list[Attempt], more: dict[str, object], law: str) -> None:
    accused = found(attempts, **more)  # type: ignore[arg-type]

    assert any(each.startswith(f"{law}: ") for each in accused), accused


def two_of_a_key() -> tuple[str, str]:
    names = [f"m{number}" for number in range(100)]
    return next((one, two) for one in names for two in names if one < two and ordering_key(one) == ordering_key(two))


def of_a_key(*, in_order: bool) -> list[str]:
    one, two = two_of_a_key()
    first, second = pull(0, ack_id(0), name=one), pull(1, ack_id(1, 2), name=two)
    done, then = settle(0.5 if in_order else 1.5, ACK, ack_id(0)), settle(2, ACK, ack_id(1, 2))
    return found([first, done, second, then], KEYED, held=(one, two))


def test_messages_of_a_key_are_given_one_after_the_other() -> None:
    assert of_a_key(in_order=True) == []
    assert [each.partition(":")[0] for each in of_a_key(in_order=False)] == ["out of order"]


def test_a_message_of_a_key_does_not_come_again_after_the_next() -> None:
    one, two = two_of_a_key()
    attempts: list[Attempt] = [
        pull(0, ack_id(0), name=one),
        settle(0.5, ACK, ack_id(0), outcome=Outcome.UNKNOWN),
        pull(2, ack_id(1, 2), name=two),
        pull(3, ack_id(0, 3, run=2), name=one),
        settle(4, ACK, ack_id(0, 3, run=2), ack_id(1, 2)),
    ]

    accused = found(attempts, KEYED, held=(one, two))

    assert [each.partition(":")[0] for each in accused] == ["out of order"]


def test_a_run_may_have_ended_after_its_last_pull_when_there_was_another() -> None:
    given = [pull(0, ack_id(0)), pull(5, ack_id(1)), pull(8, ack_id(2, run=4)), pull(20, ack_id(3, run=4))]

    found = TakeOvers(PLAIN, given)

    assert len(found) == 1
    assert [found.may_have_ended(1, moment) for moment in (4, 6)] == [False, True]
    assert not found.may_have_ended(4, 30)


def test_who_took_over_is_held_to_the_deadlines_of_what_it_gave() -> None:
    late = [pull(0, FIRST), pull(5, NEXT), settle(6, ACK, FIRST), settle(16, ACK, NEXT)]

    assert [each.partition(":")[0] for each in found(late, held=("a", "a"))] == ["late"]
