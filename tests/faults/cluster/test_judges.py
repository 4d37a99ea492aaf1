"""The judges of a broken cluster judge rightly: who was let down, what is excused, and what is counted as which."""

import json

import pytest

from tests.faults.attempts import Ack, Ending, Facts, Held, Outcome, Publish, Pull, Seek
from tests.faults.cluster.calls import (
    WORK,
    Call,
    CallLog,
    Course,
    failed_requests,
    well_again,
    with_first_tries,
    with_nodes,
)
from tests.faults.cluster.ledger import Entry, by_fault, line, table
from tests.faults.cluster.promises import Promise, answered_at_once, broken, wrongly_refused
from tests.faults.history import History
from tests.faults.parallel.attempts import NACK, Settle
from tests.faults.parallel.observed import ON_ITS_WAY

FAULT = Course("jobs", began=10, node="node1", helped=30)
DYING = Course("jobs", began=10, gone=10.5, node="node1")


def call(what: str, started: float, ended: float, status: int = 500, node: str = "node1", text: str = "") -> Call:
    return Call(f"{what}-{started}", what, started, ended, status, text, node)


def test_no_answer_and_errors_of_the_500s_are_failures_of_a_request_once_and_others_are_not() -> None:
    failed = [call("a", 0, 1, 0), call("b", 0, 1, 503), call("b", 0, 2, 500)._replace(again=True)]
    others = [call("b", 0, 3, 200)._replace(again=True), call("c", 0, 1, 408), call("d", 0, 9, 200)]

    assert failed_requests(failed + others) == {"a-0": failed[0], "b-0": failed[1]}


HAPROXY_LOG = """\
127.0.0.1:1 [23/Nov/2026:01:00:00.000] ams_nodes/node2 0/0/1/2/3 200 99 ---- 9/9/1/1/0 POST /v1/t:publish a-0
127.0.0.1:1 [23/Nov/2026:01:00:00.000] ams_nodes/<NOSRV> 0/-1/-1/-1/3 503 99 sC-- 9/9/1/1/+1 POST /v1/t:publish b-0
127.0.0.1:1 [23/Nov/2026:01:00:00.000] ams_nodes/node3 0/0/1/2/3 200 99 ---- 9/9/1/1/0 POST /v1/t:publish a-0
[NOTICE] (1) : New worker forked
"""


def test_the_node_that_had_a_call_is_known_by_the_log_of_haproxy() -> None:
    calls = with_nodes([call("a", 0, 1), call("b", 0, 1, 503), call("c", 0, 1, 0)], HAPROXY_LOG)

    assert [(each.node, each.resent) for each in calls] == [("node2", False), ("<NOSRV>", True), ("", False)]


@pytest.mark.parametrize(
    ("calls", "well"),
    [
        ([call("a", 9, 12, 200), call("b", 12, 12.1, 200), call("c", 13, 13.2)], 13.2),
        ([call("a", 1, 2), call("b", 11, 11.1, 200)], 10),
        ([call("a", 10, 13, 200), call("b", 40, 45, 200)], 13),
        ([call("a", 10, 13, 200), call("b", 40, 45)], 45),
    ],
    ids=["the last that failed", "nothing since", "a slow one long after", "one that failed long after"],
)
def test_it_is_well_again_after_the_last_call_that_failed_or_was_slow(calls: list[Call], well: float) -> None:
    assert well_again(calls, 10, calm=3) == well


