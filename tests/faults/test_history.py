"""The checker accepts every history that keeps the laws, and accuses every one that breaks one."""

from collections import Counter
from dataclasses import replace

import pytest

from simulation.histories import payload
from simulation.histories.attempts import Ack, Attempt, Ending, Facts, Held, Outcome, Publish, Pull, Seek
from simulation.histories.history import History
from tests.faults.http_client import Traffic

INFINITY = float("inf")


def make_topic(*names: str) -> list[Held]:
    return [Held(number, name) for number, name in enumerate(names)]


def facts(request: str, start: float, end: float | None, outcome: Outcome = Outcome.DONE) -> Facts:
    return Facts(request=request, started=start, ended=start + 1 if end is None else end, outcome=outcome)


def publish(names: str, ids: str, outcome: Outcome = Outcome.DONE, at: tuple[float, float] = (0, 1)) -> Publish:
    numbers = tuple(int(each) for each in ids.split())
    return Publish(**facts("p1", *at, outcome), topic="t", names=tuple(names.split()), ids=numbers)


def pull(request: str, start: float, *messages: Held, end: float | None = None) -> Pull:
    return Pull(**facts(request, start, end), subscription="s", messages=messages)


def ack(request: str, start: float, last: int, outcome: Outcome = Outcome.DONE, end: float | None = None) -> Ack:
    return Ack(**facts(request, start, end, outcome), subscription="s", last=last)


def seek(request: str, start: float, offset: int, outcome: Outcome = Outcome.DONE) -> Seek:
    return Seek(**facts(request, start, None, outcome), subscription="s", offset=offset)


def find_violations(attempts: list[Attempt], topic: list[Held], cursor: int = 0) -> list[str]:
    return History({"s": "t"}, attempts).violations(Ending({"t": topic}, {"s": cursor}))


ABC = publish("a b c", "0 1 2")
TOPIC = A, B, C = make_topic("a", "b", "c")
UNANSWERED_PUBLISH = publish("a b c", "", Outcome.UNKNOWN)
LATER_PUBLISH = replace(publish("b", "0", at=(2, 3)), request="p2")
FIRST_PULL = pull("c0", 1.2, A, B, C, end=1.8)
MOVES = [replace(ack("a1", 2, 1), ended=6), replace(seek("k1", 3, 0), ended=5), pull("c2", 2, A, B, C, end=6)]
"""The first request may be answered last."""
LATE_REFUSALS = [replace(ack("a1", 2, 1, Outcome.REFUSED), ended=6), replace(seek("k1", 3, 0), ended=5)]


