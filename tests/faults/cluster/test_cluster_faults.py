"""The short form of `make faults-cluster`, and its judges: which failures count, and which are excused."""

from pathlib import Path

import pytest
from argo_ams_library import AmsTimeoutException

from simulation.histories.attempts import NACK, Ack, Ending, Facts, Held, Outcome, Publish, Pull, Seek, Settle
from simulation.histories.history import History
from tests.faults.cluster import calls as judges
from tests.faults.cluster.calls import WORK, Call, CallLog, Course, Promise
from tests.faults.cluster.campaign import ClusterCampaign
from tests.faults.cluster.clients import is_rightly_late
from tests.faults.cluster.faults import BY_NAME
from tests.faults.parallel.google import MAX_TRANSIT_SECONDS

FAULT = Course("jobs", began=10, node="node1", helped=30)
DYING_COURSE = Course("jobs", began=10, gone=10.5, node="node1")


@pytest.mark.alone
@pytest.mark.long
@pytest.mark.faults
@pytest.mark.kafka
@pytest.mark.postgres
@pytest.mark.haproxy
async def test_owners_and_then_one_of_each_are_lost_and_nobody_is_let_down(tmp_path: Path) -> None:
    faults = [BY_NAME[name] for name in ("kill-owner", "freeze-owner", "one-of-each")]
    entries = await ClusterCampaign(tmp_path, faults, runs=1, seed=5).go()

    assert [entry.broken for entry in entries] == [[], [], []]
    assert all(entry.requests > 100 and entry.taken_over for entry in entries)


def make_call(what: str, started: float, ended: float, status: int = 500, node: str = "node1", text: str = "") -> Call:
    return Call(f"{what}-{started}", what, started, ended, status, text, node)


def test_no_answer_and_errors_of_the_500s_are_failures_of_a_request_once_and_others_are_not() -> None:
    failed = [make_call("a", 0, 1, 0), make_call("b", 0, 1, 503), make_call("b", 0, 2, 500)._replace(again=True)]
    others = [make_call("b", 0, 3, 200)._replace(again=True), make_call("c", 0, 1, 408), make_call("d", 0, 9, 200)]

    assert judges.failed_requests(failed + others) == {"a-0": failed[0], "b-0": failed[1]}


@pytest.mark.parametrize(("code", "seconds", "is_right"), [(408, 11, True), (408, 9, False), (504, 11, False)])
def test_only_a_call_that_outlasted_its_deadline_is_rightly_refused_as_late(
    code: int, seconds: float, is_right: bool
) -> None:
    error = AmsTimeoutException({"error": {"code": code, "message": "ack timeout"}}, "sub_ack")
    assert is_rightly_late(error, seconds) == is_right


HAPROXY_LOG = """\
127.0.0.1:1 [23/Nov/2026:01:00:00.000] ams_nodes/node2 0/0/1/2/3 200 99 ---- 9/9/1/1/0 POST /v1/t:publish a-0
127.0.0.1:1 [23/Nov/2026:01:00:00.000] ams_nodes/<NOSRV> 0/-1/-1/-1/3 503 99 sC-- 9/9/1/1/+1 POST /v1/t:publish b-0
127.0.0.1:1 [23/Nov/2026:01:00:00.000] ams_nodes/node3 0/0/1/2/3 200 99 ---- 9/9/1/1/0 POST /v1/t:publish a-0
[NOTICE] (1) : New worker forked
"""


def test_the_node_that_had_a_call_is_known_by_the_log_of_haproxy() -> None:
    calls = judges.with_nodes([make_call("a", 0, 1), make_call("b", 0, 1, 503), make_call("c", 0, 1, 0)], HAPROXY_LOG)

    assert [(each.node, each.resent) for each in calls] == [("node2", False), ("<NOSRV>", True), ("", False)]


@pytest.mark.parametrize(("calls", "well"), [
    ([make_call("a", 9, 12, 200), make_call("b", 12, 12.1, 200), make_call("c", 13, 13.2)], 13.2),
    ([make_call("a", 1, 2), make_call("b", 11, 11.1, 200)], 10),
    ([make_call("a", 10, 13, 200), make_call("b", 40, 45, 200)], 13),
    ([make_call("a", 10, 13, 200), make_call("b", 40, 45)], 45),
], ids=["the last that failed", "nothing since", "a slow one long after", "one that failed long after"])  # fmt: skip
def test_it_is_well_again_after_the_last_call_that_failed_or_was_slow(calls: list[Call], well: float) -> None:
    assert judges.well_again(calls, 10, calm=3) == well


def test_it_is_quiet_only_while_calls_are_made_and_none_feels_anything() -> None:
    log = CallLog([make_call("a", 0, 5, 200), make_call("b", 6, 6.1, 200)])

    assert [log.quiet_since(moment) for moment in (4, 5.5, 7)] == [False, True, False]


def test_a_call_that_is_slow_on_a_busy_machine_has_felt_no_fault() -> None:
    log = CallLog([make_call("a", 0, 1.5, 200)])
    log.learn_pace()
    log.note(make_call("b", 2, 4.9, 200))

    assert log.slow == 3.0
    assert log.quiet_since(2)
    assert judges.well_again(log.calls, 0, calm=3, slow=log.slow) == 0


def test_where_no_call_may_fail_each_that_does_is_told() -> None:
    calls = [make_call("pull", 11, 12), make_call("pull", 11, 19, 200), make_call("publish", 9, 12, 0)]

    assert list(judges.find_broken_promises(Promise.NONE, calls, FAULT)) == [
        "promise: pull pull-11 failed 2.0 s after the fault came at node1: 500  (1.0 s)",
        "promise: publish publish-9 failed 2.0 s after the fault came at node1: 0  (3.0 s)",
    ]


