"""A call: what is sent and how its answer reads, apart from any connection."""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import Any, Generic, NamedTuple, TypeVar, cast
from urllib.parse import quote

import msgspec

from ams.client.errors import InvalidInput
from ams.wire.actions import ACTIONS, takes_google_names

T = TypeVar("T")
Json = dict[str, Any]  # an object passed on as it came

_VARIABLE = re.compile(r"{(\w+)}")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,255}")
_RESOURCE = re.compile(r"[a-zA-Z0-9_-]{1,255}|(?![gG][oO][oO][gG])[a-zA-Z][a-zA-Z0-9._~+%-]{2,254}")
"""Names that a path may hold (contract 2); repeated here, because this package depends on the wire only."""


class Versioned(NamedTuple, Generic[T]):
    """What was read, and in which version."""

    value: T
    version: str
    """The `ETag` of the answer; empty when the service gives none."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request and the reader of its answer; `T` is what the answer reads into."""

    method: str
    path: str
    """Path below the endpoint, from `/v1` on."""
    read: Callable[[bytes], T]
    """Reads the body of a success; raises `msgspec.DecodeError` when it is not what the contract says."""
    body: bytes | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = False
    """True if sending it again, after an answer that was lost, does no harm; a GET never does any."""
    successes: frozenset[int] = frozenset({200})
    """Statuses of answers that `read` reads; all others of AMS are errors, or of something else."""
    versioned: bool = False
    """True if the answer reads into `Versioned`."""

    def with_version(self) -> "Call[Versioned[T]]":
        """Return the same call, of which the answer comes with its version."""
        return cast("Call[Versioned[T]]", replace(self, versioned=True))

    def if_match(self, version: str) -> "Call[T]":
        """Return the same change, made only while what it changes has this version; `ChangedMeanwhile` otherwise.

        An empty version is any.
        """
        return replace(self, headers={**self.headers, "If-Match": version}) if version else self

    @property
    def may_repeat(self) -> bool:
        """True if it may be sent again when it is not known whether it was carried out."""
        return self.repeatable or self.method == "GET"


@functools.cache
def reader(kind: type[T]) -> Callable[[bytes], T]:
    """Return what reads a JSON body into `kind`, a struct of the wire; `NoneType`: it says nothing but its 200."""
    return cast("Callable[[bytes], T]", nothing) if kind is NoneType else msgspec.json.Decoder(kind).decode


def nothing(_body: bytes) -> None:
    """Read an answer that says nothing but its 200: zero bytes or `{}`."""


def json_body(content: object) -> bytes:
    """Write the body of a request."""
    return msgspec.json.encode(content)


def page(size: int, token: str) -> dict[str, str]:
    """Return the query of a list (contract 4); size 0 means all."""
    return given(pageSize=str(size) if size else "", pageToken=token)


def given(**values: str) -> dict[str, str]:
    """Return a query of those values that are not empty."""
    return {name: value for name, value in values.items() if value}


def call_of(
    action: str,
    answer: type[T],
    *names: str,
    body: object = None,
    query: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    repeatable: bool = False,
) -> Call[T]:
    """Return a call of an action of the table.

    Args:
        action: Its name there.
        answer: What the answer reads into; `NoneType` for one that says nothing but its 200.
        names: What its path names, in that order; raises `InvalidInput` for one that the service would refuse.
        body: Written as JSON, unless it is bytes.
        query: Values of query parameters.
        headers: Header fields besides the usual ones.
        repeatable: As of a `Call`.
    """
    method, path, kinds = _request_of(action)
    content = body if body is None or isinstance(body, bytes) else json_body(body)
    read = reader(answer)  # type: ignore[arg-type]  # a type is hashable
    segments = [quote(checked(kind, name, action), safe="") for kind, name in zip(kinds, names, strict=True)]
    return Call(method, path % tuple(segments), read, content, query or {}, headers or {}, repeatable)


@functools.cache
def _request_of(action: str) -> tuple[str, str, list[str]]:
    """Return the method, the path with `%s` for each name in it, and of what kinds the names are."""
    row = ACTIONS[action]
    return row.method, _VARIABLE.sub("%s", row.whole_path), _VARIABLE.findall(row.whole_path)


def checked(kind: str, text: str, action: str = "") -> str:
    """Return a name of this kind in a request of `action`; raise `InvalidInput` for what the service would refuse.

    Checked before sending (contract 2), because a slash or a colon would ask for another resource than the one named.
    """
    rule = _RESOURCE if takes_google_names(action, kind) else _NAME
    if not rule.fullmatch(text):
        raise InvalidInput(f"Invalid {kind} name", 400, "INVALID_ARGUMENT")
    return text
