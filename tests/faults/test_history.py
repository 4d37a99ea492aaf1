"""The checker accuses no service that keeps the laws, and lets none off that breaks one."""

import io
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults.attempts import Ack, Attempt, Ending, Held, Outcome, Publish, Pull, Seek
from tests.faults.history import History
from tests.faults.model import Fault, Model

INFINITY = float("inf")
MODEL_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 5)),
        st.tuples(st.just("acknowledge"), st.integers(0, 12)),
        st.tuples(st.just("seek"), st.integers(0, 3)),
        st.tuples(st.just("read"), st.integers(1, 5)),
        st.tuples(st.just("answer")),
        st.tuples(st.just("sync")),
        st.tuples(st.just("fail")),
        st.tuples(st.just("kill"), st.booleans()),
    ),
    max_size=40,
)
SEEN_BY_NOBODY = 3
"""Seeks of the model go no further than the messages there are from the start."""


def held(*names: str) -> list[Held]:
    return [Held(number, name) for number, name in enumerate(names)]


def publish(names: str, ids: str, outcome: Outcome = Outcome.DONE, at: tuple[float, float] = (0, 1)) -> Publish:
    numbers = tuple(int(each) for each in ids.split())
    return Publish(
        request="p1", started=at[0], ended=at[1], outcome=outcome, topic="t", names=tuple(names.split()), ids=numbers
    )


def pull(request: str, start: float, *messages: Held, end: float | None = None) -> Pull:
    return Pull(
        request=request, started=start, ended=start + 1 if end is None else end, outcome=Outcome.DONE,
        subscription="s", messages=messages,
    )  # fmt: skip


def ack(request: str, start: float, last: int, outcome: Outcome = Outcome.DONE, end: float | None = None) -> Ack:
    return Ack(
        request=request, started=start, ended=start + 1 if end is None else end, outcome=outcome,
        subscription="s", last=last,
    )  # fmt: skip


def seek(request: str, start: float, offset: int, outcome: Outcome = Outcome.DONE) -> Seek:
    return Seek(
        request=request, started=start, ended=start + 1, outcome=outcome, subscription="s", offset=offset
    )  # fmt: skip


def found(attempts: list[Attempt], topic: list[Held], cursor: int = 0) -> list[str]:
    return History({"s": "t"}, attempts).violations(Ending({"t": topic}, {"s": cursor}))


ABC = publish("a b c", "0 1 2")
A, B, C = held("a", "b", "c")
GIVEN = pull("c0", 1.2, A, B, C, end=1.8)
"""What may be acknowledged after it."""


@settings(deadline=None)  # the machine may be busy with other tests
@given(MODEL_STEPS)
def test_a_service_that_keeps_the_laws_is_never_accused(steps: list[tuple[str, int]]) -> None:
    model = Model()
    model.publish(SEEN_BY_NOBODY)
    model.sync()

    for name, *arguments in steps:
        getattr(model, name)(*arguments)
    model.kill(stored=False)

    assert model.violations() == []


def used(fault: Fault | None) -> list[str]:
    """Do what shows each of the faults; the clients acknowledge also what they must not."""
    model = Model(fault)
    model.publish(4)
    model.sync()
    model.read(3)
    model.answer()
    model.publish(2)
    model.acknowledge(1)
    model.sync()
    model.publish(2)
    model.acknowledge(2)
    model.kill(stored=False)
    model.read(5)
    model.answer()
    model.seek(0)
    model.sync()
    model.acknowledge(2)
    model.sync()
    for _ in range(5):
        model.publish(1)
        model.sync()
        model.read(1)
        model.answer()
    model.acknowledge(6)
    model.sync()
    return model.violations()


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
def test_a_service_that_breaks_a_law_is_caught(fault: Fault) -> None:
    assert used(fault) != []


def test_the_same_use_of_a_service_that_keeps_the_laws_is_not_complained_about() -> None:
    assert used(None) == []


def test_a_history_that_keeps_the_laws_has_no_violations() -> None:
    assert found([ABC, pull("c1", 2, A, B), ack("a1", 4, 1), pull("c2", 6, C)], held("a", "b", "c"), 2) == []


