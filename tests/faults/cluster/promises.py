"""What is promised to clients while a fault lasts, beside the laws, and which calls say that it was not kept."""

from collections.abc import Iterator, Sequence
from enum import Enum

from bench.connection import CLOSED
from tests.faults.cluster.calls import WORK, Call, Course, failed_requests
from tests.faults.http_client import LATE

BACK_SECONDS = 15.0
MOMENT = 0.05
"""Seconds between what we see and what clients feel."""
NOTICED_SECONDS = 10.0
"""After so long a node knows that all of Kafka is away: nobody who called before waits any more."""
AT_ONCE_SECONDS = 1.0
CLIENT_ERRORS = range(400, 500)


class Promise(Enum):
    """How many calls may be let down."""

    NONE = "no call fails"
    IN_FLIGHT = "only publishes fail that were on their way to that node, and none of the official library"
    SOME = "calls may fail while it lasts"


def was_in_flight(call: Call, course: Course) -> bool:
    """Tell whether a call is a publish, not the library's, that was on its way to the node when that died.

    One with a key haproxy sends to another node then, which may not find out in time whether it is stored.

    Where the node breaks a connection on which requests were answered before, haproxy breaks the client's too, and
    writes no line: the client shall try again. Then the moment has to tell: the call was on its way when the node died,
    and its connection was closed right then.
    """
    came = max(course.began, course.gone)
    if call.what != "publish" or call.started >= came + MOMENT or call.ended <= course.began or not course.node:
        return False
    if not call.node:
        return call.status == CLOSED and call.ended < came + AT_ONCE_SECONDS
    return call.node == course.node or call.resent


def broken(promise: Promise, calls: Sequence[Call], course: Course) -> Iterator[str]:
    for call in failed_requests(calls).values():
        if not _excused(promise, call, course):
            after = call.ended - course.began
            yield (
                f"promise: {call.what} {call.request} failed {after:.1f} s after the fault came"
                f" {_at(call)}: {call.status} {call.text} ({call.seconds:.1f} s)"
            )


def _at(call: Call) -> str:
    return f"at {call.node}" if call.node else "at an unknown node"


def _excused(promise: Promise, call: Call, course: Course) -> bool:
    if call.what == WORK:  # until another node owns the subscription; how long that takes is told by when all is well
        return call.ended >= course.began
    if promise is Promise.IN_FLIGHT:
        return was_in_flight(call, course)
    return promise is Promise.SOME and call.ended >= course.began


def wrongly_refused(calls: Sequence[Call]) -> Iterator[str]:
    for call in calls:
        if call.what == WORK and call.status in CLIENT_ERRORS and not call.text.startswith(LATE):
            yield f"refused: {call.request} was answered {call.status} {call.text}"


def answered_at_once(calls: Sequence[Call], course: Course) -> Iterator[str]:
    """Without Kafka publishes are refused at once, and what needs no Kafka goes on."""
    begin, end = course.began + NOTICED_SECONDS, course.helped
    during = [call for call in calls if begin < call.started and call.ended < end]
    for call in during:
        if call.what == "publish" and call.seconds > AT_ONCE_SECONDS:
            yield f"law 5: without Kafka publish {call.request} was answered {call.status} after {call.seconds:.1f} s"
        if call.what == "read" and (call.failed or call.seconds > AT_ONCE_SECONDS):
            yield f"law 6: without Kafka read {call.request} was answered {call.status} after {call.seconds:.1f} s"
    if not any(call.what == "publish" for call in during) or not any(call.what == "read" for call in during):
        yield "nobody published or read while Kafka was away"
