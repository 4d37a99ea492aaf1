"""Answers that go out piece by piece: as fast as the client reads, never as a whole in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple, TypeVar

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ams.core.errors import AmsError
from ams.http.limits import gone
from ams.service.delivering import UnreadAnswers

logger = structlog.get_logger("ams.http")

T = TypeVar("T")

STREAMED_BYTES = 2 * 2**20
"""What an answer in pieces is counted as from its beginning to its end: one piece on its way, and the next one."""


async def in_turn(turn: asyncio.Lock, pieces: AsyncIterator[T], made: Callable[[T], bytes]) -> AsyncIterator[bytes]:
    """Yield what is made of each piece.

    All answers share one turn, and whoever has it lets other requests go first: however many ranges are read at once,
    nobody waits for more than one piece to be made.
    """
    async for piece in pieces:
        async with turn:
            await asyncio.sleep(0)
            encoded = made(piece)
        yield encoded


class Streamed(NamedTuple):
    """The body of a 200 in pieces. What goes wrong before the first one is answered as for any other request."""

    media_type: str
    headers: Sequence[tuple[bytes, bytes]]
    pieces: AsyncIterator[bytes]


class StreamedResponse(Response):
    """Sends a `Streamed`.

    Each piece is made when the connection has taken the one before. When the next one cannot be made, the answer ends
    without its last chunk and the connection is closed: no client can take it for whole.
    """

    def __init__(self, streamed: Streamed, unread: UnreadAnswers, project: str) -> None:
        self._streamed = streamed
        self._unread = unread
        self._project = project

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; raises `Overloaded` when too many answers are not read."""
        self._unread.check(self._project, STREAMED_BYTES)
        with self._unread.held(self._project, STREAMED_BYTES):
            await self._send(scope, receive, send)

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        pieces = self._streamed.pieces
        piece = await anext(pieces, b"")
        headers = [(b"content-type", self._streamed.media_type.encode()), *self._streamed.headers]
        if not piece:
            headers.append((b"content-length", b"0"))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        left = gone(receive)
        try:
            while piece and not left.done():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                piece = await anext(pieces, b"")
            await send({"type": "http.response.body", "body": b""})
        except (AmsError, asyncio.CancelledError) as error:  # cancelled: the service stops, its patience is over
            logger.warning("answer.cut", path=scope["path"], reason=str(error) or type(error).__name__)
        finally:
            left.cancel()
