"""Every call of a run: when it went out and how it ended, who was let down and until when, and what is promised."""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from bench.connection import CLOSED
from simulation.histories.attempts import Attempt, Outcome, Seek, Settle
from simulation.histories.client import LATE
from tests.faults.parallel.google import ON_ITS_WAY, Moment

WORK = "work"
SLOW_SECONDS = 2.0
"""A call that takes longer, and twice as long as any before the fault, has felt it: a busy machine is no fault. A pull
that waits ends sooner by itself."""
FLOWS_SECONDS = 5.0  # after it was released, all that was held up has come to the clients
SERVER_ERRORS = range(500, 600)
_SERVER, _COUNTS, _LOG_WORDS = 2, 7, 8
"""Where a line of haproxy's log has backend and server, and counts, of which the last is how often it was sent again;
and how many words those of requests have at least."""


class Call(NamedTuple):
    """One request of one client; times are of the monotonic clock."""

    request: str  # names the request; those repeated with their key have the name of the first
    what: str
    """`publish`, `pull`, `acknowledge`, `modifyOffset`, `offsets`, `read` for what the registry alone answers, or
    `WORK`."""
    started: float
    ended: float
    status: int  # of the answer; 0: there was none within the client's patience
    text: str = ""
    node: str = ""  # the node that had it last, as haproxy's log says; empty: its log has no line
    resent: bool = False  # whether haproxy sent it again, as another node had it before and died
    again: bool = False
    """Whether its client repeats, with its key, a request that failed: how long that goes on says the contract."""

    @property
    def seconds(self) -> float:
        return self.ended - self.started

    @property
    def failed(self) -> bool:
        """Whether a client was let down; errors of the 400s are about what it asked for."""
        return self.status == CLOSED or self.status in SERVER_ERRORS

    def felt(self, slow: float) -> bool:
        """Tell whether the fault could be noticed by it: it failed, or took longer than `slow` seconds."""
        return not self.again and (self.failed or self.seconds > slow)


@dataclass
class CallLog:
    calls: list[Call] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """What no fault excuses: answers that a correct client must never get, each as a sentence."""
    stopping: bool = False
    slow: float = SLOW_SECONDS

    def learn_pace(self) -> None:
        """Take the calls so far, which felt no fault, for how long calls take on this machine."""
        self.slow = max(SLOW_SECONDS, *(2 * call.seconds for call in self.calls))

    def note(self, call: Call) -> None:
        self.calls.append(call)

    def quiet_since(self, moment: float) -> bool:
        recent = [call for call in self.calls if call.ended > moment]
        return bool(recent) and not any(call.felt(self.slow) for call in recent)


def with_nodes(calls: Iterable[Call], log: str) -> list[Call]:
    """Return the calls with the nodes that had them, by haproxy's log, in the format of `deploy/haproxy/haproxy.cfg`.

    Of a request that was repeated with its key, all calls have the node that had the first.
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
        if call.failed:
            failed.setdefault(call.request, call)
    return failed


def well_again(calls: Iterable[Call], since: float, calm: float, slow: float = SLOW_SECONDS) -> float:
    """Return from when on no call failed any more, nor was slow until for `calm` seconds none had been.

    `since` when none was after that. Slow calls later on tell of a busy machine, not of the fault.
    """
    well = since
    for call in sorted((call for call in calls if call.felt(slow)), key=lambda call: call.ended):
        if call.ended > well and (call.failed or call.ended - call.seconds < well + calm):
            well = call.ended
    return well


@dataclass
class Course:
    topic: str
    work: str = ""  # what the names of all parallel subscriptions begin with
    began: float = 0.0
    struck: float = 0.0
    gone: float = 0.0
    """When a node that is killed was surely dead: it is stopped first, and what comes to it until then is on its way to
    it."""
    node: str = ""
    helped: float = float("inf")
    released: float = float("-inf")
    """When what was frozen or held up went on, and with it what was on its way through it."""
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
        """Return this moment; from when the fault came, calls may fail, until another node owns the subscription."""
        now, is_hurt = time.monotonic(), bool(self.began)
        is_late = is_hurt and now < self.released + FLOWS_SECONDS
        return Moment(now, int(is_hurt), not is_hurt, (self.began if is_late else now) - ON_ITS_WAY)

    @property
    def until(self) -> float:
        """From when on the cluster has to get well."""
        return self.struck if self.ended is None else self.ended


def with_first_tries(attempts: Iterable[Attempt], resent: Collection[str]) -> Iterator[Attempt]:
    """Yield the attempts; of those sent again (`resent` has their requests) also what the first try may have done.

    A seek moves twice then, perhaps with an acknowledgement between. What is late the second time may have been done
    the first time. Of any other request the second time changes nothing.
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
