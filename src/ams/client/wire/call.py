"""A call: the request and the decoder of its answer, independent of connections."""

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
Json = dict[str, Any]  # an object passed on unchanged

_VARIABLE = re.compile(r"{(\w+)}")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,255}")
_RESOURCE = re.compile(r"[a-zA-Z0-9_-]{1,255}|(?![gG][oO][oO][gG])[a-zA-Z][a-zA-Z0-9._~+%-]{2,254}")
"""Valid names in paths (contract 2); repeated here because this package depends only on the wire."""


class Versioned(NamedTuple, Generic[T]):
    """A value and its version."""

    value: T
    version: str
    """The `ETag` of the answer; may be empty."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request and the decoder of its answer, of type `T`."""

    method: str
    path: str
    """Path below the endpoint, from `/v1` on."""
    read: Callable[[bytes], T]
    """Decodes the body of a success. Raises `msgspec.DecodeError` if it breaks the contract."""
    body: bytes | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = False
    """True if idempotent, so that it can be retried after a lost answer; a GET always is."""
    successes: frozenset[int] = frozenset({200})
    """Statuses of success; all others are errors, or not from AMS."""
    versioned: bool = False
    """True if the answer is decoded into `Versioned`."""

    def with_version(self) -> "Call[Versioned[T]]":
        """Return the same call with a `Versioned` answer."""
        return cast("Call[Versioned[T]]", replace(self, versioned=True))

    def if_match(self, version: str) -> "Call[T]":
        """Return the same change, made only while what it changes has this version; `ChangedMeanwhile` otherwise.

        An empty version is any.
        """
        return replace(self, headers={**self.headers, "If-Match": version}) if version else self

    @property
    def may_repeat(self) -> bool:
        """True if it can be retried without knowing whether it was carried out."""
        return self.repeatable or self.method == "GET"


@functools.cache
def reader(kind: type[T]) -> Callable[[bytes], T]:
    """Return the decoder of a JSON body into `kind`, a struct of the wire; `NoneType` for an empty answer."""
    if kind is NoneType:
        return cast("Callable[[bytes], T]", lambda _: None)  # zero bytes or `{}`
    return msgspec.json.Decoder(kind).decode


def page(size: int, token: str) -> dict[str, str]:
    """Return the query of a list (contract 4); size 0 means all."""
    return non_empty(pageSize=str(size) if size else "", pageToken=token)


def non_empty(**values: str) -> dict[str, str]:
    """Return the query of the non-empty values."""
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
    content = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
    read = reader(answer)  # type: ignore[arg-type]  # a type is hashable
    segments = [quote(check_name(kind, name, action), safe="") for kind, name in zip(kinds, names, strict=True)]
    return Call(method, path % tuple(segments), read, content, query or {}, headers or {}, repeatable)


@functools.cache
def _request_of(action: str) -> tuple[str, str, list[str]]:
    """Return the method, the path with `%s` for each name, and the kinds of the names."""
    row = ACTIONS[action]
    return row.method, _VARIABLE.sub("%s", row.whole_path), _VARIABLE.findall(row.whole_path)


def check_name(kind: str, text: str, action: str = "") -> str:
    """Return a valid name of a kind in a request of `action`. Raises `InvalidInput` as the service would.

    Checked before sending (contract 2): a slash or a colon would address another resource.
    """
    rule = _RESOURCE if takes_google_names(action, kind) else _NAME
    if not rule.fullmatch(text):
        raise InvalidInput(f"Invalid {kind} name", 400, "INVALID_ARGUMENT")
    return text
