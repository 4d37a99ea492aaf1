"""Tries: one request with messages of a target, and what is reported of it, in words without secrets."""

import asyncio
import contextlib
import html
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec
import structlog

from ams.core.clock import Clock
from ams.core.messages import decoded_data, parse
from ams.core.push_config import DEFAULT_OUTSTANDING, MATTERMOST
from ams.push import retry
from ams.push.delivery import PREFIX, Deliveries, GoogleDeliveries
from ams.push.report import CONSUME, SEND, Report, Tally
from ams.push.sender import EndpointAnswer, HttpSender, NotAsked, SendFailed
from ams.push.upstream import Gone, Pulled, Refused, Target, Upstream, UpstreamError
from ams.wire.push import Attempt, Failure

MAX_BYTES = 300  # of a detail, as UTF-8
HIDDEN = "***"
_LEAST_PART = 8  # characters of a part of a value that is hidden by itself; shorter ones are words
_LEAST_BEGINNING = 4  # characters of the beginning of a secret, at the end of a cut text, that are hidden too

_PARTS = re.compile("[/?&=#]")  # between the parts of a URL, which begin with the host

_PIECE, _STEP = 8, 4  # characters that are looked for, from every fourth on: eleven in a row have such a piece in them
_TOKEN = re.compile(r"\beyJ[\w.-]*")  # a JWT, or its beginning where it was cut
_UNSEEN = re.compile(r"<(script|style)\b.*?(?:</\1\s*>|$)|<!--.*?(?:-->|$)", re.IGNORECASE | re.DOTALL)
_TITLE = re.compile(r"<title\b[^>]*>([^<]*)", re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>?")
logger = structlog.get_logger("ams.push")
LATE = "the messages were delivered, but their acknowledgement counts no more: they are delivered again"
ENDED = "HTTP 410: the endpoint is gone; nothing is delivered to it until its push configuration changes"
MAX_ERROR = 200  # bytes of an attempt's error: a hundred of them go into one heartbeat (`ams.http.routes.push`)
_LEAST_WAIT = 100  # milliseconds, for an endpoint whose circuit is open


class Details:
    """Words failures of one target."""

    def __init__(self, target: Target) -> None:
        self._secrets = _secrets(target)
        self._is_mattermost = target.config.type == MATTERMOST
        self._has_token = target.config.google is not None

    def answer(self, text: str) -> str:
        """Return what an endpoint answered as it may be shown; of a page its title and text."""
        if self._is_mattermost:  # push contract 11
            with contextlib.suppress(msgspec.DecodeError, UnicodeError):
                error = msgspec.json.decode(text, type=_MattermostError)
                text = f"{error.message}.{error.detailed_error}" if error.detailed_error else error.message
        return self.detail(_of_page(text) if text.lstrip().startswith("<") else text)

    def detail(self, text: str) -> str:
        """Return a text as it may be shown."""
        line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
        if self._has_token:
            line = _TOKEN.sub(HIDDEN, line)
        for secret in self._secrets:
            line = line.replace(secret, HIDDEN)
        for secret in self._secrets:
            line = _without_beginning(line, secret)
        return cut(line, MAX_BYTES)


def cut(text: str, most: int) -> str:
    """Return the beginning of a text, at most so many bytes of UTF-8."""
    return text.encode()[:most].decode("utf-8", "ignore")


def repeats(text: str, messages: Sequence[Pulled]) -> bool:
    """Return whether a text has anything in it of what these messages carry, so that no log may have it.

    That is eleven letters and digits in a row, of a shorter value all, of data as sent or decoded, key or attributes.
    What stands between letters, as spaces and quotes, counts for nothing.
    """
    said = _letters(text)
    pieces = [said[at : at + _PIECE] for at in range(0, len(said) - _PIECE + 1, _STEP)]
    return any(
        value in said if len(value) < _PIECE + _STEP else any(piece in value for piece in pieces)
        for value in map(_letters, _carried(messages))
        if value
    )


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).lower()


def _carried(messages: Sequence[Pulled]) -> Iterator[str]:
    for each in messages:
        message = parse(each.fragment)
        yield message.data
        yield message.ordering_key
        yield from (message.attributes or {}).values()
        try:
            yield decoded_data(message.data).decode(errors="ignore")
        except ValueError:  # it is no base64
            continue


