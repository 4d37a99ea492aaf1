"""Handlers of actions: their arguments and answers, and the handler of each action.

An answer is a whole body, or goes out piece by piece: as fast as the client reads, never as a whole in memory.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
import structlog
from starlette.responses import Response
from starlette.types import Scope

from ams.access.admission import Caller
from ams.core.errors import AmsError, InvalidInput
from ams.core.names import ProjectName, SchemaName, SnapshotName, SubscriptionName, TopicName, UserName
from ams.http.asgi import Receive, Send, query_value
from ams.http.limits import ClientLeft, gone, unless_left
from ams.service.delivering import UnreadAnswers
from ams.storage.registry.records import Page, PageRequest
from ams.wire.actions import ACTIONS, HOT
from ams.wire.base import ListPage

logger = structlog.get_logger("ams.http")

T = TypeVar("T")
U = TypeVar("U")
P = TypeVar("P", bound=ListPage)
S = TypeVar("S", bound=msgspec.Struct)

STREAMED_BYTES = 2 * 2**20  # that an answer in pieces counts for: one piece on its way, and the next one


class Streamed(NamedTuple):
    """The body of a 200 in pieces. An error before the first one is answered as for any other request."""

    media_type: str
    headers: Sequence[tuple[bytes, bytes]]
    pieces: AsyncIterator[bytes]
    held: int = STREAMED_BYTES  # bytes it counts for in the memory of answers, from its beginning to its end
    is_endless: bool = False  # it goes on until the client leaves, also while the next piece is waited for


class Versioned(NamedTuple):
    """The answer that shows a resource, and the state whose version a change may be meant for."""

    shown: object
    state: object


class StreamedResponse(Response):
    """Sends a `Streamed`.

    Each piece is made when the connection has taken the one before. When the next one cannot be made, the answer ends
    without its last chunk and the connection is closed: no client can take it for whole.
    """

    def __init__(self, streamed: Streamed, unread: UnreadAnswers, project: str) -> None:
        self._streamed, self._unread, self._project = streamed, unread, project

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; raises `Overloaded` when too many answers are not read."""
        pieces = self._streamed.pieces
        self._unread.check(self._project, self._streamed.held)
        with self._unread.held(self._project, self._streamed.held):
            try:
                await self._send_pieces(pieces, scope, receive, send)
            finally:
                if isinstance(pieces, AsyncGenerator):  # what it holds is let go at once, however this ended
                    await pieces.aclose()

    async def _send_pieces(self, pieces: AsyncIterator[bytes], scope: Scope, receive: Receive, send: Send) -> None:
        piece = await anext(pieces, b"")
        headers = [(b"content-type", self._streamed.media_type.encode()), *self._streamed.headers]
        if not piece:
            headers.append((b"content-length", b"0"))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        left = gone(receive)
        try:
            with contextlib.suppress(ClientLeft):
                while piece and not left.done():
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    coming = anext(pieces, b"")
                    piece = await (unless_left(coming, left) if self._streamed.is_endless else coming)
            await send({"type": "http.response.body", "body": b""})
        except (AmsError, asyncio.CancelledError) as error:  # cancelled: the service stops, its patience is over
            logger.warning("answer.cut", path=scope["path"], reason=str(error) or type(error).__name__)
        finally:
            left.cancel()


_CAPITALS = re.compile(r"[A-Z]+")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_MAX_DIGITS = 18
_ITEMS_PER_TURN = 500