@pytest.mark.parametrize(
    ("topic", "sentence"),
    [
        (held("a", "b"), "law 1: message c of request p1, acknowledged as id 2, is lost"),
        (held("a", "c"), "law 1: message b of request p1, acknowledged as id 1, is lost"),
        (held("x", "a", "b", "c"), "law 2: topic t holds x as id 0, which nobody published"),
        (held("a", "b", "c", "b"), "law 1: message b of request p1 is stored as ids 1 and 3"),
        (held("a", "c", "b"), "law 2: request p1 is not stored in its order: after 0 comes 2"),
        (held("b", "c"), "law 1: message b of request p1, acknowledged as id 1, is stored as id 0 (and 1 more)"),
        ([A, B, Held(3, "c")], "law 2: topic t has id 3 (c) where id 2 should be"),
    ],
)
def test_a_topic_that_is_not_as_answered_is_told(topic: list[Held], sentence: str) -> None:
    assert sentence in found([ABC], topic)


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        ("0 1", "law 1: request p1 of 3 messages was answered 2 ids"),
        ("", "law 1: request p1 of 3 messages was answered 0 ids"),
        ("0 2 1", "law 2: request p1 was answered ids that do not follow each other: after 0 comes 2"),
    ],
)
def test_an_answer_that_cannot_be_is_told(ids: str, sentence: str) -> None:
    assert sentence in found([publish("a b c", ids)], held("a", "b", "c"))


@pytest.mark.parametrize("topic", [[], held("a", "b", "c")])
def test_a_request_without_an_answer_may_be_there_or_not(topic: list[Held]) -> None:
    assert found([publish("a b c", "", Outcome.UNKNOWN)], topic) == []


def test_half_of_a_request_without_an_answer_is_told() -> None:
    assert found([publish("a b c", "", Outcome.UNKNOWN)], held("a", "b")) == [
        "law 2: 2 of 3 messages of request p1 are stored; c is not"
    ]


def test_a_refused_request_that_is_stored_is_told() -> None:
    assert found([publish("a b", "", Outcome.REFUSED)], held("a", "b")) == [
        "law 2: request p1 was refused, yet its message a is stored as id 0 (and 1 more)"
    ]


def test_a_request_overtaken_by_a_later_one_is_told() -> None:
    first, second = publish("a", "1", at=(0, 1)), replace(publish("b", "0", at=(2, 3)), request="p2")

    assert found([first, second], held("b", "a")) == [
        "law 2: request p2 to topic t was answered id 0, but request p1 had been answered id 1 before it began"
    ]


def test_requests_at_the_same_time_may_be_stored_in_any_order() -> None:
    first, second = publish("a", "1", at=(0, 3)), replace(publish("b", "0", at=(1, 2)), request="p2")

    assert found([first, second], held("b", "a")) == []


def test_a_message_that_changed_after_it_was_delivered_is_told() -> None:
    unanswered = publish("a", "", Outcome.UNKNOWN)
    other = replace(publish("b", "0", at=(2, 3)), request="p2")

    assert found([unanswered, pull("c1", 0, A), other], held("b")) == ["law 2: pull c1 was given a as id 0, where b is"]


def test_a_pull_with_a_gap_is_told() -> None:
    assert "law 3: pull c1 was given ids that do not follow each other: after 0 comes 2" in found(
        [ABC, pull("c1", 2, A, C)], held("a", "b", "c")
    )


def test_an_acknowledged_message_that_comes_back_is_told() -> None:
    assert found([ABC, GIVEN, ack("a1", 2, 1), pull("c1", 4, B)], held("a", "b", "c"), 1) == [
        "law 3: pull c1 began at message 1 (b), which had been acknowledged or passed;"
        " it could only stand at 2 (by a1) (subscription s)"
    ]


