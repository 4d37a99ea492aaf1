"""`ams top`: topics and subscriptions of a project while they work, the busiest or the most behind first."""

import contextlib
import fnmatch
import os
import queue
import select
import shutil
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Literal, NamedTuple

import httpx
import msgspec

from ams.cli.arguments import option
from ams.cli.command import PageOptions, Session, with_options
from ams.cli.exit_codes import Usage
from ams.cli.output import columns, emit, json_line, note, printable, short_name
from ams.client import wire
from ams.client.errors import ClientError, NotAms, Unreachable, refusal
from ams.client.transport import failure, httpx_arguments, trust
from ams.client.wire.call import non_empty
from ams.wire.service import Counts, ViewEnd

MAX_SILENCE_SECONDS = 45.0  # then a silent view is reopened; the service sends a sign each 15 s
PAUSE, LONGEST_PAUSE = 1.0, 15.0
MAX_NAMES = 100  # topics and subscriptions of one view
MAX_RATE_AGE_SECONDS = 2.5  # older rates count as 0: the service sends changes each second
_ALTERNATE, _BACK, _HOME, _REST = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H", "\x1b[J"


Order = Literal["lag", "age", "in", "out", "name"]
KEYS: Mapping[str, Order] = {"l": "lag", "a": "age", "i": "in", "o": "out", "n": "name"}  # they choose an order


class ViewRow(msgspec.Struct, frozen=True):
    """Current row of a topic or a subscription; rates are messages per second."""

    topic: str
    subscription: str = ""  # empty: this is of the topic itself
    messages: int | None = None  # published ever; of a topic
    lag: int | None = None
    oldest_unacked_seconds: int | None = None
    published: float = 0.0
    acknowledged: float | None = None
    push: str = ""


class Picture(msgspec.Struct, frozen=True):
    """All rows at one moment."""

    time: str
    rows: Sequence[ViewRow]


@with_options
def top(
    session: Session,
    sort: Annotated[Order, option("What comes first; while it is shown the keys l, a, i, o and n choose it.")] = "lag",
    match: Annotated[str, option("Only topics and subscriptions whose names are like this.", metavar="GLOB")] = "*",
    every: Annotated[float, option("Seconds between two pictures.", min=0.2)] = 1.0,
    once: Annotated[bool, option("One picture, of rates over a second or two, then end.", "--once")] = False,
) -> None:
    """Show topics and subscriptions while they work.

    Of each: what waits, since when, and how much comes and goes, as it changes.
    With -o json, and where the output is no terminal, each picture is written below the one before.
    """
    topics, of_topic = _names(session, match)
    if not topics and not of_topic:
        raise Usage(f"no topic or subscription of {session.project} has a name like {match!r}")
    watch = ViewWatch(session, topics, of_topic)
    drawn = sys.stdout.isatty() and sys.stdin.isatty() and not session.for_programs and not once
    if not drawn:
        _write(session, watch, sort, every, once=once)
        return
    with _screen() as key:
        while True:
            watch.take(every if watch.now else None)
            pressed = key()
            if pressed == "q":
                return
            sort = KEYS.get(pressed, sort)
            _draw(session.project, watch, sort)


def _names(session: Session, match: str) -> tuple[list[str], dict[str, str]]:
    """Return topics, and topics by subscription, up to the limit of a view; prints what was left out."""
    project, every = session.project, PageOptions(every=True)
    found = session.fetch_pages("topics", every, lambda page: wire.list_topics(project, **page.query))
    topics = fnmatch.filter((short_name(each.name) for each in found.topics), match)
    listed = session.fetch_pages("subscriptions", every, lambda page: wire.list_subscriptions(project, **page.query))
    of_topic = {short_name(each.name): short_name(each.topic) for each in listed.subscriptions}
    of_topic = {name: of_topic[name] for name in fnmatch.filter(of_topic, match)}
    if len(topics) + len(of_topic) > MAX_NAMES:
        note(f"{len(topics) + len(of_topic)} names, {MAX_NAMES} are shown: choose others by --match")
        of_topic = dict(list(of_topic.items())[: MAX_NAMES // 2])
        topics = topics[: MAX_NAMES - len(of_topic)]
    return topics, of_topic


class _Ended(NamedTuple):
    error: Exception


class ViewWatch:
    """Counts of a view, which a thread follows."""

    def __init__(self, session: Session, topics: Sequence[str], of_topic: Mapping[str, str]) -> None:
        """`of_topic` is the topic of each subscription."""
        self._of_topic = of_topic
        self._queue: queue.SimpleQueue[Counts | ClientError | _Ended] = queue.SimpleQueue()
        self._before: Counts | None = None
        self.now: Counts | None = None
        self._came = 0.0
        """Monotonic time of the last counts."""
        self.trouble = ""
        """Reason for missing counts."""

        def follow() -> None:
            try:
                for each in counts(session, topics, list(of_topic)):
                    self._queue.put(each)
            except Exception as error:
                self._queue.put(_Ended(error))

        threading.Thread(target=follow, daemon=True).start()

    def take(self, seconds: float | None) -> None:
        """Read counts for some seconds; None: until the first ones. Raises the error that ended the view."""
        until = None if seconds is None else time.monotonic() + seconds
        while until is None or time.monotonic() < until:
            try:
                found = self._queue.get(timeout=None if until is None else max(until - time.monotonic(), 0))
            except queue.Empty:
                return
            if isinstance(found, _Ended):
                raise found.error
            if isinstance(found, ClientError):
                self.trouble = found.message
            else:
                self._before, self.now, self._came, self.trouble = self.now, found, time.monotonic(), ""
            if until is None:
                return

    def picture(self, order: Order) -> Picture:
        """Return all rows, sorted."""
        if self.now is None:
            return Picture("", [])
        found = self.now
        topics = [
            ViewRow(name, messages=each.messages, published=self._rate(lambda c: c.topics[name].messages))  # noqa: B023
            for name, each in found.topics.items()
        ]
        rates = {row.topic: row.published for row in topics}
        subscriptions = [
            ViewRow(
                self._of_topic.get(name, ""), name, None, each.lag, each.oldest_unacked_seconds,
                rates.get(self._of_topic.get(name, ""), 0.0),
                self._rate(lambda c: c.subscriptions[name].current),  # noqa: B023
                each.push or "",
            )
            for name, each in found.subscriptions.items()
        ]  # fmt: skip

        def rank(row: ViewRow) -> tuple[float, str, str]:
            largest = {"lag": row.lag, "age": row.oldest_unacked_seconds, "in": row.published, "out": row.acknowledged}
            return -(largest.get(order) or 0), row.topic, row.subscription

        return Picture(found.time, sorted([*subscriptions, *topics], key=rank))

    def _rate(self, value: Callable[[Counts], int]) -> float:
        if self._before is None or self.now is None or time.monotonic() - self._came > MAX_RATE_AGE_SECONDS:
            return 0.0
        try:
            grown = value(self.now) - value(self._before)
        except KeyError:
            return 0.0
        seconds = (datetime.fromisoformat(self.now.time) - datetime.fromisoformat(self._before.time)).total_seconds()
        return round(max(grown, 0) / max(seconds, 0.001), 1)


def text(picture: Picture) -> str:
    """Write a picture as a table."""
    head = ("TOPIC", "SUBSCRIPTION", "LAG", "OLDEST", "IN/S", "OUT/S", "MESSAGES", "PUSH")
    rows = [
        (
            row.topic, row.subscription, _number(row.lag), _age(row.oldest_unacked_seconds), f"{row.published:,.1f}",
            "" if row.acknowledged is None else f"{row.acknowledged:,.1f}", _number(row.messages), row.push,
        )
        for row in picture.rows
    ]  # fmt: skip
    return columns(head, rows)


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _age(seconds: int | None) -> str:
    if seconds is None:
        return ""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _write(session: Session, watch: ViewWatch, sort: Order, every: float, *, once: bool) -> None:
    watch.take(None)
    while True:
        if watch.trouble:
            note(watch.trouble)
        watch.take(MAX_RATE_AGE_SECONDS if once else every)
        picture = watch.picture(sort)
        emit(json_line(picture) if session.for_programs else text(picture))
        if once:
            return
        if not session.for_programs:
            emit("")


def _draw(project: str, watch: ViewWatch, sort: Order) -> None:
    size = shutil.get_terminal_size()
    keys = ", ".join(f"{letter} {order}" for letter, order in KEYS.items())
    said = watch.trouble or f"first: {sort}"
    head = [f"{printable(project)}  {watch.picture(sort).time}  {said}", f"keys: {keys}, q quit", ""]
    lines = [*head, *text(watch.picture(sort)).splitlines()][: size.lines - 1]
    sys.stdout.write(_HOME + "".join(f"{line[: size.columns]}\x1b[K\r\n" for line in lines) + _REST)
    sys.stdout.flush()


@contextlib.contextmanager
def _screen() -> Iterator[Callable[[], str]]:
    """Take over the terminal and restore it at the end; yields a function that returns the pressed key."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)

    def key() -> str:
        ready, _, _ = select.select([fd], [], [], 0)
        return os.read(fd, 1).decode("ascii", "ignore") if ready else ""

    handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    tty.setcbreak(fd)
    sys.stdout.write(_ALTERNATE)
    try:
        yield key
    finally:
        sys.stdout.write(_BACK)
        sys.stdout.flush()
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTERM, handler)


def counts(session: Session, topics: Sequence[str], subscriptions: Sequence[str]) -> Iterator[Counts | ClientError]:
    """Yield counts as they change, or the error while disconnected. Raises `ClientError` if it ends for good."""
    pause = PAUSE
    while True:
        try:
            for each in _view(session, topics, subscriptions):
                pause = PAUSE
                yield each
        except Unreachable as error:
            if isinstance(error, NotAms):
                raise
            yield error
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def _view(session: Session, topics: Sequence[str], subscriptions: Sequence[str]) -> Iterator[Counts]:
    endpoint, at = session.client.endpoint, session.at
    arguments = httpx_arguments(endpoint, at.token, trust(endpoint, at.ca, None, None), MAX_SILENCE_SECONDS, at.bearer)
    path = f"/v1/projects/{session.project}:watch"
    query = non_empty(topics=",".join(topics), subscriptions=",".join(subscriptions))
    try:
        with httpx.Client(**arguments) as client, client.stream("GET", path, params=query) as answer:
            if answer.status_code != httpx.codes.OK:
                raise refusal(answer.status_code, answer.read(), answer.headers.get("retry-after", ""))
            yield from _read_events(answer.iter_lines())
    except httpx.HTTPError as error:
        raise failure(error, endpoint) from error


def _read_events(lines: Iterator[str]) -> Iterator[Counts]:
    name = ""
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data" and name == "counts":
            yield msgspec.json.decode(value, type=Counts)
        elif field == "data" and name == "end":
            end = msgspec.json.decode(value, type=ViewEnd)
            if end.code < httpx.codes.INTERNAL_SERVER_ERROR:
                raise ClientError(end.reason)
            return  # a stop: another node, or the same one again, goes on
