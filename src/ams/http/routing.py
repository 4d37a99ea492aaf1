"""Handlers of actions: their arguments and answers, and the handler of each action.

An answer is a whole body, or sent in pieces as fast as the client reads, never whole in memory.
"""

import asyncio
import contextlib
import functools
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar, cast

import msgspec
import structlog
from starlette.responses import Response
from starlette.types import Scope

from ams.access.admission import Caller
from ams.core import names
from ams.core.clock import optional_date
from ams.core.errors import AmsError, refuse_if
from ams.http.asgi import Receive, Send, query_value
from ams.http.bodies import BodyReader, body_reader
from ams.http.limits import ClientLeft, cancel_if_left, watch_disconnect
from ams.service.delivery import UnreadAnswers
from ams.storage.registry.records import Page, PageRequest
from ams.wire.actions import ACTIONS, HOT
from ams.wire.base import ListPage, Request, Text
from ams.wire.projects import AccessListChange, Acl, NewAccessList

logger = structlog.get_logger("ams.http")

T = TypeVar("T")
U = TypeVar("U")
N = TypeVar("N", bound=str)
P = TypeVar("P", bound=ListPage)
R = TypeVar("R", bound=Request)
S = TypeVar("S", bound=msgspec.Struct)

STREAMED_BYTES = 2 * 2**20  # memory of an answer in pieces: one being sent, and the next


class Streamed(NamedTuple):
    """The body of a 200 in pieces. An error before the first one is answered as for any other request."""

    media_type: str
    headers: Sequence[tuple[bytes, bytes]]
    pieces: AsyncGenerator[bytes]
    held: int = STREAMED_BYTES  # bytes in the memory of answers, from start to end
    is_endless: bool = False  # lasts until the client leaves, even while it waits for the next piece


class Versioned(NamedTuple):
    """An answer that shows a resource, and the state whose version is sent for `If-Match`."""

    shown: object
    state: object


class StreamedResponse(Response):
    """Sends a `Streamed`.

    A piece is created when the connection has taken the last one. If that fails, the connection is closed without the
    last chunk: no client can mistake the answer for a complete one.
    """

    def __init__(self, streamed: Streamed, unread: UnreadAnswers, project: str) -> None:
        self._streamed, self._unread, self._project = streamed, unread, project

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. Raises `Overloaded` if too many answers are unread."""
        self._unread.check(self._project, self._streamed.held)
        with self._unread.hold_answer(self._project, self._streamed.held):
            async with contextlib.aclosing(self._streamed.pieces) as pieces:
                await self._send_pieces(pieces, scope, receive, send)

    async def _send_pieces(self, pieces: AsyncIterator[bytes], scope: Scope, receive: Receive, send: Send) -> None:
        piece = await anext(pieces, b"")
        headers = [(b"content-type", self._streamed.media_type.encode()), *self._streamed.headers]
        if not piece:
            headers.append((b"content-length", b"0"))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        left = watch_disconnect(receive)
        try:
            with contextlib.suppress(ClientLeft):
                while piece and not left.done():
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    coming = anext(pieces, b"")
                    piece = await (cancel_if_left(coming, left) if self._streamed.is_endless else coming)
            await send({"type": "http.response.body", "body": b""})
        except (AmsError, asyncio.CancelledError) as error:  # cancelled: the service's stop timed out
            logger.warning("answer.cut", path=scope["path"], reason=str(error) or type(error).__name__)
        finally:
            left.cancel()


_CAPITALS = re.compile(r"[A-Z]+")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_MAX_DIGITS = 18
_ITEMS_PER_TURN = 500


class PathVariable(Generic[N]):
    """A variable in the paths of actions, as an attribute of `Call`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, call: "Call", _owner: type) -> N:
        return cast("N", call.variables[self._name])


@dataclass
class Call:
    """One request, admitted by the gate."""

    topic = PathVariable[names.TopicName]("topic")
    subscription = PathVariable[names.SubscriptionName]("subscription")
    snapshot = PathVariable[names.SnapshotName]("snapshot")
    schema = PathVariable[names.SchemaName]("schema")
    user = PathVariable[names.UserName]("user")
    named_token = PathVariable[names.TokenName]("token")
    issuer = PathVariable[names.IssuerName]("issuer")
    binding = PathVariable[names.BindingName]("binding")
    registration = PathVariable[names.RegistrationId]("uuid")

    variables: Mapping[str, str]  # of the path; valid names, except on open routes, which have none
    query: bytes
    admitted: Caller | None  # None on open routes, which check for themselves (contract 1.5)
    token: str | None
    body: Callable[[], Awaitable[bytes]]
    headers: Sequence[tuple[bytes, bytes]] = ()
    receive: Receive | None = None
    leave_unrecorded: Callable[[], None] = lambda: None  # called if the body does not belong in the audit log

    @property
    def caller(self) -> Caller:
        """The user of the request, on a route that is not open."""
        assert self.admitted is not None
        return self.admitted

    @property
    def project(self) -> names.ProjectName:
        """Current name of the request's project."""
        return self.caller.here.name

    async def read(self, shape: type[R], refusal: str = "") -> R:
        """Return the parsed body. Raises `InvalidInput` with this text, `BadRequest` without one."""
        reader: BodyReader[R] = body_reader(shape, refusal)
        return reader.read(await self.body())

    @contextlib.contextmanager
    def watch_client(self) -> Iterator["asyncio.Future[None] | None"]:
        """Watch for the client's disconnect, after its body was read. Raises `ClientLeft` if that cancels the block."""
        left = watch_disconnect(self.receive) if self.receive else None
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
        """Return all values of a header, joined by commas; `name` in lower case."""
        return ",".join(value.decode("latin-1") for given, value in self.headers if given == name)


