"""The laws of a parallel subscription, on handwritten histories: violations and excused cases."""

import pytest

from simulation.histories.attempts import (
    ACK,
    EXTEND,
    NACK,
    Attempt,
    Held,
    Lease,
    Leased,
    Letter,
    Outcome,
    Settle,
    offset_of,
)
from simulation.histories.parallel_laws import Parallel, ParallelEnding, TakeOvers, violations
from simulation.histories.payload import ordering_key
from tests.faults.parallel.google import as_told

PLAIN = Parallel("s", "t", deadline=10, most_attempts=5)
ONCE = PLAIN._replace(exactly_once=True)
KEYED = PLAIN._replace(ordered=True)


def ack_id(offset: int, hand_out: int = 1, attempt: int = 1, run: int = 1) -> str:
    return f"projects/P/subscriptions/s:{offset}-{attempt}.0.{run}.{hand_out}.abcdef"


def pull(start: float, *ids: str, end: float | None = None, name: str = "a", stream: str = "") -> Lease:
    """Return a pull, or a stream's response, of messages with one name, or with those in `name`."""
    names = name.split() if " " in name else [name] * len(ids)
    messages = tuple(Leased(offset_of(each), of_it, each) for each, of_it in zip(ids, names, strict=True))
    ended = start + 0.1 if end is None else end
    return Lease(
        request=f"pull-{start}", started=start, ended=ended, outcome=Outcome.DONE, subscription="s", messages=messages,
        stream=stream,
    )  # fmt: skip


def settle(
    start: float, verb: str, *ids: str, outcome: Outcome = Outcome.DONE, late: tuple[str, ...] = (), seconds: float = 0
) -> Settle:
    return Settle(
        request=f"{verb}-{start}", started=start, ended=start + 0.1, outcome=outcome,
        subscription="s", verb=verb, ids=ids, late=late, seconds=seconds,
    )  # fmt: skip


def find_violations(
    attempts: list[Attempt], kind: Parallel = PLAIN, held: tuple[str, ...] = ("a",), letters: tuple[Letter, ...] = (),
    floor: int | None = None,
) -> list[str]:  # fmt: skip
    topic = [Held(number, name) for number, name in enumerate(held)]
    ending = ParallelEnding(letters, {"s": len(topic) if floor is None else floor})
    return list(violations(kind, topic, attempts, ending))


FIRST, SECOND = ack_id(0), ack_id(0, hand_out=2)
TAKEN_OVER = ack_id(0, run=2)  # an ack id of the owner after a takeover
NEXT = ack_id(1, run=2)
FAILED = ack_id(0, hand_out=2, attempt=2)
LETTER, OTHER = Letter("s", 0, "a"), Letter("s", 1, "a")
_NAMES = [f"m{number}" for number in range(100)]
ONE, TWO = next((a, b) for a in _NAMES for b in _NAMES if a < b and ordering_key(a) == ordering_key(b))
LAST = ack_id(1, hand_out=2)
IN_ORDER = {"kind": KEYED, "held": (ONE, TWO)}
BOTH = f"{ONE} {TWO}"
BEHIND, AGAIN = ack_id(1), ack_id(0, hand_out=3, attempt=2)
TOGETHER = pull(0, FIRST, BEHIND, name=BOTH)


