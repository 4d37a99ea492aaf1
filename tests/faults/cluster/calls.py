"""Every call of a run: its times and result, calls that failed and until when, and the promises of each fault."""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from bench.connection import CLOSED
from simulation.histories.attempts import Attempt, Outcome, Seek, Settle
from simulation.histories.client import LATE
from tests.faults.parallel.google import MAX_TRANSIT_SECONDS, Moment

WORK = "work"
SLOW_SECONDS = 2.0
"""A call is affected by the fault if it takes longer than this, and twice as long as any call before the fault.
Otherwise the machine is just busy. A waiting pull ends sooner."""
FLOWS_SECONDS = 5.0  # all delayed answers have reached their clients so long after the release
SERVER_ERRORS = range(500, 600)
_SERVER, _COUNTS, _LOG_WORDS = 2, 7, 8
"""In haproxy's log: the fields of backend and server, and of counts, of which the last is the number of resends; and
the minimum number of fields in a request's line."""


class Call(NamedTuple):
    """One request of one client; times are monotonic seconds."""

    request: str  # name; requests repeated with their key have the name of the first
    what: str
    """`publish`, `pull`, `acknowledge`, `modifyOffset`, `offsets`, `read` for registry-only requests, or `WORK`."""
    started: float
    ended: float
    status: int  # of the answer; 0: there was none within the client's patience
    text: str = ""
    node: str = ""  # the node that had it last, as haproxy's log says; empty: its log has no line
    resent: bool = False  # whether haproxy sent it again, as another node had it before and died
    again: bool = False
    """True if its client repeats a failed request with its idempotency key; the contract limits for how long."""

    @property
    def seconds(self) -> float:
        return self.ended - self.started

    @property
    def has_failed(self) -> bool:
        """Return whether the request failed for its client; 4xx errors are the client's own."""
        return self.status == CLOSED or self.status in SERVER_ERRORS

    def is_affected(self, slow: float) -> bool:
        """Return whether the call was affected by the fault: it failed, or took longer than `slow` seconds."""
        return not self.again and (self.has_failed or self.seconds > slow)