@pytest.mark.parametrize(("promise", "one", "course", "excused"), [
    (Promise.IN_FLIGHT, make_call("publish", 9, 12), FAULT, True),
    (Promise.IN_FLIGHT, make_call("publish", 9, 12, node="node2"), FAULT, False),
    (Promise.IN_FLIGHT, make_call("publish", 9, 12, node="node2")._replace(resent=True), FAULT, True),
    (Promise.IN_FLIGHT, make_call("publish", 11, 12, node="node2")._replace(resent=True), FAULT, False),
    (Promise.IN_FLIGHT, make_call("publish", 9, 12, node=""), FAULT, False),
    (Promise.IN_FLIGHT, make_call("publish", 9, 10.01, 500, node=""), FAULT, False),
    (Promise.IN_FLIGHT, make_call("publish", 9, 10.01, 0, node=""), FAULT, True),
    (Promise.IN_FLIGHT, make_call("publish", 9, 12, 0, node=""), FAULT, False),
    (Promise.IN_FLIGHT, make_call("publish", 11, 12), FAULT, False),
    (Promise.IN_FLIGHT, make_call("pull", 9, 12), FAULT, False),
    (Promise.IN_FLIGHT, make_call("library publish", 9, 50), FAULT, False),
    (Promise.IN_FLIGHT, make_call("publish", 8, 9), FAULT, False),
    (Promise.IN_FLIGHT, make_call("publish", 10.3, 10.6), DYING_COURSE, True),
    (Promise.IN_FLIGHT, make_call("publish", 10.6, 10.8), DYING_COURSE, False),
    (Promise.SOME, make_call("pull", 11, 12), FAULT, True), (Promise.SOME, make_call("pull", 8, 9), FAULT, False),
    (Promise.SOME, make_call(WORK, 8, 9, 503), FAULT, False), (Promise.NONE, make_call(WORK, 9, 11, 503), FAULT, True),
    (Promise.NONE, make_call("pull", 9, 9.1, 408), FAULT, True),
])  # fmt: skip
def test_only_what_the_fault_excuses_may_fail(promise: Promise, one: Call, course: Course, excused: bool) -> None:
    assert (list(judges.find_broken_promises(promise, [one], course)) == []) is excused


def test_workers_may_be_refused_only_what_is_late() -> None:
    late = make_call(WORK, 9, 9.1, 408, text="ack timeout: 3-1.0.1.7.9f3c21")
    wrong = make_call(WORK, 9, 9.1, 400, text="Invalid ack id")

    told = list(judges.wrongly_refused([late, make_call(WORK, 9, 9.1, 503), wrong]))

    assert told == ["refused: work-9 was answered 400 Invalid ack id"]


def test_without_kafka_errors_come_at_once_and_reads_go_on() -> None:
    good = [make_call("publish", 21, 21.1), make_call("read", 22, 22.1, 200)]

    assert list(judges.answered_at_once(good, FAULT)) == []
    assert len(list(judges.answered_at_once([*good, make_call("publish", 21, 25)], FAULT))) == 1
    assert len(list(judges.answered_at_once([*good, make_call("read", 21, 21.1)], FAULT))) == 1
    assert list(judges.answered_at_once(good[:1], FAULT)) == ["nobody published or read while Kafka was away"]


def make_facts(request: str, started: float, ended: float) -> Facts:
    return Facts(request=request, started=started, ended=ended, outcome=Outcome.DONE)


def test_a_seek_that_was_sent_again_may_move_a_second_time_after_an_acknowledgement() -> None:
    a, b = Held(0, "a"), Held(1, "b")
    history = History({"s": "t"}, [
        Publish(**make_facts("p", 0, 1), topic="t", names=("a", "b"), ids=(0, 1)),
        Seek(**make_facts("k", 2, 9), subscription="s", offset=1),
        Pull(**make_facts("c1", 3, 4), subscription="s", messages=(b,)),
        Ack(**make_facts("c2", 5, 6), subscription="s", last=1),
        Pull(**make_facts("c3", 7, 8), subscription="s", messages=(b,)),
        Pull(**make_facts("c4", 10, 11), subscription="s", messages=(b,)),
    ])  # fmt: skip
    ending = Ending({"t": [a, b]}, {"s": 1})
    twice = History(history.subscriptions, list(judges.with_first_tries(history.attempts, {"k"})))

    assert any("pull c3 began" in each for each in history.violations(ending))
    assert twice.violations(ending) == []


def test_what_is_late_the_second_time_may_have_been_done_the_first_time() -> None:
    id_ = "projects/P/subscriptions/s:3-1.0.1.7.9f3c21"
    late = Settle(**make_facts("n", 0, 1), subscription="s", verb=NACK, ids=(id_,), late=(id_,))

    [again] = judges.with_first_tries([late], {"n"})

    assert isinstance(again, Settle)
    assert (again.may_have_happened(id_), again.is_confirmed(id_)) == (True, False)
    assert list(judges.with_first_tries([late], {"other"})) == [late]


def test_from_when_the_fault_came_calls_may_fail_and_messages_come_that_were_held_up_then() -> None:
    course = Course("topic")
    assert (course.moment().is_up, course.moment().deaths) == (True, 0)

    course.begin()
    moment = course.moment()
    assert (moment.is_up, moment.deaths, moment.since) == (False, 1, moment.time - MAX_TRANSIT_SECONDS)

    course.release()
    assert course.moment().since == course.began - MAX_TRANSIT_SECONDS