@pytest.mark.parametrize(("attempts", "more"), [
    ([pull(0, FIRST), settle(1, ACK, FIRST)], {}),
    ([pull(0, FIRST), settle(1, ACK, FIRST, outcome=Outcome.UNKNOWN), pull(2, TAKEN_OVER)], {}),
    ([pull(0, FIRST), settle(11, ACK, FIRST, late=(FIRST,)), pull(12, FAILED), settle(13, ACK, FAILED)], {}),
    ([pull(0, FIRST), pull(1, TAKEN_OVER), settle(2, ACK, TAKEN_OVER)], {}),
    ([pull(0, FIRST), settle(15, ACK, FIRST), pull(16, NEXT)], {"held": ("a", "a"), "letters": (OTHER,)}),
    ([pull(0, FIRST), settle(1, NACK, FIRST), pull(1.05, FAILED), settle(2, ACK, FAILED)], {"kind": ONCE}),
    ([pull(0, FIRST), settle(1, EXTEND, FIRST, seconds=1), pull(2.2, FAILED), settle(3, ACK, FAILED)], {}),
    ([pull(0, FIRST), settle(1, EXTEND, FIRST, seconds=60), settle(40, ACK, FIRST)], {}),
    ([pull(0, FIRST), settle(1, ACK, FIRST), settle(2, ACK, FIRST), settle(90, ACK, FIRST)], {}),
    ([pull(0, FIRST)], {"letters": (LETTER,)}),
    ([pull(0, FIRST), settle(0.2, NACK, FIRST), pull(1, TAKEN_OVER), settle(2, ACK, TAKEN_OVER)], {}),
    ([pull(0, FIRST, name=ONE), settle(0.5, ACK, FIRST), pull(1, LAST, name=TWO), settle(2, ACK, LAST)], IN_ORDER),
    ([TOGETHER, settle(0.5, ACK, BEHIND), settle(1, ACK, FIRST)], IN_ORDER),
    ([TOGETHER, settle(0.5, ACK, BEHIND), settle(1, NACK, FIRST), pull(2, AGAIN, LAST, name=BOTH),
      settle(3, ACK, AGAIN, LAST)], IN_ORDER),
    ([TOGETHER, settle(0.5, ACK, BEHIND), pull(1, TAKEN_OVER, NEXT, name=BOTH), settle(2, ACK, TAKEN_OVER, NEXT)],
     IN_ORDER),
    ([TOGETHER, settle(0.5, ACK, BEHIND), settle(1, ACK, FIRST), pull(2, NEXT, name=TWO), settle(3, ACK, NEXT)],
     IN_ORDER),
    ([TOGETHER, settle(0.5, ACK, FIRST, BEHIND, outcome=Outcome.UNKNOWN), pull(11, AGAIN, name=ONE),
      settle(12, ACK, AGAIN)], IN_ORDER),
    ([pull(0, FIRST, name=ONE, stream="x"), settle(1, NACK, FIRST),
      pull(2, AGAIN, BEHIND, name=BOTH, stream="x"), settle(3, ACK, AGAIN), settle(4, ACK, BEHIND)], IN_ORDER),
    ([TOGETHER, settle(0.5, NACK, FIRST), settle(0.7, ACK, BEHIND, late=(BEHIND,)),
      pull(1, AGAIN, LAST, name=BOTH), settle(2, ACK, AGAIN, LAST)], IN_ORDER),
    ([pull(0, FIRST, name=ONE, stream="x"), pull(1, BEHIND, name=TWO, stream="x"), settle(2, ACK, FIRST, BEHIND)],
     IN_ORDER),
    ([], {"kind": PLAIN._replace(passes_over="a"), "held": ("a1", "a2")}),
], ids=[
    "an acknowledgement", "an acknowledgement without an answer that did not happen",
    "a late one, and the next delivery", "a lease that a restart forgot",
    "a lease that goes on for a while after a restart", "a nack", "a lease that was cut", "one that was extended",
    "acknowledged again, whenever", "put aside", "a nack over a restart, which counts nothing",
    "messages of a key, one after the other", "together, acknowledged in any order",
    "held, and taken back", "held, and forgotten", "held, and perhaps forgotten before the first one was acknowledged",
    "stored for the second alone", "again to the same stream",
    "together, and both again as the first one failed", "to one stream, the second while it has the first",
    "what its filter passes over",
])  # fmt: skip
def test_who_keeps_the_laws_is_not_accused(attempts: list[Attempt], more: dict[str, object]) -> None:
    assert find_violations(attempts, **more) == []  # type: ignore[arg-type]


LAWS = ("came back", "filter", "forgotten", "given twice", "late", "counted down", "out of order", "left out")