def test_it_is_quiet_only_while_calls_are_made_and_none_feels_anything() -> None:
    log = CallLog([call("a", 0, 5, 200), call("b", 6, 6.1, 200)])

    assert [log.quiet_since(moment) for moment in (4, 5.5, 7)] == [False, True, False]


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("lost", "law 1: message m of request r, acknowledged as id 3, is lost"),
        ("duplicated", "law 1: message m of request r is stored as ids 3 and 4"),
        ("order", "law 2: topic t has id 4 (m) where id 3 should be"),
        ("wrong_acks", "law 3: an acknowledgement of s:3 was taken after its deadline"),
        ("wrong_acks", "law 3: r was answered as if it had happened; it could only stand at 3 (by its creation)"),
        ("lost", "forgotten: subscription s has passed message 3 (m), which was given 1 times"),
        (
            "duplicated",
            "came back: message 3 of subscription s (m) was given by pull r, and had been acknowledged by a",
        ),
        ("duplicated", "given twice: message 3 of subscription s was given by pulls r and s"),
        ("order", "out of order: of key k in subscription s, message 4 was given by pull r before 3 was done"),
        ("wrong_acks", "late: message 3 of subscription s was acknowledged by a, but its lease had ended"),
        ("wrong_acks", "counted down: message 3 of subscription s was given by pull r as delivery 6"),
        ("lost", "the client of subscription s ended: NotFound()"),
        ("wrong_acks", "3 times refused for no reason: acks and nacks of Google's clients: NOT_FOUND"),
    ],
)
def test_a_violation_is_counted_as_one_of_its_kind(kind: str, sentence: str) -> None:
    entry = Entry("kill-node")
    entry.charge(sentence)

    counted = {name: getattr(entry, name) for name in ("lost", "duplicated", "order", "wrong_acks")}
    assert (counted, entry.broken) == (dict.fromkeys(counted, 0) | {kind: 1}, [sentence])


def test_several_runs_of_a_fault_are_one_line_with_the_worst_of_what_is_no_sum() -> None:
    runs = [Entry("a", requests=10, failed=1, longest=2.0, back=3.0), Entry("b"), Entry("a", requests=5, back=1.0)]

    first, second = by_fault(runs)

    assert (first.runs, first.requests, first.failed, first.longest, first.back) == (2, 15, 1, 2.0, 3.0)
    assert [each["fault"] for each in json.loads(line([first, second]))] == ["a", "b"]
    assert table([first]).splitlines()[1].split() == ["a", "2", "15", "1", "0", "2.0", "3.0", *"0000000"]


def test_where_no_call_may_fail_each_that_does_is_told() -> None:
    calls = [call("pull", 11, 12), call("pull", 11, 19, 200), call("publish", 9, 12, 0)]

    assert list(broken(Promise.NONE, calls, FAULT)) == [
        "promise: pull pull-11 failed 2.0 s after the fault came at node1: 500  (1.0 s)",
        "promise: publish publish-9 failed 2.0 s after the fault came at node1: 0  (3.0 s)",
    ]


@pytest.mark.parametrize(
    ("promise", "one", "course", "excused"),
    [
        (Promise.IN_FLIGHT, call("publish", 9, 12), FAULT, True),
        (Promise.IN_FLIGHT, call("publish", 9, 12, node="node2"), FAULT, False),
        (Promise.IN_FLIGHT, call("publish", 9, 12, node="node2")._replace(resent=True), FAULT, True),
        (Promise.IN_FLIGHT, call("publish", 11, 12, node="node2")._replace(resent=True), FAULT, False),
        (Promise.IN_FLIGHT, call("publish", 9, 12, node=""), FAULT, False),
        (Promise.IN_FLIGHT, call("publish", 9, 10.01, 500, node=""), FAULT, False),
        (Promise.IN_FLIGHT, call("publish", 9, 10.01, 0, node=""), FAULT, True),
        (Promise.IN_FLIGHT, call("publish", 9, 12, 0, node=""), FAULT, False),
        (Promise.IN_FLIGHT, call("publish", 11, 12), FAULT, False),
        (Promise.IN_FLIGHT, call("pull", 9, 12), FAULT, False),
        (Promise.IN_FLIGHT, call("library publish", 9, 50), FAULT, False),
        (Promise.IN_FLIGHT, call("publish", 8, 9), FAULT, False),
        (Promise.IN_FLIGHT, call("publish", 10.3, 10.6), DYING, True),
        (Promise.IN_FLIGHT, call("publish", 10.6, 10.8), DYING, False),
        (Promise.SOME, call("pull", 11, 12), FAULT, True),
        (Promise.SOME, call("pull", 8, 9), FAULT, False),
        (Promise.SOME, call(WORK, 8, 9, 503), FAULT, False),
        (Promise.NONE, call(WORK, 9, 11, 503), FAULT, True),
        (Promise.NONE, call("pull", 9, 9.1, 408), FAULT, True),
    ],
)
def test_only_what_the_fault_excuses_may_fail(promise: Promise, one: Call, course: Course, excused: bool) -> None:
    assert (list(broken(promise, [one], course)) == []) is excused


