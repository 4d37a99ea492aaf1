"""Which route a request is for. Values of a path are single segments, decoded after the path was cut."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

from ams.authn.http import json_bodies
from ams.authn.http.errors import MethodNotAllowed
from ams.authn.store.paging import PageRequest
from ams.authn.values import Peer
from ams.core.errors import BadRequest, NotFound
from ams.core.versions import Precondition, read_if_match
from ams.http.asgi import Header, query_value
from ams.wire.base import Request

T = TypeVar("T", bound=Request)

_MAX_DIGITS = 9
NOWHERE = "Page not found"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was admitted."""

    names: Mapping[str, str]
    """Values of the path by variable."""
    query: bytes
    headers: Sequence[Header]
    peer: Peer
    body: Callable[[], Awaitable[bytes]]

    @property
    def expected(self) -> Precondition:
        """The versions that a change is meant for; raises `InvalidInput`."""
        return read_if_match(",".join(value.decode("latin-1") for name, value in self.headers if name == b"if-match"))

    def parameter(self, name: str) -> str:
        """Return the first value of a query parameter, empty without one."""
        return query_value(self.query, name) or ""

    async def read(self, fields: type[T]) -> T:
        """Return the body as what its fields say; raise `BadRequest`."""
        return json_bodies.read(await self.body(), fields)

    def page(self) -> PageRequest:
        """Return which page is asked for; everything unless `pageSize` says otherwise. Raises `BadRequest`."""
        size = self.parameter("pageSize") or "0"
        if not size.isascii() or not size.isdigit() or len(size) > _MAX_DIGITS:
            raise BadRequest("Invalid page size")
        return PageRequest(int(size), self.parameter("pageToken"))


class Made(NamedTuple):
    """An answer: its status, and what is written as JSON; nothing for a 204."""

    code: int
    body: object = None
    name: str = ""
    """What follows the path for what was made, where the path does not name it: for the audit log."""
    version: str = ""
    """Of what is shown, for `If-Match`; empty for what has none."""


Handler = Callable[[Asked], Awaitable[Made]]


class Row(NamedTuple):
    """A method and path below `/v1`, its action, and its handler."""

    method: str
    path: str
    action: str
    handler: Handler
    open: bool = False
    """Whether no key is needed."""
    changes: bool = False
    """Whether a read-only key is not enough, and the request goes into the audit log."""
    of_keys: bool = False
    """Whether it is about keys or the audit log, which named keys may not use."""


class Routes:
    """The table of routes."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = [(row, tuple(f"/v1{row.path}".split("/"))) for row in rows]

    def find(self, method: str, scope: Mapping[str, Any]) -> tuple[Row, dict[str, str]]:
        """Return the route of a request and the values of its path; raise `NotFound` or `MethodNotAllowed`."""
        segments = _segments(scope)
        found = [(row, names) for row, pattern in self._rows if (names := _match(pattern, segments)) is not None]
        if not found:
            raise NotFound(NOWHERE)
        for row, names in found:
            if row.method == method:
                return row, names
        raise MethodNotAllowed(tuple(row.method for row, _ in found))


def _segments(scope: Mapping[str, Any]) -> tuple[str, ...]:
    raw = scope.get("raw_path")
    if not raw:
        return tuple(scope["path"].split("/"))
    return tuple(unquote(part) for part in raw.decode("latin-1").split("/"))


def _match(pattern: tuple[str, ...], segments: tuple[str, ...]) -> dict[str, str] | None:
    """Return the values of the variables in a path; None when the path does not match the pattern."""
    if len(pattern) != len(segments):
        return None
    names: dict[str, str] = {}
    for wanted, given in zip(pattern, segments, strict=True):
        if not wanted.startswith("{"):
            if wanted != given:
                return None
            continue
        name, _, suffix = wanted[1:].partition("}")
        value = given.removesuffix(suffix)
        if not value or (suffix and value == given):
            return None
        names[name] = value
    return names
