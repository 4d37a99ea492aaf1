"""Reads of a project: ranges of topics, its last hour or day, and live views.

A range is JSON lines, or on request an Arrow IPC stream (`docs/reference/reading.md`). A live view is Server-Sent
Events until the client leaves or loses its rights.
"""

import asyncio
import contextlib
import importlib.util
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeVar

import msgspec

from ams.access.admission import Caller
from ams.core.clock import publish_time
from ams.core.errors import AmsError, InvalidInput, NotAcceptable
from ams.core.messages import Stored
from ams.core.names import topic_id_text
from ams.core.runs import runs_of
from ams.http.errors import refusal
from ams.http.hot_routes import RequestGate
from ams.http.routes.subscriptions import zulu_time
from ams.http.routing import STREAMED_BYTES, Call, Streamed
from ams.service.history import MetricsHistory
from ams.service.live_views import Live, Tail, ViewRequest
from ams.service.ranges import Range, RangeReader
from ams.wire import service as wire
from ams.wire.actions import ARROW, EVENTS, LINES
from ams.wire.projects import TopicOffsets
from ams.wire.subscriptions import OffsetAt
from ams.workers.pool import NoWorker, Pool, TaskFailed

T = TypeVar("T")

DEFAULT_MESSAGES = 10_000  # default number of messages of a read
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # of an Arrow IPC stream
COSTLY_COUNT = 300  # messages with attributes or keys that are encoded to Arrow here at once
_DATA = b'"data"'  # start of a fragment with data only
_WORKER_SECONDS = 10.0  # for a worker to encode a piece; after that it is encoded here
VIEW_BYTES = 64 * 1024  # bytes of a view without a tail in the memory of answers
SILENCE = 15.0  # seconds until a comment keeps a silent view open: proxies close silent connections
VIEW_HEADERS = ((b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"))
_NUMBER = re.compile(r"[0-9]{1,18}")
_TYPES_FOR_LINES = frozenset({LINES, "application/json", "application/*", "*/*"})
_ZERO_QUALITY = re.compile(r";\s*q=0(\.0*)?\s*(;|$)")


class ReadingRoutes:
    """The routes of ranges, live views and history."""

    def __init__(
        self, reader: RangeReader, live: Live, history: MetricsHistory, gate: RequestGate, workers: Pool
    ) -> None:
        self._reader, self._live, self._history, self._gate, self._workers = reader, live, history, gate, workers
        self._turn = asyncio.Lock()  # encodes one piece at a time

    async def topics_offsets(self, call: Call) -> TopicOffsets:
        bounds = await self._reader.bounds(call.caller, call.topic, call.parameter("subscription"))
        return TopicOffsets(bounds.oldest, bounds.end)

    async def topics_time_to_offset(self, call: Call) -> OffsetAt:
        topic = await self._reader.topic(call.caller, call.topic, call.parameter("subscription"))
        return OffsetAt(await self._reader.offset_at(topic, zulu_time(call.parameter("time") or "")))

    async def topics_read(self, call: Call) -> Streamed:
        form = wanted_form(call.header(b"accept"))
        wanted = _number(call, "from"), _number(call, "to"), _number(call, "max", 1) or DEFAULT_MESSAGES
        planned = await self._reader.plan(call.caller, call.topic, *wanted, call.parameter("subscription"))
        pieces = self._reader.messages(planned)
        if form == ARROW:
            made = arrow_stream(pieces, self._turn, self._workers, call.variables["project"])
            return Streamed(form, _headers(planned), made)
        as_line = partial(_encode_each, start=b'{"offset":', middle=b',"messageId":"', end=b"}\n")  # `ReadMessage`
        return Streamed(form, _headers(planned), in_turn(self._turn, pieces, as_line))

    async def projects_watch(self, call: Call) -> Streamed:
        tail, chosen = call.parameter("tail") or "", call.parameter("filter") or ""
        wanted = ViewRequest(_names(call, "topics"), _names(call, "subscriptions"), tail, chosen)

        async def admit(action: str, names: Mapping[str, str]) -> Caller:
            return await self._gate.admit_again(action, names, list(call.headers), call.query)

        held = STREAMED_BYTES if wanted.tail else VIEW_BYTES
        return Streamed(
            EVENTS, VIEW_HEADERS, events(self._live.view(wanted, call.variables, admit)), held, is_endless=True
        )

    async def projects_history(self, call: Call) -> wire.History:
        topics, subscriptions = _names(call, "topics"), _names(call, "subscriptions")
        return await self._history.read(call.caller, topics, subscriptions, call.parameter("span") or "hour")


def wanted_form(accept: str) -> str:
    """Return the form that an `Accept` header selects: Arrow if it is named and available, else JSON lines.

    Raises `NotAcceptable` if only Arrow is acceptable but not available.
    """
    ranges = [each.strip().lower() for each in accept.split(",") if each.strip()]
    named = {each.split(";")[0].strip() for each in ranges if not _ZERO_QUALITY.search(each)}
    if ARROW not in named:
        return LINES
    if importlib.util.find_spec("pyarrow") is not None:
        return ARROW
    if named & _TYPES_FOR_LINES:
        return LINES
    raise NotAcceptable(f"{ARROW} needs pyarrow, which is not installed here; {LINES} is always there")


async def arrow_stream(
    pieces: AsyncIterator[Sequence[Stored]], turn: asyncio.Lock, pool: Pool | None = None, project: Hashable = None
) -> AsyncGenerator[bytes]:
    """Yield the schema, a record batch for each piece, and the end of an Arrow IPC stream.

    Most pieces are encoded here, in turn with all other answers: faster than sending them to a worker.
    """
    # Not looked up among the loaded modules: an import in another thread may be incomplete there.
    arrow = _arrow() if _arrow.cache_info().currsize else await asyncio.to_thread(_arrow)

    async def encode_piece(piece: Sequence[Stored]) -> bytes:
        if pool is not None and _is_costly(piece) and pool.is_ready():
            with contextlib.suppress(NoWorker, TaskFailed):
                parts = arrow.parts_of(piece)
                async with pool.run_job(project, arrow.encode, parts, seconds=_WORKER_SECONDS) as [encoded_piece]:
                    return bytes(encoded_piece)
        async with turn:
            await asyncio.sleep(0)
            found: bytes = arrow.encoded_piece(piece)
            return found

    yield await encode_piece(())
    async for piece in pieces:
        yield await encode_piece(piece)
    yield END_OF_STREAM


@cache
def _arrow() -> Any:
    return importlib.import_module("ams.http.arrow")


def _is_costly(piece: Sequence[Stored]) -> bool:
    """Return whether encoding a piece takes more than about a millisecond: such messages are parsed one by one."""
    return len(piece) > COSTLY_COUNT and sum([not each.fragment.startswith(_DATA) for each in piece]) > COSTLY_COUNT


async def in_turn(turn: asyncio.Lock, pieces: AsyncIterator[T], made: Callable[[T], bytes]) -> AsyncGenerator[bytes]:
    """Yield each piece, encoded.

    All answers share one turn, and its holder yields to other requests. So no request waits for more than one piece,
    however many ranges are read at once.
    """
    async for piece in pieces:
        async with turn:
            await asyncio.sleep(0)
            encoded_piece = made(piece)
        yield encoded_piece


def _encode_each(messages: Sequence[Stored], start: bytes, middle: bytes, end: bytes) -> bytes:
    """Return messages, encoded: a single join, so each fragment is copied once."""
    parts: list[bytes] = []
    for first, time, fragments, *_ in runs_of(messages):
        shown = f'","publishTime":"{publish_time(time)}",'.encode()
        for offset, fragment in enumerate(fragments, first):
            number = b"%d" % offset
            parts += (start, number, middle, number, shown, fragment, end)
    return b"".join(parts)


def _headers(planned: Range) -> Sequence[tuple[bytes, bytes]]:
    return [
        (b"ams-topic-id", topic_id_text(planned.topic).encode()),
        (b"ams-first-offset", b"%d" % planned.first),
        (b"ams-next-offset", b"%d" % planned.next),
        (b"ams-end-offset", b"%d" % planned.end),
    ]


def _number(call: Call, name: str, least: int = 0) -> int | None:
    text = call.parameter(name)
    if not text:
        return None
    if not _NUMBER.fullmatch(text) or int(text) < least:
        raise InvalidInput(f"Invalid {name}(needs a whole number of {least} or more)")
    return int(text)


def _names(call: Call, parameter: str) -> list[str]:
    return [each for each in (call.parameter(parameter) or "").split(",") if each]


async def events(view: AsyncGenerator[wire.Counts | Tail | None]) -> AsyncGenerator[bytes]:
    """Yield a view as events, comments after silences, and its final error; raises errors before the first event."""
    now, told = asyncio.get_running_loop().time, None
    async with contextlib.aclosing(view):
        try:
            async for each in view:
                if each is not None:
                    told = now()
                    yield _view_event(each)
                elif told is not None and now() - told >= SILENCE:
                    told = now()
                    yield b":\n\n"
        except AmsError as error:
            if told is None:
                raise
            yield event("end", wire.ViewEnd(error.message, refusal(error).code))


def _view_event(seen: wire.Counts | Tail) -> bytes:
    if isinstance(seen, wire.Counts):
        return event("counts", seen)
    skipped = event("skipped", wire.ViewSkipped(seen.skipped)) if seen.skipped else b""
    start, middle = b'event: message\ndata: {"offset":', b',"message":{"messageId":"'
    return skipped + _encode_each(seen.messages, start, middle, b"}}\n\n")


def event(name: str, said: msgspec.Struct) -> bytes:
    """Return one event (WHATWG HTML, 9.2.6). JSON contains no line ends."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(said))