def test_workers_may_be_refused_only_what_is_late() -> None:
    late = call(WORK, 9, 9.1, 408, text="ack timeout: 3-1.0.1.7.9f3c21")
    wrong = call(WORK, 9, 9.1, 400, text="Invalid ack id")

    told = list(wrongly_refused([late, call(WORK, 9, 9.1, 503), wrong]))

    assert told == ["refused: work-9 was answered 400 Invalid ack id"]


def test_without_kafka_errors_come_at_once_and_reads_go_on() -> None:
    good = [call("publish", 21, 21.1), call("read", 22, 22.1, 200)]

    assert list(answered_at_once(good, FAULT)) == []
    assert len(list(answered_at_once([*good, call("publish", 21, 25)], FAULT))) == 1
    assert len(list(answered_at_once([*good, call("read", 21, 21.1)], FAULT))) == 1
    assert list(answered_at_once(good[:1], FAULT)) == ["nobody published or read while Kafka was away"]


def done(request: str, started: float, ended: float) -> Facts:
    return Facts(request=request, started=started, ended=ended, outcome=Outcome.DONE)


def test_a_seek_that_was_sent_again_may_move_a_second_time_after_an_acknowledgement() -> None:
    a, b = Held(0, "a"), Held(1, "b")
    history = History(
        {"s": "t"},
        [
            Publish(**done("p", 0, 1), topic="t", names=("a", "b"), ids=(0, 1)),
            Seek(**done("k", 2, 9), subscription="s", offset=1),
            Pull(**done("c1", 3, 4), subscription="s", messages=(b,)),
            Ack(**done("c2", 5, 6), subscription="s", last=1),
            Pull(**done("c3", 7, 8), subscription="s", messages=(b,)),
            Pull(**done("c4", 10, 11), subscription="s", messages=(b,)),
        ],
    )
    ending = Ending({"t": [a, b]}, {"s": 1})
    twice = History(history.subscriptions, list(with_first_tries(history.attempts, {"k"})))

    assert any("pull c3 began" in each for each in history.violations(ending))
    assert twice.violations(ending) == []


def test_what_is_late_the_second_time_may_have_been_done_the_first_time() -> None:
    id_ = "projects/P/subscriptions/s:3-1.0.1.7.9f3c21"
    late = Settle(**done("n", 0, 1), subscription="s", verb=NACK, ids=(id_,), late=(id_,))

    [again] = with_first_tries([late], {"n"})

    assert isinstance(again, Settle)
    assert (again.may_have_happened(id_), again.is_confirmed(id_)) == (True, False)
    assert list(with_first_tries([late], {"other"})) == [late]


def test_from_when_the_fault_came_calls_may_fail_and_messages_come_that_were_held_up_then() -> None:
    course = Course("topic")
    assert (course.moment().is_up, course.moment().deaths) == (True, 0)

    course.begin()
    moment = course.moment()
    assert (moment.is_up, moment.deaths, moment.since) == (False, 1, moment.time - ON_ITS_WAY)

    course.release()
    assert course.moment().since == course.began - ON_ITS_WAY
