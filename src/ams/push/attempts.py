"""Delivery attempts: one request with messages of a target, and its report, without secrets."""

import asyncio
import contextlib
import html
import re
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec
import structlog

from ams.core.clock import Clock
from ams.core.messages import decoded_data, parse
from ams.core.push_config import DEFAULT_OUTSTANDING, MATTERMOST
from ams.push import retry
from ams.push.delivery_request import PREFIX, Deliveries, GoogleDeliveries
from ams.push.report import CONSUME, SEND, DeliveryTally, WorkerReport
from ams.push.sender import EndpointAnswer, HttpSender, NotAsked, SendFailed
from ams.push.upstream import Gone, Pulled, Target, Upstream, UpstreamError, UpstreamRefused
from ams.wire.push import Attempt, Failure

MAX_BYTES = 300  # of a detail, as UTF-8
HIDDEN = "***"
_MIN_HIDDEN_CHARACTERS = 8  # part of a secret that is hidden by itself; shorter parts may be words
_MIN_BEGINNING_CHARACTERS = 4  # beginning of a secret, at the end of a truncated text, that is hidden

_PARTS = re.compile("[/?&=#]")  # separates the parts of a URL
_PIECE, _STEP = 8, 4  # searched piece, and distance between pieces: any 11 characters in a row contain one
_TOKEN = re.compile(r"\beyJ[\w.-]*")  # a JWT, or its beginning where it was cut
_UNSEEN = re.compile(r"<(script|style)\b.*?(?:</\1\s*>|$)|<!--.*?(?:-->|$)", re.IGNORECASE | re.DOTALL)
_TITLE = re.compile(r"<title\b[^>]*>([^<]*)", re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>?")
logger = structlog.get_logger("ams.push")
LATE = "the messages were delivered, but their acknowledgement counts no more: they are delivered again"
ENDPOINT_GONE = "HTTP 410: the endpoint is gone; nothing is delivered to it until its push configuration changes"
MAX_ERROR = 200  # bytes of an attempt's error: a heartbeat carries a hundred (`ams.http.routes.push`)
_MIN_CIRCUIT_WAIT_MS = 100  # milliseconds, for an endpoint whose circuit is open


class FailureTexts:
    """Makes the error texts of one target, without its secrets."""

    def __init__(self, target: Target) -> None:
        self._secrets = _secrets(target)
        self._is_mattermost = target.config.type == MATTERMOST
        self._has_token = target.config.google is not None

    def answer(self, text: str) -> str:
        """Return an endpoint's answer for display; for an HTML page its title and text."""
        if self._is_mattermost:  # push contract 11
            with contextlib.suppress(msgspec.DecodeError, UnicodeError):
                error = msgspec.json.decode(text, type=_MattermostError)
                text = f"{error.message}.{error.detailed_error}" if error.detailed_error else error.message
        return self.detail(_page_text(text) if text.lstrip().startswith("<") else text)

    def detail(self, text: str) -> str:
        """Return a text for display: one line, without secrets, truncated."""
        line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
        if self._has_token:
            line = _TOKEN.sub(HIDDEN, line)
        for secret in self._secrets:
            line = line.replace(secret, HIDDEN)
        for secret in self._secrets:
            line = _without_beginning(line, secret)
        return truncate(line, MAX_BYTES)


def truncate(text: str, most: int) -> str:
    """Return the beginning of a text, at most `most` bytes of UTF-8."""
    return text.encode()[:most].decode("utf-8", "ignore")


def repeats(text: str, messages: Sequence[Pulled]) -> bool:
    """Return whether a text repeats content of these messages, and so must not be logged.

    That is 11 letters and digits in a row of data, key or attributes; a shorter value must appear whole. Data counts as
    sent and decoded. Other characters are ignored.
    """
    said = _letters(text)
    pieces = [said[at : at + _PIECE] for at in range(0, len(said) - _PIECE + 1, _STEP)]
    return any(
        value in said if len(value) < _PIECE + _STEP else any(piece in value for piece in pieces)
        for value in map(_letters, _values_of(messages))
        if value
    )


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).lower()


def _values_of(messages: Sequence[Pulled]) -> Iterator[str]:
    for each in messages:
        message = parse(each.fragment)
        yield message.data
        yield message.ordering_key
        yield from (message.attributes or {}).values()
        with contextlib.suppress(ValueError):  # it may be no base64
            yield decoded_data(message.data).decode(errors="ignore")