class Call(NamedTuple):
    """One request, past the gate."""

    names: Mapping[str, str]  # path variables; all keep the name rule, except on open routes, which have none
    query: bytes
    admitted: Caller | None  # None on open routes, which check for themselves (contract 1.5)
    token: str | None
    body: Callable[[], Awaitable[bytes]]
    headers: Sequence[tuple[bytes, bytes]] = ()
    receive: Receive | None = None
    leave_unrecorded: Callable[[], None] = lambda: None  # called when the body is nothing for the audit log

    @property
    def caller(self) -> Caller:
        """The user of the request, on a route that is not open."""
        assert self.admitted is not None
        return self.admitted

    @property
    def project(self) -> ProjectName:
        """The project of the request, as it is named now."""
        return self.caller.here.name

    @property
    def topic(self) -> TopicName:
        """The topic the path names."""
        return TopicName(self.names["topic"])

    @property
    def subscription(self) -> SubscriptionName:
        """The subscription the path names."""
        return SubscriptionName(self.names["subscription"])

    @property
    def snapshot(self) -> SnapshotName:
        """The snapshot the path names."""
        return SnapshotName(self.names["snapshot"])

    @property
    def user(self) -> UserName:
        """The user the path names."""
        return UserName(self.names["user"])

    @property
    def schema(self) -> SchemaName:
        """The schema the path names."""
        return SchemaName(self.names["schema"])

    @contextlib.contextmanager
    def watched(self) -> Iterator["asyncio.Future[None] | None"]:
        """Watch for the client to leave, after its body was read; raise `ClientLeft` for what is cancelled then."""
        left = gone(self.receive) if self.receive else None
        try:
            yield left
        except asyncio.CancelledError:
            if left and left.done():
                raise ClientLeft from None
            raise
        finally:
            if left:
                left.cancel()

    def parameter(self, name: str) -> str | None:
        """Return the first value of a query parameter."""
        return query_value(self.query, name)

    def header(self, name: bytes) -> str:
        """Return all values of a header, joined by commas; `name` in small letters."""
        return ",".join(value.decode("latin-1") for given, value in self.headers if given == name)


Handler = Callable[[Call], Awaitable[object]]
"""Returns what the body of a 200 shows, to be written as JSON, None for an empty one, a `Streamed` or a `Versioned`."""


def bind_handlers(*routes: object) -> dict[str, Handler]:
    """Return the handler of each action: of `topics:changeAcl`, the method `topics_change_acl` of one of `routes`."""
    handlers = {}
    for name in ACTIONS.keys() - HOT:
        method = _CAPITALS.sub(r"_\g<0>", name).replace(":", "_").lower()
        found = [getattr(each, method) for each in routes if hasattr(each, method)]
        assert len(found) == 1, f"{name} needs one handler {method}, has {len(found)}"
        handlers[name] = found[0]
    return handlers


def page_request(call: Call) -> PageRequest:
    """Return which page is asked for; a size of 0 or less is everything (contract 4). Raises `InvalidInput`."""
    size = call.parameter("pageSize") or "0"
    if not _INTEGER.fullmatch(size):
        raise InvalidInput("Invalid page size")
    digits = "0" if size.startswith("-") else size.lstrip("+0") or "0"
    most = int(digits) if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS  # more than any list holds
    return PageRequest(most, call.parameter("pageToken") or "")


def shown(kind: type[S], source: object, /, **more: Any) -> S:
    """Show a record as it is on the wire: a field is the attribute of its name, unless it is in `more`."""
    fields = kind.__struct_fields__
    return kind(**{name: getattr(source, name) for name in fields if name not in more}, **more)


async def shown_list(items: Sequence[T], show: Callable[[T], U]) -> list[U]:
    """Show the items of a list, which may be as long as it likes; other requests have their turn in between."""
    shown = [show(item) for item in items[:_ITEMS_PER_TURN]]
    for start in range(_ITEMS_PER_TURN, len(items), _ITEMS_PER_TURN):
        await asyncio.sleep(0)
        shown += [show(item) for item in items[start : start + _ITEMS_PER_TURN]]
    return shown


async def shown_page(kind: Callable[..., P], name: str, page: Page[T], show: Callable[[T], object]) -> P:
    """Show a page of a list (contract 4) as its kind; `name` is the member that holds the items."""
    items = {name: await shown_list(page.items, show)}
    return kind(**items, next_page_token=page.next_token, total_size=page.total)
