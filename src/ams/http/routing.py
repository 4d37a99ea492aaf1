"""Rows of the route table: a module per resource lists its rows, `app` makes routes of them."""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from ams.access.admission import Caller
from ams.core.errors import InvalidInput
from ams.core.names import SchemaName, SubscriptionName, TopicName, UserName
from ams.http.asgi import Receive, query_value
from ams.http.limits import SMALL_BODY, ClientLeft, gone
from ams.http.streaming import Streamed
from ams.storage.registry.records import PageRequest
from ams.wire.base import Request

_INTEGER = re.compile(r"[+-]?[0-9]+")
_ALL = 10**18
"""More than any list holds."""


class Call(NamedTuple):
    """One request, past the gate."""

    names: Mapping[str, str]
    """Path variables; all keep the name rule, except on open routes, which have none."""
    query: bytes
    admitted: Caller | None
    """Who asks; None on the open routes, which check for themselves (contract 1.5)."""
    token: str | None
    body: Callable[[], Awaitable[bytes]]
    headers: Sequence[tuple[bytes, bytes]] = ()
    receive: Receive | None = None

    @property
    def caller(self) -> Caller:
        """Who asks."""
        assert self.admitted is not None
        return self.admitted

    @property
    def topic(self) -> TopicName:
        """The topic the path names."""
        return TopicName(self.names["topic"])

    @property
    def subscription(self) -> SubscriptionName:
        """The subscription the path names."""
        return SubscriptionName(self.names["subscription"])

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


Handler = Callable[[Call], Awaitable[bytes | Streamed]]


class Operation(NamedTuple):
    """What one route takes and gives, for the description of the API."""

    method: str
    path: str
    action: str | None
    """None: open."""
    summary: str
    reads: type[Request] | None = None
    """What the body is; None: none is read."""
    answers: type[msgspec.Struct] | None = None
    """What the body of a 200 is; None: it is empty."""
    parameters: tuple[str, ...] = ()
    """Query parameters and, with a capital letter, headers."""
    forms: tuple[str, ...] = ("application/json",)
    """Media types of the body of a 200; `answers` is then the body, or what each line of it is."""


class Row(NamedTuple):
    """A method and path under `/v1`, the action whose roles may use it (None: open), and who answers.

    The handler returns the body of a 200, whole or piece by piece; anything else is raised.
    """

    method: str
    path: str
    action: str | None
    handler: Handler
    reads: type[Request] | None = None
    answers: type[msgspec.Struct] | None = None
    parameters: tuple[str, ...] = ()
    forms: tuple[str, ...] = ("application/json",)
    counted: bool = False
    """Whether an open route counts for the rate of the user whose token it is asked with; all others do."""
    most: int | None = SMALL_BODY
    """Bytes a body may have; None: as many as a publish."""

    @property
    def operation(self) -> Operation:
        """What the route takes and gives; the first line about its handler says what it is for."""
        summary = (self.handler.__doc__ or "").split("\n")[0].rstrip(".;")
        return Operation(
            self.method, self.path, self.action, summary, self.reads, self.answers, self.parameters, self.forms
        )


PAGE = ("pageSize", "pageToken")
"""Query parameters of lists that come in pages (contract 4)."""


def page_request(call: Call) -> PageRequest:
    """Return which page of a list is asked for; a size of 0 or less means everything (contract 4).

    Raises `InvalidInput` "Invalid page size"; the token is read with the list.
    """
    size = call.parameter("pageSize") or "0"
    if not _INTEGER.fullmatch(size):
        raise InvalidInput("Invalid page size")
    return PageRequest(_page_size(size), call.parameter("pageToken") or "")


def _page_size(integer: str) -> int:
    """Read an integer of any number of digits; what is more than everything is everything."""
    if integer.startswith("-"):
        return 0
    digits = integer.lstrip("+0") or "0"
    return int(digits) if len(digits) <= 18 else _ALL