def _page_text(text: str) -> str:
    """Return the visible text of an HTML page, or of its beginning, without repeats of the title."""
    seen = _UNSEEN.sub("<>", text)
    found = _TITLE.search(seen)
    title = found[1].strip() if found else ""
    rest = [each.strip() for each in _TAG.split(_TITLE.sub("", seen))]
    return html.unescape(" ".join(each for each in (title, *(each for each in rest if each not in title)) if each))


class _MattermostError(msgspec.Struct):
    message: str
    detailed_error: str = ""


def _secrets(target: Target) -> list[str]:
    config = target.config
    whole = [config.header_value, config.verification_hash, config.mattermost_url, *target.secrets]
    # Parts reveal a secret too: X of `Bearer X`, path parts of a hook's URL, the base64 of a signing secret.
    parts = [*config.header_value.split(), *_PARTS.split(config.mattermost_url.partition("://")[2])[1:]]
    parts += [each.removeprefix(PREFIX) for each in target.secrets]
    hidden = {each for each in whole if each} | {each for each in parts if len(each) >= _MIN_HIDDEN_CHARACTERS}
    return sorted(hidden, key=len, reverse=True)


def _without_beginning(line: str, secret: str) -> str:
    """Hide the beginning of a secret at the end of a line that was truncated within it."""
    for length in range(min(len(secret) - 1, len(line)), _MIN_BEGINNING_CHARACTERS - 1, -1):
        if line.endswith(secret[:length]):
            return line[:-length] + HIDDEN
    return line


class WorkerDependencies(NamedTuple):
    """Dependencies of a worker."""

    upstream: Upstream
    sender: HttpSender
    clock: Clock
    random: Callable[[], float]  # in [0, 1)
    tally: DeliveryTally
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep  # waits for so many seconds
    token: Callable[[Target], str] = attrgetter("identity_token")  # returns the present identity token of a target
    require_lease: Callable[[], None] = lambda: None
    """Raises `Away` after the end of the process's lease. Called after a pull, and before each other call that changes
    something upstream."""


class AttemptOutcome(NamedTuple):
    """Result of a request."""

    answer: EndpointAnswer | None  # None: there was none
    error: str  # why it was not accepted; empty: it was
    milliseconds: int
    undecodable: int


