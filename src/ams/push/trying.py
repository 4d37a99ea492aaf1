"""Trying: one request with messages of a target, and what is reported of it and of whatever else goes wrong."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec
import structlog

from ams.core.clock import Clock
from ams.core.push_config import DEFAULT_OUTSTANDING
from ams.push import retry
from ams.push.delivery import Deliveries, Delivery
from ams.push.details import Details, cut, repeats
from ams.push.google import GoogleDeliveries
from ams.push.report import SEND, Report, Tally
from ams.push.sender import EndpointAnswer, HttpSender, NotAsked, SendFailed
from ams.push.upstream import Pulled, Target, Upstream
from ams.wire.push import Attempt, Failure

logger = structlog.get_logger("ams.push")

LATE = "the messages were delivered, but their acknowledgement counts no more: they are delivered again"
ENDED = "HTTP 410: the endpoint is gone; nothing is delivered to it until its push configuration changes"
MAX_ERROR = 200  # bytes of an attempt's error: a hundred of them go into one heartbeat (`ams.http.routes.push_lease`)
_LEAST_WAIT = 100  # milliseconds, for an endpoint whose circuit is open


def own_token(target: Target) -> str:
    """Return the identity token that a target came with."""
    return target.identity_token


class Means(NamedTuple):
    """What workers work with."""

    upstream: Upstream
    sender: HttpSender
    clock: Clock
    random: Callable[[], float]  # in [0, 1)
    tally: Tally
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep  # waits for so many seconds
    token: Callable[[Target], str] = own_token  # returns the present identity token of a target


class Outcome(NamedTuple):
    """What came of a request."""

    answer: EndpointAnswer | None  # None: there was none
    error: str  # why it was not accepted; empty: it was
    milliseconds: int
    undecodable: int


class Tries:
    """Sends messages of one target, and tells its report; raises `ValueError` when something is wrong with the target.

    Failures are told in the words of the endpoint, short and without secrets.
    """

    def __init__(self, target: Target, means: Means, report: Report) -> None:
        self._target = target
        self._path = target.path
        self._means = means
        self._report = report
        self._deliveries = Deliveries(target)
        form = target.config.google
        self._google = None if form is None else GoogleDeliveries(target, form)
        self._details = Details(target)
        self._accepted = retry.accepted(target.config)
        self._defects: set[type[Exception]] = set()
        self.at_once = (target.config.max_outstanding or DEFAULT_OUTSTANDING) if target.is_parallel else 1
        """Deliveries that may be under way."""
        self.most = self._deliveries.most  # messages of one delivery

    async def send(self, messages: Sequence[Pulled], *, attempt: int, limit: float) -> Outcome:
        """Send messages; `attempt` from 1, `limit` in seconds. Raises `NotAsked`, and nothing was sent."""
        means = self._means
        now, began = means.clock.wall(), means.clock.monotonic()
        delivery = self._delivery(messages, attempt, now // 1000)
        answer, error = None, ""
        try:
            answer = await means.sender.send(
                self._deliveries.url, delivery.headers, delivery.body, seconds=limit, at_once=self.at_once
            )
        except NotAsked:
            raise
        except SendFailed as failed:
            error = self._details.detail(str(failed)) or "no answer"
        else:
            error = "" if answer.status in self._accepted else self._refusal(answer)
        took = means.clock.monotonic() - began
        status = answer.status if answer else 0
        self._report.attempted(Attempt(now, len(messages), status, took, len(delivery.body), cut(error, MAX_ERROR)))
        return Outcome(answer, error, took, delivery.undecodable)

    def _delivery(self, messages: Sequence[Pulled], attempt: int, now: int) -> Delivery:
        if self._google is not None:
            return self._google.delivery(messages[0], attempt=attempt, token=self._means.token(self._target))
        return self._deliveries.delivery(messages, attempt=attempt, now=now)

    def refused(self, messages: Sequence[Pulled], answer: EndpointAnswer, error: str, advice: str = "") -> str:
        """Report an answer that is no good one, with advice if there is any; return what the endpoint said."""
        said = self._details.answer(answer.text) or error
        # An endpoint may repeat what it was sent, which belongs into no log.
        reason = f"HTTP {answer.status}" if repeats(said, messages) else error
        failure = self._failure(SEND, said, answer.status)
        if advice:
            failure = msgspec.structs.replace(failure, detail=f"{failure.detail} ({advice})")
        self._report.failed(failure, reason)
        return said

    def ended(self, answer: EndpointAnswer) -> None:
        """Report that the endpoint wants nothing any more."""
        self._report.stopped(self._failure(SEND, ENDED, answer.status))

    def left_alone(self, reason: NotAsked) -> int:
        """Report that an endpoint is not asked; return the milliseconds until it may be.

        What it last failed with says more than that it is left alone.
        """
        if self._report.failure is None or self._report.failure.what != SEND:
            self.failed(SEND, str(reason))
        # A little longer for each differently: all subscriptions of the endpoint got the same `Retry-After`.
        return max(_LEAST_WAIT, int(1000 * reason.seconds * (1 + retry.JITTER * self._means.random())))

    def late(self, what: str) -> None:
        """Report an acknowledgement that came too late: the endpoint has done nothing wrong (P15)."""
        self._report.late(self._failure(what, LATE))

    def failed(self, what: str, detail: str) -> None:
        """Report any other failure."""
        self._report.failed(self._failure(what, detail))

    def defect(self, what: str, error: Exception) -> None:
        """Report a defect, and log it once, by its kind and place: its text may hold what must not be shown."""
        self.failed(what, f"unexpected {type(error).__name__}")
        if type(error) in self._defects:
            return
        self._defects.add(type(error))
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        place = f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame else ""
        logger.error("push.defect", subscription=self._path, kind=type(error).__name__, place=place)

    def _refusal(self, answer: EndpointAnswer) -> str:
        said = self._details.answer(answer.text)
        return f"HTTP {answer.status}: {said}" if said else f"HTTP {answer.status}"

    def _failure(self, what: str, detail: str, status: int = 0) -> Failure:
        return Failure(self._means.clock.wall(), what, self._details.detail(detail), status)