TOPIC_VIOLATIONS = {
    "lost at the end": ([ABC], make_topic("a", "b"), "law 1: message c of request p1, acknowledged as id 2, is lost"),
    "lost between": ([ABC], make_topic("a", "c"), "law 1: message b of request p1, acknowledged as id 1, is lost"),
    "invented": ([ABC], make_topic("x", "a", "b", "c"), "law 2: topic t holds x as id 0, which nobody published"),
    "stored twice": ([ABC], make_topic("a", "b", "c", "b"), "law 1: message b of request p1 is stored as ids 1 and 3"),
    "out of order": (
        [ABC], make_topic("a", "c", "b"), "law 2: request p1 is not stored in its order: after 0 comes 2",
    ),
    "elsewhere": (
        [ABC], make_topic("b", "c"),
        "law 1: message b of request p1, acknowledged as id 1, is stored as id 0 (and 1 more)",
    ),
    "a gap": ([ABC], [A, B, Held(3, "c")], "law 2: topic t has id 3 (c) where id 2 should be"),
    "too few ids": (
        [publish("a b c", "0 1")], TOPIC, "law 1: request p1 of 3 messages was answered 2 ids",
    ),
    "no ids": ([publish("a b c", "")], TOPIC, "law 1: request p1 of 3 messages was answered 0 ids"),
    "scattered ids": (
        [publish("a b c", "0 2 1")], TOPIC,
        "law 2: request p1 was answered ids that do not follow each other: after 0 comes 2",
    ),
    "half, without an answer": (
        [UNANSWERED_PUBLISH], make_topic("a", "b"), "law 2: 2 of 3 messages of request p1 are stored; c is not",
    ),
    "refused and stored": (
        [publish("a b", "", Outcome.REFUSED)], make_topic("a", "b"),
        "law 2: request p1 was refused, yet its message a is stored as id 0 (and 1 more)",
    ),
    "overtaken by a later request": (
        [publish("a", "1", at=(0, 1)), LATER_PUBLISH], make_topic("b", "a"),
        "law 2: request p2 to topic t was answered id 0, but request p1 had been answered id 1 before it began",
    ),
    "changed after it was delivered": (
        [publish("a", "", Outcome.UNKNOWN), pull("c1", 0, A), LATER_PUBLISH], make_topic("b"),
        "law 2: pull c1 was given a as id 0, where b is",
    ),
    "a pull with a gap": (
        [ABC, pull("c1", 2, A, C)], TOPIC,
        "law 3: pull c1 was given ids that do not follow each other: after 0 comes 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("attempts", "topic", "sentence"), TOPIC_VIOLATIONS.values(), ids=TOPIC_VIOLATIONS)
def test_a_topic_that_is_not_as_answered_is_told(attempts: list[Attempt], topic: list[Held], sentence: str) -> None:
    assert sentence in find_violations(attempts, topic)


@pytest.mark.parametrize(("attempts", "topic"), [
    ([UNANSWERED_PUBLISH], []),
    ([UNANSWERED_PUBLISH], TOPIC),
    ([publish("a", "1", at=(0, 3)), replace(LATER_PUBLISH, started=1, ended=2)], make_topic("b", "a")),
], ids=["unanswered and absent", "unanswered and stored", "any order at the same time"])  # fmt: skip
def test_a_topic_as_it_may_be_is_not_complained_about(attempts: list[Attempt], topic: list[Held]) -> None:
    assert find_violations(attempts, topic) == []


SUB = " (subscription s)"
CURSOR_VIOLATIONS = {
    "acknowledged, and comes back": (
        [FIRST_PULL, ack("a1", 2, 1), pull("c1", 4, B)], 1,
        "law 3: pull c1 began at message 1 (b), which had been acknowledged or passed;"
        " it could only stand at 2 (by a1)" + SUB,
    ),
    "skipped": (
        [pull("c1", 2, B)], 1,
        "law 3: pull c1 began at message 1 (b) and so skipped messages nobody had acknowledged;"
        " it could only stand at 0 (by its creation)" + SUB,
    ),
    "moved by itself": (
        [], 2, "law 3: the cursor of subscription s ended at 2; it could only stand at 0 (by its creation)",
    ),
    "nothing found": (
        [FIRST_PULL, ack("a1", 2, 0), pull("c1", 4)], 1,
        "law 3: pull c1 was given nothing while messages were there; it could only stand at 1 (by a1)" + SUB,
    ),
    "acknowledged after an answered seek": (
        [FIRST_PULL, seek("k1", 2, 0), ack("a1", 4, 1), pull("c1", 6, C)], 2,
        "law 3: a1 acknowledged message 1, which was not handed out since the last seek, and was answered as if it had"
        " happened; it could only stand at 0 (by k1)" + SUB,
    ),
    "acknowledged and never pulled": (
        [pull("c1", 2, A, B), ack("a1", 4, 2)], 3,
        "law 3: a1 acknowledged message 2, which was not handed out since the last seek, and was answered as if it had"
        " happened; it could only stand at 0 (by its creation)" + SUB,
    ),
    "brought back by a refused seek": (
        [FIRST_PULL, ack("a1", 2, 2), seek("k1", 4, 1, Outcome.REFUSED), pull("c1", 6, B, C)], 1, "",
    ),
    "back and forth by one acknowledgement": (
        [FIRST_PULL, ack("a1", 2, 1, Outcome.UNKNOWN), pull("c1", 4, C), pull("c2", 6, A)], 0, "",
    ),
    "lost under an answered acknowledgement": (
        [FIRST_PULL, ack("a1", 2, 0, Outcome.UNKNOWN, end=6), ack("a2", 3, 1, end=4), pull("c2", 7, A)], 0, "",
    ),
    "moved by an unanswered acknowledgement of what was never pulled": ([ack("a1", 4, 2, Outcome.UNKNOWN)], 3, ""),
    "told once": ([FIRST_PULL, ack("a1", 2, 2), *(pull(f"c{time}", time, A) for time in (4, 6, 8))], 0, ""),
}  # fmt: skip


@pytest.mark.parametrize(("uses", "cursor", "sentence"), CURSOR_VIOLATIONS.values(), ids=CURSOR_VIOLATIONS)
def test_a_cursor_that_moves_as_nobody_moved_it_is_told_once(uses: list[Attempt], cursor: int, sentence: str) -> None:
    [told] = find_violations([ABC, *uses], TOPIC, cursor)

    assert told == sentence or not sentence


CURSOR_POSITIONS = {
    "acknowledged in part": ([pull("c1", 2, A, B), ack("a1", 4, 1), pull("c2", 6, C)], 2),
    "nothing more, or not yet": ([pull("c0", -3), FIRST_PULL, ack("a1", 2, 2), pull("c1", 4)], 3),
    "brought back by a seek": ([FIRST_PULL, ack("a1", 2, 2), seek("k1", 4, 1), pull("c1", 6, B, C)], 1),
    "an unanswered acknowledgement that did not happen": ([FIRST_PULL, ack("a1", 2, 1, Outcome.UNKNOWN)], 0),
    "an unanswered acknowledgement that happened": ([FIRST_PULL, ack("a1", 2, 1, Outcome.UNKNOWN)], 2),
    "an unanswered acknowledgement that may still happen": (
        [FIRST_PULL, ack("a1", 2, 2, Outcome.UNKNOWN, end=INFINITY)], 3,
    ),
    "an acknowledgement seen before it was stored, and lost": (
        [FIRST_PULL, ack("a1", 2, 1, Outcome.UNKNOWN, end=6), pull("c1", 3, C, end=4), pull("c2", 7, A)], 0,
    ),
    "acknowledged after an answered seek, and pulled again": (
        [FIRST_PULL, seek("k1", 2, 0), ack("a1", 4, 1), pull("c1", 6, C), pull("c2", 3.2, A, B, end=3.8)], 2,
    ),
    "acknowledged already": ([FIRST_PULL, seek("k1", 2, 2), ack("a1", 4, 1)], 2),
    "handed out without an answer": (
        [replace(pull("c1", 2), outcome=Outcome.UNKNOWN, ended=INFINITY), ack("a1", 4, 2)], 3,
    ),
    "read before an acknowledgement and answered late": (
        [pull("c1", 2, A, B, C, end=9), ack("a1", 3, 1, end=4), pull("c2", 5, C, end=6)], 2,
    ),
    "the first of two moves at the same time": ([FIRST_PULL, *MOVES, pull("c1", 7, A)], 0),
    "the last of two moves at the same time": ([FIRST_PULL, *MOVES, pull("c1", 7, C)], 2),
    "refused after a later move was answered": ([FIRST_PULL, *LATE_REFUSALS, pull("c1", 7, A)], 0),
}  # fmt: skip


@pytest.mark.parametrize(("uses", "cursor"), CURSOR_POSITIONS.values(), ids=CURSOR_POSITIONS)
def test_a_cursor_that_stands_where_it_may_is_not_complained_about(uses: list[Attempt], cursor: int) -> None:
    assert find_violations([ABC, *uses], TOPIC, cursor) == []


@pytest.mark.parametrize(("moves", "given", "cursor"), [(MOVES, B, 1), (LATE_REFUSALS, C, 2)])
def test_of_moves_at_the_same_time_none_is_made_up(moves: list[Attempt], given: Held, cursor: int) -> None:
    assert find_violations([ABC, FIRST_PULL, *moves, pull("c1", 7, given)], TOPIC, cursor) != []


@pytest.mark.parametrize(("sought_at", "violations"), [(90.0, 1), (2.0, 0)], ids=["shortly before", "long before"])
def test_old_acknowledgements_survive_a_restart_without_a_recent_seek(sought_at: float, violations: int) -> None:
    uses = [ABC, FIRST_PULL, seek("k1", sought_at, 0), pull("c1", 93, A, B, C), ack("a1", 96, 1)]
    history = History({"s": "t"}, uses, restarts=[95.0])

    assert len(history.violations(Ending({"t": TOPIC}, {"s": 2}))) == violations


def test_a_service_that_answers_no_pull_or_refuses_every_publish_is_told() -> None:
    pulls = [replace(pull(f"c{time}", time), outcome=Outcome.REFUSED) for time in range(6)]
    publishes = [replace(publish(f"m{time}", "", Outcome.REFUSED), request=f"p{time}") for time in range(6)]

    assert find_violations([*pulls, *publishes], []) == [
        "law 4: none of 6 publishes to topic t had success", "law 4: none of 6 pulls of subscription s had success",
    ]  # fmt: skip


def test_what_was_cut_off_by_a_kill_tells_nothing_of_a_service() -> None:
    assert find_violations([replace(pull(f"c{time}", time), outcome=Outcome.UNKNOWN) for time in range(9)], []) == []


@pytest.mark.parametrize(
    ("field", "value"), [("data", "aGk="), ("messageId", "8"), ("attributes", {"name": "p1-2/0"}), ("key", "")]
)
def test_a_message_that_was_altered_has_another_name(field: str, value: object) -> None:
    body = {**payload.message("p1-1/0"), "messageId": "7"} | {field: value}
    found = payload.read_lease({"ackId": "projects/P/subscriptions/S:7", "message": body})

    assert (found == (7, "p1-1/0")) is (field == "key")  # which no message of these has


def test_of_traffic_is_told_what_no_client_may_meet() -> None:
    refusals = Counter({"acks: 400 wrong ack": 3, "other requests: 500 Backend Error": 7})

    assert list(Traffic(refusals=refusals, dropped=2, without_retry_after=1).violations()) == [
        "2 requests were never answered, and nobody had killed the service",
        "1 errors of the 500s did not say when to try again",
        "7 times refused for no reason: other requests: 500 Backend Error",
    ]