def test_a_skipped_message_is_told() -> None:
    assert found([ABC, pull("c1", 2, B)], held("a", "b", "c"), 1) == [
        "law 3: pull c1 began at message 1 (b) and so skipped messages nobody had acknowledged;"
        " it could only stand at 0 (by its creation) (subscription s)"
    ]


def test_a_cursor_that_moved_by_itself_is_told() -> None:
    assert found([ABC], held("a", "b", "c"), 2) == [
        "law 3: the cursor of subscription s ended at 2; it could only stand at 0 (by its creation)"
    ]


def test_a_pull_that_finds_nothing_while_messages_are_there_is_told() -> None:
    assert found([ABC, GIVEN, ack("a1", 2, 0), pull("c1", 4)], held("a", "b", "c"), 1) == [
        "law 3: pull c1 was given nothing while messages were there; it could only stand at 1 (by a1) (subscription s)"
    ]


def test_a_pull_may_find_nothing_when_all_is_acknowledged_or_not_yet_published() -> None:
    assert found([pull("c0", -3), ABC, GIVEN, ack("a1", 2, 2), pull("c1", 4)], held("a", "b", "c"), 3) == []


def test_a_seek_brings_acknowledged_messages_back() -> None:
    assert found([ABC, GIVEN, ack("a1", 2, 2), seek("k1", 4, 1), pull("c1", 6, B, C)], held("a", "b", "c"), 1) == []


def test_a_refused_seek_brings_nothing_back() -> None:
    uses = [ABC, GIVEN, ack("a1", 2, 2), seek("k1", 4, 1, Outcome.REFUSED), pull("c1", 6, B, C)]

    assert len(found(uses, held("a", "b", "c"), 1)) == 1


@pytest.mark.parametrize("cursor", [0, 2])
def test_an_acknowledgement_without_an_answer_may_have_happened_or_not(cursor: int) -> None:
    assert found([ABC, GIVEN, ack("a1", 2, 1, Outcome.UNKNOWN)], held("a", "b", "c"), cursor) == []


def test_an_acknowledgement_without_an_answer_happens_once_and_not_back_and_forth() -> None:
    uses = [ABC, GIVEN, ack("a1", 2, 1, Outcome.UNKNOWN), pull("c1", 4, C), pull("c2", 6, A)]

    assert len(found(uses, held("a", "b", "c"), 0)) == 1


def test_an_acknowledgement_seen_before_it_was_stored_may_be_lost_with_the_service() -> None:
    uses = [ABC, GIVEN, ack("a1", 2, 1, Outcome.UNKNOWN, end=6), pull("c1", 3, C, end=4), pull("c2", 7, A)]

    assert found(uses, held("a", "b", "c"), 0) == []


def test_what_an_answered_acknowledgement_stood_on_cannot_be_lost() -> None:
    uses = [ABC, GIVEN, ack("a1", 2, 0, Outcome.UNKNOWN, end=6), ack("a2", 3, 1, end=4), pull("c2", 7, A)]

    assert len(found(uses, held("a", "b", "c"), 0)) == 1


def test_of_moves_at_the_same_time_the_first_may_be_answered_last() -> None:
    moves = [replace(ack("a1", 2, 1), ended=6), replace(seek("k1", 3, 0), ended=5), pull("c2", 2, A, B, C, end=6)]

    assert found([ABC, GIVEN, *moves, pull("c1", 7, A)], held("a", "b", "c"), 0) == []
    assert found([ABC, GIVEN, *moves, pull("c1", 7, C)], held("a", "b", "c"), 2) == []
    assert found([ABC, GIVEN, *moves, pull("c1", 7, B)], held("a", "b", "c"), 1) != []


def test_an_acknowledgement_refused_after_a_later_move_was_answered_did_not_happen() -> None:
    moves = [replace(ack("a1", 2, 1, Outcome.REFUSED), ended=6), replace(seek("k1", 3, 0), ended=5)]

    assert found([ABC, GIVEN, *moves, pull("c1", 7, A)], held("a", "b", "c"), 0) == []
    assert found([ABC, GIVEN, *moves, pull("c1", 7, C)], held("a", "b", "c"), 2) != []


