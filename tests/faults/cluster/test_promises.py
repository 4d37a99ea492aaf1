import pytest

from tests.faults.cluster.calls import WORK, Call
from tests.faults.cluster.course import Course
from tests.faults.cluster.promises import Promise, answered_at_once, broken, wrongly_refused

FAULT = Course("jobs", began=10, node="node1", helped=30)


def call(what: str, started: float, ended: float, status: int = 500, node: str = "node1") -> Call:
    return Call(f"{what}-{started}", what, started, ended, status, node=node)


def test_where_no_call_may_fail_each_that_does_is_told() -> None:
    calls = [call("pull", 11, 12), call("pull", 11, 19, 200), call("publish", 9, 12, 0)]

    assert list(broken(Promise.NONE, calls, FAULT)) == [
        "promise: pull pull-11 failed 2.0 s after the fault came at node1: 500  (1.0 s)",
        "promise: publish publish-9 failed 2.0 s after the fault came at node1: 0  (3.0 s)",
    ]


@pytest.mark.parametrize(
    ("one", "excused"),
    [
        (call("publish", 9, 12), True),
        (call("publish", 9, 12, node="node2"), False),
        (call("publish", 9, 12, node="node2")._replace(resent=True), True),
        (call("publish", 11, 12, node="node2")._replace(resent=True), False),
        (call("publish", 9, 12, node=""), False),
        (call("publish", 9, 10.01, 500, node=""), False),
        (call("publish", 9, 10.01, 0, node=""), True),
        (call("publish", 9, 12, 0, node=""), False),
        (call("publish", 11, 12), False),
        (call("pull", 9, 12), False),
        (call("library publish", 9, 50), False),
        (call("publish", 8, 9), False),
    ],
)
def test_a_killed_node_excuses_only_publishes_that_were_on_their_way(one: Call, excused: bool) -> None:
    assert (list(broken(Promise.IN_FLIGHT, [one], FAULT)) == []) is excused


def test_what_came_to_a_node_that_is_being_killed_was_on_its_way() -> None:
    dying = Course("jobs", began=10, gone=10.5, node="node1")

    assert list(broken(Promise.IN_FLIGHT, [call("publish", 10.3, 10.6)], dying)) == []
    assert len(list(broken(Promise.IN_FLIGHT, [call("publish", 10.6, 10.8)], dying))) == 1


def test_what_failed_before_the_fault_came_is_never_excused() -> None:
    assert list(broken(Promise.SOME, [call("pull", 11, 12)], FAULT)) == []
    assert len(list(broken(Promise.SOME, [call("pull", 8, 9)], FAULT))) == 1


def test_workers_may_fail_from_the_fault_on_and_be_refused_only_what_is_late() -> None:
    late = call(WORK, 9, 9.1, 408)._replace(text="ack timeout: 3-1.0.1.7.9f3c21")
    wrong = call(WORK, 9, 9.1, 400)._replace(text="Invalid ack id")

    assert list(broken(Promise.NONE, [call(WORK, 9, 11, 503), call("pull", 9, 9.1, 408)], FAULT)) == []
    assert len(list(broken(Promise.SOME, [call(WORK, 8, 9, 503)], FAULT))) == 1
    assert list(wrongly_refused([late, call(WORK, 9, 9.1, 503), wrong])) == [
        "refused: work-9 was answered 400 Invalid ack id"
    ]


def test_without_kafka_errors_come_at_once_and_reads_go_on() -> None:
    good = [call("publish", 21, 21.1), call("read", 22, 22.1, 200)]

    assert list(answered_at_once(good, FAULT)) == []
    assert len(list(answered_at_once([*good, call("publish", 21, 25)], FAULT))) == 1
    assert len(list(answered_at_once([*good, call("read", 21, 21.1)], FAULT))) == 1
    assert list(answered_at_once(good[:1], FAULT)) == ["nobody published or read while Kafka was away"]
