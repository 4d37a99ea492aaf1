"""Request bodies that more than one module reads."""

import json
from collections.abc import Callable, Sequence

import msgspec

from ams.core.errors import BadRequest, InvalidInput
from ams.http.wire import Reader, Shape
from ams.storage.registry.records import Grant

_strings = msgspec.json.Decoder(dict[str, str | None] | None)
_values = json.JSONDecoder(parse_int=str, parse_float=str)
"""Finds where a value ends; numbers of any size may be in it."""
_BLANKS = " \t\r\n"
"""What may stand around a JSON value."""


class MembershipBody(Shape):
    """An entry of `projects` in the body of a user or member; topics and subscriptions in it are ignored."""

    project: str | None = None
    roles: list[str] | None = None


class NewAccessList(Shape):
    """The names of an access list; the list is required."""

    authorized_users: list[str] | None = None


class SchemaReference(Shape):
    """A schema by its resource name `projects/P/schemas/X`; read as a map of texts (contract 1.2)."""

    schema: str | None = None


def bad_request() -> BadRequest:
    """Return the parse error of routes that have no text of their own (contract 16)."""
    return BadRequest("Invalid Request Body")


def grants(entries: Sequence[MembershipBody]) -> tuple[Grant, ...]:
    """Return the memberships that `entries` ask for."""
    return tuple(Grant(entry.project or "", tuple(entry.roles or ())) for entry in entries)


def access_list_reader(text: str) -> Callable[[bytes], list[str]]:
    """Return what reads the names of a modifyAcl body; it raises `InvalidInput` with `text`, also without the field."""
    reader = Reader(NewAccessList, lambda: InvalidInput(text))

    def read(body: bytes) -> list[str]:
        names = reader.read(body).authorized_users
        if names is None:
            raise InvalidInput(text)
        return names

    return read


def strings(body: bytes) -> dict[str, str]:
    """Read a body that is a plain map of texts, its names matched exactly (contract 1.2); an empty body is allowed.

    Null is the same as absent. Raises `BadRequest`.
    """
    if not body:
        return {}
    try:
        return {name: value for name, value in (_strings.decode(body) or {}).items() if value is not None}
    except (ValueError, RecursionError):
        raise bad_request() from None


def first_value(body: bytes) -> bytes:
    """Return the first JSON value of a body, for routes that do not look at what follows it (contract 1.2).

    A body without any text stays empty. Raises `BadRequest`.
    """
    try:
        text = body.decode().lstrip(_BLANKS)
        return text[: _values.raw_decode(text)[1]].encode() if text else b""
    except (ValueError, RecursionError):
        raise bad_request() from None