def test_an_old_acknowledgement_after_an_answered_seek_is_told() -> None:
    uses = [ABC, GIVEN, seek("k1", 2, 0), ack("a1", 4, 1), pull("c1", 6, C)]

    assert found(uses, held("a", "b", "c"), 2) == [
        "law 3: a1 acknowledged message 1, which was not handed out since the last seek, and was answered as if it had"
        " happened; it could only stand at 0 (by k1) (subscription s)"
    ]
    assert found([*uses, pull("c2", 3.2, A, B, end=3.8)], held("a", "b", "c"), 2) == []


def test_an_acknowledgement_of_what_was_never_pulled_is_told() -> None:
    assert "a1 acknowledged message 2, which was not handed out" in found(
        [ABC, pull("c1", 2, A, B), ack("a1", 4, 2)], held("a", "b", "c"), 3
    )[0]  # fmt: skip
    assert len(found([ABC, ack("a1", 4, 2, Outcome.UNKNOWN)], held("a", "b", "c"), 3)) == 1


def test_an_acknowledgement_of_what_is_acknowledged_already_is_right() -> None:
    assert found([ABC, GIVEN, seek("k1", 2, 2), ack("a1", 4, 1)], held("a", "b", "c"), 2) == []


def test_what_a_pull_without_an_answer_handed_out_may_be_acknowledged() -> None:
    unanswered = replace(pull("c1", 2), outcome=Outcome.UNKNOWN, ended=INFINITY)

    assert found([ABC, unanswered, ack("a1", 4, 2)], held("a", "b", "c"), 3) == []


@pytest.mark.parametrize(("sought_at", "violations"), [(90.0, 1), (2.0, 0)], ids=["shortly before", "long before"])
def test_after_a_restart_old_acknowledgements_are_right_unless_there_was_a_seek_shortly_before(
    sought_at: float, violations: int
) -> None:
    uses = [ABC, GIVEN, seek("k1", sought_at, 0), pull("c1", 93, A, B, C), ack("a1", 96, 1)]
    history = History({"s": "t"}, uses, restarts=[95.0])

    assert len(history.violations(Ending({"t": held("a", "b", "c")}, {"s": 2}))) == violations


def test_a_service_that_answers_no_pull_or_refuses_every_publish_is_told() -> None:
    pulls = [replace(pull(f"c{time}", time), outcome=Outcome.REFUSED) for time in range(6)]
    publishes = [replace(publish(f"m{time}", "", Outcome.REFUSED), request=f"p{time}") for time in range(6)]

    assert found([*pulls, *publishes], []) == [
        "law 4: none of 6 publishes to topic t had success",
        "law 4: none of 6 pulls of subscription s had success",
    ]


def test_what_was_cut_off_by_a_kill_tells_nothing_of_a_service() -> None:
    assert found([replace(pull(f"c{time}", time), outcome=Outcome.UNKNOWN) for time in range(9)], []) == []


def test_a_pull_may_answer_late_what_it_read_before_an_acknowledgement() -> None:
    uses = [ABC, pull("c1", 2, A, B, C, end=9), ack("a1", 3, 1, end=4), pull("c2", 5, C, end=6)]

    assert found(uses, held("a", "b", "c"), 2) == []


def test_an_attempt_that_may_still_happen_is_never_over() -> None:
    assert found([ABC, GIVEN, ack("a1", 2, 2, Outcome.UNKNOWN, end=INFINITY)], held("a", "b", "c"), 3) == []


def test_each_violation_is_told_once() -> None:
    uses = [ABC, GIVEN, ack("a1", 2, 2), *(pull(f"c{time}", time, A) for time in (4, 6, 8))]

    assert len(found(uses, held("a", "b", "c"), 0)) == 1


def test_a_history_is_written_one_line_an_attempt() -> None:
    file = io.StringIO()

    History({"s": "t"}, [ack("a1", 2, 0), ABC]).write(file)

    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [(line["kind"], line["request"], line["outcome"]) for line in lines] == [
        ("publish", "p1", "done"),
        ("ack", "a1", "done"),
    ]
