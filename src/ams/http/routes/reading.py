"""Ranges of topics over HTTP: JSON lines, or an Arrow IPC stream when it is asked for (`docs/reference/reading.md`)."""

import asyncio
import importlib.util
import re
from collections.abc import Sequence

from ams.core.clock import publish_time
from ams.core.errors import InvalidInput, NotAcceptable
from ams.core.messages import Stored
from ams.core.names import topic_id_text
from ams.core.runs import runs_of
from ams.http import arrow_stream
from ams.http.routes import answers
from ams.http.routes.subscriptions import zulu_time
from ams.http.routing import Call, Row, Streamed, in_turn
from ams.service.reading import Range, RangeReader, RangeRequest
from ams.wire.messages import ReadMessage
from ams.wire.projects import TopicOffsets
from ams.wire.subscriptions import OffsetAt
from ams.workers import Pool

LINES = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
DEFAULT_MESSAGES = 10_000
"""Of a read that does not say how many."""
_NUMBER = re.compile(r"[0-9]{1,18}")
_LINES_WILL_DO = frozenset({LINES, "application/json", "application/*", "*/*"})
_REFUSED = re.compile(r";\s*q=0(\.0*)?\s*(;|$)")


class ReadingRoutes:
    """The routes of ranges."""

    def __init__(self, reader: RangeReader, workers: Pool | None = None) -> None:
        self._reader = reader
        self._workers = workers
        self._turn = asyncio.Lock()
        """Of making a piece."""

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        one = "/projects/{project}/topics/{topic}"
        return [
            Row(
                "GET", one + ":offsets", "topics:offsets", self.offsets,
                answers=TopicOffsets, parameters=("subscription",),
            ),
            Row(
                "GET", one + ":timeToOffset", "topics:timeToOffset", self.of_time,
                answers=OffsetAt, parameters=("time", "subscription"),
            ),
            Row(
                "GET", one + ":read", "topics:read", self.read, answers=ReadMessage,
                parameters=("from", "to", "max", "subscription"), forms=(LINES, ARROW),
            ),
        ]  # fmt: skip

    async def offsets(self, call: Call) -> bytes:
        """Answer the bounds of a topic."""
        bounds = await self._reader.bounds(call.caller, call.topic, call.parameter("subscription"))
        return answers.encode(TopicOffsets(bounds.oldest, bounds.end))

    async def of_time(self, call: Call) -> bytes:
        """Answer where a read of what was published at `time` or later begins."""
        topic = await self._reader.topic(call.caller, call.topic, call.parameter("subscription"))
        time = zulu_time(call.parameter("time") or "")
        return answers.encode(OffsetAt(await self._reader.offset_at(topic, time)))

    async def read(self, call: Call) -> Streamed:
        """Answer the messages of a range, a piece at a time."""
        form = wanted_form(call.header(b"accept"))
        wanted = RangeRequest(_number(call, "from"), _number(call, "to"), _number(call, "max", 1) or DEFAULT_MESSAGES)
        planned = await self._reader.plan(call.caller, call.topic, wanted, call.parameter("subscription"))
        pieces = self._reader.messages(planned)
        if form == ARROW:
            made = arrow_stream.stream(pieces, self._turn, self._workers, call.names["project"])
            return Streamed(form, _headers(planned), made)
        return Streamed(form, _headers(planned), in_turn(self._turn, pieces, encoded_lines))


def wanted_form(accept: str) -> str:
    """Return the form an `Accept` header asks for: Arrow when it is named and can be made, else JSON lines.

    Raises `NotAcceptable` when Arrow is asked for alone and cannot be made.
    """
    ranges = [each.strip().lower() for each in accept.split(",") if each.strip()]
    named = {each.split(";")[0].strip() for each in ranges if not _REFUSED.search(each)}
    if ARROW not in named:
        return LINES
    if importlib.util.find_spec("pyarrow") is not None:
        return ARROW
    if named & _LINES_WILL_DO:
        return LINES
    raise NotAcceptable(f"{ARROW} needs pyarrow, which is not installed here; {LINES} is always there")


def encoded_lines(messages: Sequence[Stored]) -> bytes:
    """Write messages as lines, as `ReadMessage` describes them: one join, so that a fragment is copied once."""
    parts: list[bytes] = []
    for first, time, fragments, *_ in runs_of(messages):
        shown = f'","publishTime":"{publish_time(time)}",'.encode()
        for offset, fragment in enumerate(fragments, first):
            number = b"%d" % offset
            parts += (b'{"offset":', number, b',"messageId":"', number, shown, fragment, b"}\n")
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