Handler = Callable[[Call], Awaitable[object]]
"""Returns the object of a 200's JSON body, None for an empty one, a `Streamed` or a `Versioned`."""


def forward(act: Callable[..., Awaitable[T]], *variables: str, show: Callable[[T], object] | None = None) -> Handler:
    """Return the handler of an action that needs its caller and these path variables only; `show` makes the answer."""

    async def handle(call: Call) -> object:
        result = await act(call.caller, *[call.variables[each] for each in variables])
        return show(result) if show else result

    return handle


def shown_acl(acl: Acl) -> Versioned:
    """Return an access list for the wire, with its version."""
    return Versioned(acl, acl.authorized_users)


def replace_acl(act: Callable[..., Awaitable[object]], variable: str, refusal: str) -> Handler:
    """Return the handler of a modifyAcl. Raises `InvalidInput` for a bad body, also without the list."""

    async def handle(call: Call) -> None:
        users = (await call.read(NewAccessList, refusal)).authorized_users
        refuse_if(users is None, refusal)
        await act(call.caller, call.variables[variable], users)

    return handle


def change_acl(act: Callable[..., Awaitable[Sequence[str]]], variable: str, refusal: str) -> Handler:
    """Return the handler of a changeAcl. Raises `InvalidInput` for a bad body, also without both lists."""

    async def handle(call: Call) -> Acl:
        change = await call.read(AccessListChange, refusal)
        refuse_if(change.add is None and change.remove is None, refusal)
        return Acl(await act(call.caller, call.variables[variable], change.add or [], change.remove or []))

    return handle


def bind_handlers(*routes: object) -> dict[str, Handler]:
    """Return the handler of each action: for `topics:changeAcl`, the method `topics_change_acl` of one of `routes`."""
    handlers = {}
    for name in ACTIONS.keys() - HOT:
        method = _CAPITALS.sub(r"_\g<0>", name).replace(":", "_").lower()
        found = [getattr(each, method) for each in routes if hasattr(each, method)]
        assert len(found) == 1, f"{name} needs one handler {method}, has {len(found)}"
        handlers[name] = found[0]
    return handlers


def page_request(call: Call) -> PageRequest:
    """Return the requested page; a size of 0 or less is everything (contract 4). Raises `InvalidInput`."""
    size = call.parameter("pageSize") or "0"
    refuse_if(not _INTEGER.fullmatch(size), "Invalid page size")
    digits = "0" if size.startswith("-") else size.lstrip("+0") or "0"
    most = int(digits) if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS  # larger than any list
    return PageRequest(most, call.parameter("pageToken") or "")


def wire_record(kind: type[S], source: object, /, **more: Any) -> S:
    """Return a record for the wire: fields are its attributes of the same name, or in `more`.

    Where the wire has a text, a time is written as a date, and None is empty.
    """
    for name, is_text in _fields(kind):
        if name not in more:
            value = getattr(source, name)
            more[name] = optional_date(value) if is_text and not isinstance(value, str) else value
    return kind(**more)


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> list[tuple[str, bool]]:
    return [(field.name, field.type in (str, Text)) for field in msgspec.structs.fields(kind)]


async def shown_list(items: Sequence[T], show: Callable[[T], U]) -> list[U]:
    """Return a list for the wire; long ones yield to other requests."""
    shown = [show(item) for item in items[:_ITEMS_PER_TURN]]
    for start in range(_ITEMS_PER_TURN, len(items), _ITEMS_PER_TURN):
        await asyncio.sleep(0)
        shown += [show(item) for item in items[start : start + _ITEMS_PER_TURN]]
    return shown


async def shown_page(kind: Callable[..., P], name: str, page: Page[T], show: Callable[[T], object]) -> P:
    """Return a page of a list for the wire (contract 4); `name` is the member with the items."""
    items = {name: await shown_list(page.items, show)}
    return kind(**items, next_page_token=page.next_token, total_size=page.total)
