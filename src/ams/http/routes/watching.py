"""What a page shows of a project: its last hour or day, and live views as Server-Sent Events.

A live view is one answer that goes on until the client leaves or may no more.

By `fetch`, with the token in a header: a browser's `EventSource` cannot send one.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing

import msgspec

from ams.access.admission import Caller
from ams.core.clock import Milliseconds, publish_time, resource_date
from ams.core.errors import AmsError
from ams.core.runs import runs_of
from ams.http.errors import refusal
from ams.http.fast import Gate
from ams.http.routes import answers
from ams.http.routing import STREAMED_BYTES, Call, Row, Streamed
from ams.service.history import Asked, History, Past, Series
from ams.service.live import Live, Tail, Wanted
from ams.wire import service as wire
from ams.wire.service import Counts, ViewEnd, ViewSkipped

EVENTS = "text/event-stream"
HELD = 64 * 1024
"""Bytes that a view without a tail counts for in the memory of answers: one piece of counts is on its way."""
SILENCE = 15.0
"""Seconds after which a comment says that the view is alive: proxies close what is silent for longer."""
PROXY = ((b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"))


class WatchRoutes:
    """The route of live views."""

    def __init__(self, live: Live, gate: Gate) -> None:
        self._live = live
        self._gate = gate

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        return [
            Row(
                "GET", "/projects/{project}:watch", "projects:watch", self.watch, answers=Counts,
                parameters=("topics", "subscriptions", "tail", "filter"), forms=(EVENTS,),
            )
        ]  # fmt: skip

    async def watch(self, call: Call) -> Streamed:
        """Answer counts of topics and subscriptions as they change, and messages as they are published, as events."""
        wanted = Wanted(
            _names(call, "topics"),
            _names(call, "subscriptions"),
            call.parameter("tail") or "",
            call.parameter("filter") or "",
        )

        async def admit(action: str, names: Mapping[str, str]) -> Caller:
            return await self._gate.admit_again(action, names, list(call.headers), call.query)

        held = STREAMED_BYTES if wanted.tail else HELD
        return Streamed(EVENTS, PROXY, events(self._live.view(wanted, call.names, admit)), held, is_endless=True)


class HistoryRoutes:
    """The route of what was measured."""

    def __init__(self, history: History) -> None:
        self._history = history

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        return [
            Row(
                "GET", "/projects/{project}:history", "projects:history", self.read, answers=wire.History,
                parameters=("topics", "subscriptions", "span"),
            )
        ]  # fmt: skip

    async def read(self, call: Call) -> bytes:
        """Answer what was published, delivered and waiting in the last hour or day, by interval."""
        asked = Asked(_names(call, "topics"), _names(call, "subscriptions"), call.parameter("span") or "hour")
        found = await self._history.read(call.caller, asked)
        return answers.encode(_shown(found))


def _shown(past: Past) -> wire.History:
    ends = past.ends
    return wire.History(
        past.interval,
        resource_date(Milliseconds(ends[0] - past.interval * 1000)),
        resource_date(Milliseconds(ends[-1])),
        {name: wire.TopicHistory(of.grown(0), of.grown(1)) for name, of in past.topics.items()},
        {
            name: wire.SubscriptionHistory(of.grown(0), of.at_end(1), _ages(of.at_end(2), ends))
            for name, of in past.subscriptions.items()
        },
        None if past.project is None else _of_project(past.project),
    )


def _of_project(of: Series) -> wire.ProjectHistory:
    return wire.ProjectHistory(of.grown(0), of.grown(1), of.grown(2), of.at_end(3))


def _ages(oldest: Sequence[int | None], ends: Sequence[int]) -> list[int | None]:
    """Return for how many seconds what was published then had waited at the ends of intervals."""
    return [max(end - each, 0) // 1000 if each else None for each, end in zip(oldest, ends, strict=True)]


def _names(call: Call, parameter: str) -> list[str]:
    return [each for each in (call.parameter(parameter) or "").split(",") if each]


async def events(view: AsyncGenerator[Counts | Tail | None]) -> AsyncIterator[bytes]:
    """Yield a view as events, and a comment after a silence; what ends it is said by the last one.

    Raises what is raised before the view begins.
    """
    now, told = asyncio.get_running_loop().time, None
    async with aclosing(view):
        try:
            async for each in view:
                if each is not None:
                    told = now()
                    yield _written(each)
                elif told is not None and now() - told >= SILENCE:
                    told = now()
                    yield b":\n\n"
        except AmsError as error:
            if told is None:
                raise
            yield event("end", ViewEnd(error.message, refusal(error).code))


def _written(seen: Counts | Tail) -> bytes:
    if isinstance(seen, Counts):
        return event("counts", seen)
    parts = [event("skipped", ViewSkipped(seen.skipped))] if seen.skipped else []
    for first, time, fragments, *_ in runs_of(seen.messages):
        shown = f'","publishTime":"{publish_time(time)}",'.encode()
        for offset, fragment in enumerate(fragments, first):
            number = b"%d" % offset
            parts += (b'event: message\ndata: {"offset":', number, b',"message":{"messageId":"', number, shown)
            parts += (fragment, b"}}\n\n")
    return b"".join(parts)


def event(name: str, said: msgspec.Struct) -> bytes:
    """Write one event (WHATWG HTML, 9.2.6); JSON has no line ends in it."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), answers.encode(said))