@dataclass
class CallLog:
    calls: list[Call] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Answers that a correct client must never get, whatever the fault, each as a sentence."""
    stopping: bool = False
    slow: float = SLOW_SECONDS

    def learn_pace(self) -> None:
        """Measure normal call durations on this machine from the calls before the fault."""
        self.slow = max(SLOW_SECONDS, *(2 * call.seconds for call in self.calls))

    def note(self, call: Call) -> None:
        self.calls.append(call)

    def quiet_since(self, moment: float) -> bool:
        recent = [call for call in self.calls if call.ended > moment]
        return bool(recent) and not any(call.is_affected(self.slow) for call in recent)


def with_nodes(calls: Iterable[Call], log: str) -> list[Call]:
    """Return the calls with their nodes, from haproxy's log in the format of `deploy/haproxy/haproxy.cfg`.

    All calls of a request that was repeated with its key have the node of the first.
    """
    nodes: dict[str, tuple[str, bool]] = {}
    for line in log.splitlines():
        words = line.split()
        if len(words) > _LOG_WORDS and words[_SERVER].startswith("ams_"):
            times = words[_COUNTS].rpartition("/")[2]
            nodes.setdefault(words[-1], (words[_SERVER].partition("/")[2], times != "0"))
    found = [(call, *nodes.get(call.request, ("", False))) for call in calls]
    return [call._replace(node=node, resent=resent) for call, node, resent in found]


def failed_requests(calls: Iterable[Call]) -> dict[str, Call]:
    failed: dict[str, Call] = {}
    for call in calls:
        if call.has_failed:
            failed.setdefault(call.request, call)
    return failed


def well_again(calls: Iterable[Call], since: float, calm: float, slow: float = SLOW_SECONDS) -> float:
    """Return the time of recovery: no later call failed, nor was slow before `calm` seconds without a slow one.

    Returns `since` when no call failed or was slow. Later slow calls mean a busy machine, not the fault.
    """
    well = since
    for call in sorted((call for call in calls if call.is_affected(slow)), key=lambda call: call.ended):
        if call.ended > well and (call.has_failed or call.ended - call.seconds < well + calm):
            well = call.ended
    return well


@dataclass
class Course:
    topic: str
    work: str = ""  # what the names of all parallel subscriptions begin with
    began: float = 0.0
    struck: float = 0.0
    gone: float = 0.0
    """Time when a killed node was surely dead. It is stopped first; until then requests are still on their way
    to it."""
    node: str = ""
    helped: float = float("inf")
    released: float = float("-inf")
    """Time when a frozen or delayed part resumed, with the requests on their way through it."""
    ended: float | None = None  # none: the cluster has to get over it without help

    def begin(self) -> None:
        self.began = self.struck = time.monotonic()

    def lose(self, node: str) -> None:
        self.node, self.gone = node, time.monotonic()

    def strike(self) -> None:
        self.struck = time.monotonic()

    def help(self) -> None:
        self.helped = time.monotonic()

    def release(self) -> None:
        self.released = time.monotonic()

    def end(self) -> None:
        self.ended = time.monotonic()

    def moment(self) -> Moment:
        """Return this moment: after the fault calls may fail, until another node owns the subscription."""
        now, is_hurt = time.monotonic(), bool(self.began)
        is_late = is_hurt and now < self.released + FLOWS_SECONDS
        return Moment(now, int(is_hurt), not is_hurt, (self.began if is_late else now) - MAX_TRANSIT_SECONDS)

    @property
    def until(self) -> float:
        """Return the time from which the cluster must recover."""
        return self.struck if self.ended is None else self.ended


def with_first_tries(attempts: Iterable[Attempt], resent: Collection[str]) -> Iterator[Attempt]:
    """Yield the attempts; those resent (`resent` has their requests) also with the possible effects of the first try.

    A seek then moves twice, perhaps with an acknowledgement between. A late second answer may belong to a first try
    that succeeded. A second try of any other request changes nothing.
    """
    for each in attempts:
        if each.request not in resent:
            yield each
        elif isinstance(each, Seek):
            yield replace(each, request=f"{each.request} (first try)", outcome=Outcome.UNKNOWN)
            yield each
        elif isinstance(each, Settle) and each.late:
            yield replace(each, outcome=Outcome.UNKNOWN, late=())
        else:
            yield each


BACK_SECONDS = 15.0
MOMENT = 0.05  # seconds between what we see and what clients feel
NOTICED_SECONDS = 10.0  # after so long a node knows that all of Kafka is away: nobody who called before waits any more
AT_ONCE_SECONDS = 1.0
CLIENT_ERRORS = range(400, 500)


class Promise(Enum):
    """Limit of failed calls."""

    NONE = "no call fails"
    IN_FLIGHT = "only publishes fail that were on their way to that node, and none of the official library"
    SOME = "calls may fail while it lasts"


def was_in_flight(call: Call, course: Course) -> bool:
    """Return whether a call is a publish, not the library's, that was on its way to the node at its death.

    haproxy sends a publish with a key to another node, which may not find out in time whether it is stored.

    If the node breaks a connection that it has answered on before, haproxy breaks the client's too, and logs nothing:
    the client shall retry. Then only the time tells: the call was on its way when the node died, and its connection was
    closed right then.
    """
    came = max(course.began, course.gone)
    if call.what != "publish" or call.started >= came + MOMENT or call.ended <= course.began or not course.node:
        return False
    if not call.node:
        return call.status == CLOSED and call.ended < came + AT_ONCE_SECONDS
    return call.node == course.node or call.resent


def find_broken_promises(promise: Promise, calls: Sequence[Call], course: Course) -> Iterator[str]:
    for call in failed_requests(calls).values():
        if not _is_excused(promise, call, course):
            after = call.ended - course.began
            yield (
                f"promise: {call.what} {call.request} failed {after:.1f} s after the fault came"
                f" {_place_of(call)}: {call.status} {call.text} ({call.seconds:.1f} s)"
            )


def _place_of(call: Call) -> str:
    return f"at {call.node}" if call.node else "at an unknown node"


def _is_excused(promise: Promise, call: Call, course: Course) -> bool:
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
    """Without Kafka, publishes are refused at once, and requests that need no Kafka succeed."""
    begin, end = course.began + NOTICED_SECONDS, course.helped
    during = [call for call in calls if begin < call.started and call.ended < end]
    for call in during:
        if call.what == "publish" and call.seconds > AT_ONCE_SECONDS:
            yield f"law 5: without Kafka publish {call.request} was answered {call.status} after {call.seconds:.1f} s"
        if call.what == "read" and (call.has_failed or call.seconds > AT_ONCE_SECONDS):
            yield f"law 6: without Kafka read {call.request} was answered {call.status} after {call.seconds:.1f} s"
    if not any(call.what == "publish" for call in during) or not any(call.what == "read" for call in during):
        yield "nobody published or read while Kafka was away"