@pytest.mark.parametrize(("attempts", "more", "law"), [
    ([pull(0, FIRST), settle(1, ACK, FIRST), pull(2, TAKEN_OVER)], {}, "came back"),
    ([pull(0, FIRST)], {}, "forgotten"),
    ([pull(0, FIRST), settle(1, ACK, FIRST)], {"kind": PLAIN._replace(passes_over="a")}, "filter"),
    ([pull(0, FIRST), settle(1, ACK, FIRST)], {"floor": 0}, "forgotten"),
    ([pull(0, FIRST)], {"letters": (LETTER, LETTER)}, "forgotten"),
    ([pull(0, FIRST, name="b"), settle(1, ACK, FIRST)], {}, "forgotten"),
    ([pull(0, FIRST), pull(1, SECOND), settle(2, ACK, SECOND)], {}, "given twice"),
    ([pull(0, FIRST), pull(1, TAKEN_OVER), settle(2, ACK, TAKEN_OVER)], {"kind": ONCE}, "given twice"),
    ([pull(0, FIRST), settle(1, EXTEND, FIRST, seconds=60), pull(30, SECOND), settle(31, ACK, SECOND)], {},
     "given twice"),
    ([pull(0, FIRST), settle(11, ACK, FIRST)], {}, "late"),
    ([pull(0, FIRST), pull(20, FAILED), settle(21, ACK, FIRST)], {}, "late"),
    ([pull(0, FIRST), settle(1, NACK, FIRST), pull(2, SECOND), settle(3, ACK, SECOND)], {}, "counted down"),
    ([pull(0, ack_id(0, attempt=6)), settle(1, ACK, ack_id(0, attempt=6))], {}, "counted down"),
    ([pull(0, FIRST), pull(5, NEXT), settle(6, ACK, FIRST), settle(16, ACK, NEXT)], {"held": ("a", "a")}, "late"),
    ([pull(0, FIRST, name=ONE), pull(1, LAST, name=TWO), settle(1.5, ACK, FIRST), settle(2, ACK, LAST)],
     IN_ORDER, "out of order"),
    ([pull(0, FIRST, name=ONE), settle(0.5, ACK, FIRST, outcome=Outcome.UNKNOWN), pull(2, LAST, name=TWO),
      pull(3, TAKEN_OVER, name=ONE), settle(4, ACK, TAKEN_OVER, LAST)], IN_ORDER, "out of order"),
    ([pull(0, BEHIND, FIRST, name=f"{TWO} {ONE}"), settle(1, ACK, FIRST, BEHIND)], IN_ORDER, "out of order"),
    ([pull(0, FIRST, name=ONE, stream="x"), pull(1, BEHIND, name=TWO, stream="y"), settle(2, ACK, FIRST, BEHIND)],
     IN_ORDER, "out of order"),
    ([TOGETHER, settle(0.5, NACK, FIRST), settle(0.7, ACK, BEHIND), pull(1, AGAIN, name=ONE), settle(2, ACK, AGAIN)],
     IN_ORDER, "late left out"),
    ([TOGETHER, settle(0.5, NACK, FIRST), pull(1, AGAIN, name=ONE), settle(2, ACK, BEHIND), settle(3, ACK, AGAIN)],
     IN_ORDER, "late left out"),
    ([pull(0, FIRST, BEHIND, name=BOTH), pull(1, LAST, name=TWO), settle(2, ACK, FIRST, LAST)],
     IN_ORDER, "given twice out of order"),
    ([TOGETHER, settle(0.5, ACK, FIRST), settle(1, ACK, BEHIND), pull(2, NEXT, name=TWO)], IN_ORDER, "came back"),
    ([TOGETHER, settle(0.5, ACK, BEHIND), settle(1, ACK, FIRST), pull(20, LAST, name=TWO)], IN_ORDER, "came back"),
    ([pull(0, FIRST, name=ONE, stream="x"), settle(1, NACK, FIRST), pull(2, AGAIN, BEHIND, name=BOTH, stream="x"),
      settle(3, ACK, AGAIN, BEHIND), pull(20, LAST, name=TWO)], IN_ORDER, "came back"),
    ([TOGETHER, settle(0.5, ACK, BEHIND), settle(1, NACK, FIRST), pull(2, AGAIN, name=ONE), settle(3, ACK, AGAIN)],
     IN_ORDER, "left out"),
])  # fmt: skip
def test_who_breaks_a_law_is_accused_by_it(attempts: list[Attempt], more: dict[str, object], law: str) -> None:
    accused = find_violations(attempts, **more)  # type: ignore[arg-type]

    assert {each.partition(":")[0] for each in accused} == {each for each in LAWS if each in law}


def test_a_run_may_have_ended_after_its_last_pull_when_there_was_another() -> None:
    given = [pull(0, ack_id(0)), pull(5, ack_id(1)), pull(8, ack_id(2, run=4)), pull(20, ack_id(3, run=4))]

    found = TakeOvers(PLAIN, given)

    assert (len(found), [found.may_have_ended(1, moment) for moment in (4, 6)]) == (1, [False, True])
    assert not found.may_have_ended(4, 30)


@pytest.mark.parametrize(("attempts", "unknown"), [
    ([pull(1, FIRST), settle(2, ACK, FIRST)], []),
    ([pull(1, FIRST), pull(3, SECOND), settle(2, ACK, FIRST), pull(5, NEXT)], []),
    ([pull(1, FIRST), pull(5, NEXT), settle(6, ACK, FIRST, NEXT)], [FIRST]),
], ids=["nobody took over", "it gave messages later", "another may have taken over"])  # fmt: skip
def test_an_ok_means_done_unless_another_process_may_take_over(attempts: list[Attempt], unknown: list[str]) -> None:
    said = [each for each in as_told([PLAIN], attempts) if isinstance(each, Settle)]

    assert [id_ for each in said if each.outcome is Outcome.UNKNOWN for id_ in each.ids] == unknown
    assert as_told([ONCE], attempts) == attempts  # with exactly-once delivery it always says so