def _of_page(text: str) -> str:
    """Return what people see of a page of HTML, or of its beginning; what its title says already is said once."""
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
    # A value as `Bearer X` is also given away by X, the URL of a hook by a part of its path, a secret by its base64.
    parts = [*config.header_value.split(), *_PARTS.split(config.mattermost_url.partition("://")[2])[1:]]
    parts += [each.removeprefix(PREFIX) for each in target.secrets]
    hidden = {each for each in whole if each} | {each for each in parts if len(each) >= _LEAST_PART}
    return sorted(hidden, key=len, reverse=True)


def _without_beginning(line: str, secret: str) -> str:
    """Return a line that does not end with the beginning of a secret, as when it was cut within one."""
    for length in range(min(len(secret) - 1, len(line)), _LEAST_BEGINNING - 1, -1):
        if line.endswith(secret[:length]):
            return line[:-length] + HIDDEN
    return line


class Means(NamedTuple):
    """Dependencies of a worker."""

    upstream: Upstream
    sender: HttpSender
    clock: Clock
    random: Callable[[], float]  # in [0, 1)
    tally: Tally
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep  # waits for so many seconds
    token: Callable[[Target], str] = attrgetter("identity_token")  # returns the present identity token of a target


class Outcome(NamedTuple):
    """Result of a request."""

    answer: EndpointAnswer | None  # None: there was none
    error: str  # why it was not accepted; empty: it was
    milliseconds: int
    undecodable: int


class Tries:
    """Sends messages of one target and tells its report, without secrets. Raises `ValueError` for a bad target."""

    def __init__(self, target: Target, means: Means, report: Report) -> None:
        self._target, self._means, self._report = target, means, report
        self._path = target.path
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
        if self._google is not None:
            delivery = self._google.delivery(messages[0], attempt=attempt, token=means.token(self._target))
        else:
            delivery = self._deliveries.delivery(messages, attempt=attempt, now=now // 1000)
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
            if answer.status not in self._accepted:
                said = self._details.answer(answer.text)
                error = f"HTTP {answer.status}: {said}" if said else f"HTTP {answer.status}"
        took = means.clock.monotonic() - began
        status = answer.status if answer else 0
        self._report.attempted(Attempt(now, len(messages), status, took, len(delivery.body), cut(error, MAX_ERROR)))
        return Outcome(answer, error, took, delivery.undecodable)

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
        """Report that an endpoint is not asked; return the milliseconds until it may be."""
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

    def _failure(self, what: str, detail: str, status: int = 0) -> Failure:
        return Failure(self._means.clock.wall(), what, self._details.detail(detail), status)


class TargetCycle:
    """The base of the cycles that deliver a target; raises `ValueError` when there is something wrong with it."""

    def __init__(self, target: Target, means: Means, report: Report) -> None:
        self._target, self._means, self._report = target, means, report
        self._tries = Tries(target, means, report)
        self._policy = retry.policy_of(target.config)
        self._history = retry.History()
        self.batch = retry.first_batch(self._tries.most)  # most messages of the next delivery
        self.gone = False  # whether the subscription does not exist any more
        self.stopped = False  # whether the endpoint wants nothing any more

    def _succeed(self) -> None:
        self._history = retry.succeeded(self._policy, self._history)

    def _accept(self, count: int, outcome: Outcome, limit: float) -> None:
        self._succeed()
        self._report.delivered(count, outcome.undecodable, self._means.clock.wall())
        self.batch = retry.batch_after(
            self.batch, self._tries.most, messages=count, seconds=outcome.milliseconds / 1000, limit=limit
        )

    def _wait(self, asked: float | None = None) -> int:
        self._history, wait = retry.failed(self._policy, self._history, retry_after=asked, random=self._means.random())
        return wait

    def _wait_after(self, error: Exception, what: str) -> int | None:
        """Report an error that is not the endpoint's; return the milliseconds to wait, None when all is gone."""
        if isinstance(error, Gone):
            logger.info("push.gone", subscription=self._target.path)
            self.gone = True
            return None
        if isinstance(error, Refused):
            self._tries.failed(what, str(error))
            self._history, wait = retry.refused(self._history, random=self._means.random())
            return wait
        if isinstance(error, UpstreamError):
            self._tries.failed(what, str(error))
            most = retry.AWAY_MOST if what == CONSUME else retry.UNSTORED_MOST
            self._history, wait = retry.away(self._policy, self._history, most, random=self._means.random())
            return wait
        self._tries.defect(what, error)  # it must end neither the process nor the worker (P4)
        return self._wait()
