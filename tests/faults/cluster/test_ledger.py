import json

from tests.faults.cluster.calls import Call, CallLog, failed_requests, well_again, with_nodes
from tests.faults.cluster.ledger import Entry, by_fault, line, table


def call(request: str, started: float, ended: float, status: int = 200, *, again: bool = False) -> Call:
    return Call(request, "publish", started, ended, status, again=again)


def test_no_answer_and_errors_of_the_500s_are_failures_and_the_others_are_not() -> None:
    calls = [call("a", 0, 1, 0), call("b", 0, 1, 503), call("c", 0, 1, 408), call("d", 0, 9)]

    assert set(failed_requests(calls)) == {"a", "b"}


def test_a_request_repeated_with_its_key_failed_once() -> None:
    calls = [call("a", 0, 1, 500), call("a", 1, 2, 500, again=True), call("a", 2, 3, again=True)]

    assert failed_requests(calls) == {"a": calls[0]}


HAPROXY_LOG = """\
127.0.0.1:1 [23/Nov/2026:01:00:00.000] ams_nodes/node2 0/0/1/2/3 200 99 ---- 9/9/1/1/0 POST /v1/t:publish a
127.0.0.1:1 [23/Nov/2026:01:00:00.000] ams_nodes/<NOSRV> 0/-1/-1/-1/3 503 99 sC-- 9/9/1/1/+1 POST /v1/t:publish b
127.0.0.1:1 [23/Nov/2026:01:00:00.000] ams_nodes/node3 0/0/1/2/3 200 99 ---- 9/9/1/1/0 POST /v1/t:publish a
[NOTICE] (1) : New worker forked
"""


def test_the_node_that_had_a_call_is_known_by_the_log_of_haproxy() -> None:
    calls = with_nodes([call("a", 0, 1), call("b", 0, 1, 503), call("c", 0, 1, 0)], HAPROXY_LOG)

    assert [each.node for each in calls] == ["node2", "<NOSRV>", ""]
    assert [each.resent for each in calls] == [False, True, False]


def test_it_is_well_again_after_the_last_call_that_failed_or_was_slow() -> None:
    assert well_again([call("a", 9, 12), call("b", 12, 12.1), call("c", 13, 13.2, 500)], 10, calm=3) == 13.2
    assert well_again([call("a", 1, 2, 500), call("b", 11, 11.1)], 10, calm=3) == 10


def test_a_slow_call_long_after_is_not_of_the_fault_but_a_failed_one_is() -> None:
    assert well_again([call("a", 10, 13), call("b", 40, 45)], 10, calm=3) == 13
    assert well_again([call("a", 10, 13), call("b", 40, 45, 500)], 10, calm=3) == 45


def test_it_is_quiet_only_while_calls_are_made_and_none_feels_anything() -> None:
    log = CallLog([call("a", 0, 5), call("b", 6, 6.1)])

    assert log.quiet_since(5.5)
    assert not log.quiet_since(4)
    assert not log.quiet_since(7)


def test_every_violation_is_counted_as_one_of_its_kind() -> None:
    entry = Entry("kill-node")
    for sentence in (
        "law 1: message m of request r, acknowledged as id 3, is lost",
        "law 1: message m of request r is stored as ids 3 and 4",
        "law 2: topic t has id 4 (m) where id 3 should be",
        "law 3: an acknowledgement of s:3 was taken after its deadline",
        "law 3: r was answered as if it had happened; it could only stand at 3 (by its creation)",
        "forgotten: subscription s has passed message 3 (m), which was given 1 times",
        "came back: message 3 of subscription s (m) was given by pull r, and had been acknowledged by a",
        "given twice: message 3 of subscription s was given by pulls r and s",
        "out of order: of key k in subscription s, message 4 was given by pull r before message 3 was settled",
        "late: message 3 of subscription s was acknowledged by a, but its lease had ended",
        "counted down: message 3 of subscription s was given by pull r as delivery 6",
        "the client of subscription s ended: NotFound()",
        "3 times refused for no reason: acks and nacks of Google's clients: NOT_FOUND Resource not found",
    ):
        entry.charge(sentence)

    assert (entry.lost, entry.duplicated, entry.order, entry.wrong_acks) == (3, 3, 2, 5)
    assert len(entry.broken) == 13


def test_several_runs_of_a_fault_are_one_line_with_the_worst_of_what_is_no_sum() -> None:
    runs = [Entry("a", requests=10, failed=1, longest=2.0, back=3.0), Entry("b"), Entry("a", requests=5, back=1.0)]

    [first, second] = by_fault(runs)

    assert (first.runs, first.requests, first.failed, first.longest, first.back) == (2, 15, 1, 2.0, 3.0)
    assert second.fault == "b"
    assert [each["fault"] for each in json.loads(line([first, second]))] == ["a", "b"]
    assert table([first]).splitlines()[1].split() == ["a", "2", "15", "1", "0", "2.0", "3.0", *"0000000"]