class TargetCycle:
    """Base of the delivery loops: sends messages of one target, and reports the outcome without secrets.

    Raises `ValueError` for a bad target.
    """

    def __init__(self, target: Target, means: WorkerDependencies, report: WorkerReport) -> None:
        self._target, self._means, self._report = target, means, report
        self._deliveries = Deliveries(target)
        form = target.config.google
        self._google = None if form is None else GoogleDeliveries(target, form)
        self._details = FailureTexts(target)
        self._accepted = retry.ACCEPTED_BY_MATTERMOST if target.config.type == MATTERMOST else retry.ACCEPTED
        self._policy = retry.policy_of(target.config)
        self._history = retry.FailureHistory()
        self._defects: set[type[Exception]] = set()
        most = target.config.max_outstanding or DEFAULT_OUTSTANDING
        self._at_once = most if target.is_parallel else 1  # maximum concurrent deliveries
        self.batch = retry.first_batch(self._deliveries.most)  # maximum messages of the next delivery
        self._under_way: set[asyncio.Task[None]] = set()  # concurrent deliveries
        self.ended = asyncio.Event()  # nothing more is to be sent; deliveries under way continue
        self.gone = False  # the subscription is deleted

    async def rest(self) -> None:
        """Wait for deliveries under way."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def abandon(self) -> None:
        """Cancel deliveries under way, and give their messages back."""
        for delivery in self._under_way:
            delivery.cancel()
        await self.rest()

    async def _send(self, messages: Sequence[Pulled], *, attempt: int, limit: float) -> AttemptOutcome:
        """Send messages; `attempt` from 1, `limit` in seconds. Raises `NotAsked` if nothing was sent."""
        means = self._means
        now, began = means.clock.wall(), means.clock.monotonic()
        if self._google is not None:
            delivery = self._google.delivery(messages[0], attempt=attempt, token=means.token(self._target))
        else:
            delivery = self._deliveries.delivery(messages, attempt=attempt, now=now // 1000)
        answer, error = None, ""
        try:
            answer = await means.sender.send(
                self._deliveries.url, delivery.headers, delivery.body, seconds=limit, at_once=self._at_once
            )
        except NotAsked:
            raise
        except SendFailed as failed:
            error = self._details.detail(str(failed)) or "no answer"
        else:
            if answer.status not in self._accepted:
                said = self._details.answer(answer.text)
                error = f"HTTP {answer.status}: {said}" if said else f"HTTP {answer.status}"
        took, status = means.clock.monotonic() - began, answer.status if answer else 0
        short = truncate(error, MAX_ERROR)
        self._report.note_attempt(Attempt(now, len(messages), status, took, len(delivery.body), short))
        return AttemptOutcome(answer, error, took, delivery.undecodable)

    def _note_refusal(self, messages: Sequence[Pulled], answer: EndpointAnswer, error: str, advice: str = "") -> str:
        said = self._details.answer(answer.text) or error
        # An endpoint may repeat message content, which must not be logged.
        reason = f"HTTP {answer.status}" if repeats(said, messages) else error
        failure = self._failure(SEND, said, answer.status)
        if advice:
            failure = msgspec.structs.replace(failure, detail=f"{failure.detail} ({advice})")
        self._report.record_failure(failure, reason)
        return said

    def _stop_for_good(self, answer: EndpointAnswer) -> None:
        self.ended.set()
        self._report.record_stop(self._failure(SEND, ENDPOINT_GONE, answer.status))

    def _note_not_asked(self, reason: NotAsked) -> int:
        """Report that the endpoint was not asked; return the milliseconds until it may be."""
        if self._report.failure is None or self._report.failure.what != SEND:
            self._report_failure(SEND, str(reason))
        # Jitter: all subscriptions of the endpoint got the same `Retry-After`.
        return max(_MIN_CIRCUIT_WAIT_MS, int(1000 * reason.seconds * (1 + retry.JITTER * self._means.random())))

    def _report_failure(self, what: str, detail: str) -> None:
        self._report.record_failure(self._failure(what, detail))

    def _report_defect(self, what: str, error: Exception) -> None:
        """Report a defect; log its type and place once. Its text may hold secrets."""
        self._report_failure(what, f"unexpected {type(error).__name__}")
        if type(error) in self._defects:
            return
        self._defects.add(type(error))
        *_, (frame, line) = traceback.walk_tb(error.__traceback__)
        place = f"{frame.f_code.co_filename}:{line}"
        logger.error("push.defect", subscription=self._target.path, kind=type(error).__name__, place=place)

    def _failure(self, what: str, detail: str, status: int = 0) -> Failure:
        return Failure(self._means.clock.wall(), what, self._details.detail(detail), status)

    def _succeed(self) -> None:
        self._history = retry.after_success(self._policy, self._history)

    def _accept(self, count: int, outcome: AttemptOutcome, limit: float) -> None:
        self._succeed()
        self._report.record_delivery(count, outcome.undecodable, self._means.clock.wall())
        seconds = outcome.milliseconds / 1000
        self.batch = retry.batch_after(self.batch, self._deliveries.most, messages=count, seconds=seconds, limit=limit)

    def _wait(self, asked: float | None = None) -> int:
        chance = self._means.random()
        self._history, wait = retry.next_backoff(self._policy, self._history, retry_after=asked, random=chance)
        return wait

    def _wait_after(self, error: Exception, what: str) -> int | None:
        """Report an upstream error or a defect; return the milliseconds to wait, None if the subscription is gone."""
        if isinstance(error, Gone):
            logger.info("push.gone", subscription=self._target.path)
            self.gone = True
            self.ended.set()
            return None
        if not isinstance(error, UpstreamError):
            self._report_defect(what, error)  # it must end neither the process nor the worker (P4)
            return self._wait()
        self._report_failure(what, str(error))
        if isinstance(error, UpstreamRefused):
            self._history, wait = retry.note_refusal(self._history, random=self._means.random())
        else:
            most = retry.AWAY_MOST if what == CONSUME else retry.UNSTORED_MOST
            self._history, wait = retry.after_outage(self._policy, self._history, most, random=self._means.random())
        return wait
