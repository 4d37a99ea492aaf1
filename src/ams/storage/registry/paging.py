"""Pages of a list (contract 4): newest created first, cut by size, continued by an opaque token.

A token is the sequence number of the first item of the next page in base64. Items made after the first page do not
shift the later ones, and an item deleted in between is simply not there.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import BigInteger, Column, Connection, Row, Select, func, literal, select

from ams.core.errors import InvalidInput

T = TypeVar("T")
U = TypeVar("U")

_MAX_DIGITS = 18


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which page is asked for: a size of 0 or less is everything, an empty token the first page."""

    size: int = 0
    token: str = ""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list."""

    items: Sequence[T]
    next_token: str
    """Asks for the next page; empty on the last one."""
    total: int
    """Items of the whole list, not of the page."""

    def map(self, change: Callable[[T], U]) -> "Page[U]":
        """Return the page with each item changed."""
        return Page(tuple(change(item) for item in self.items), self.next_token, self.total)


def page_token(number: int) -> str:
    """Write the token of the page that begins with item `number`."""
    return base64.b64encode(b"%d" % number).decode("ascii")


def page_start(token: str) -> int:
    """Read the number of a token; raise `InvalidInput` "Invalid page token" when it is none."""
    try:
        digits = base64.b64decode(token, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput("Invalid page token") from None
    if not digits.isdigit() or len(digits) > _MAX_DIGITS:
        raise InvalidInput("Invalid page token")
    return int(digits)


def read_page(
    connection: Connection, query: Select[Any], number: Column[int], page: PageRequest, *, total: int | None = None
) -> Page[Row[Any]]:
    """Read a page of `query`, ordered by `number` from the newest down. Raises `InvalidInput`.

    What the query joins must not change how many rows there are: they are counted in the table of `number` alone,
    unless the caller knows their `total`.
    """
    if total is None:
        total = _count(connection, query, number)
    cut = query.order_by(number.desc())
    if page.token:
        # As large as a token may say: PostgreSQL refuses a number that its column could not hold.
        cut = cut.where(number <= literal(page_start(page.token), BigInteger))
    if not 0 < page.size < total:  # a size may be any number, also one no database takes
        return Page(connection.execute(cut).all(), "", total)
    rows = connection.execute(cut.limit(page.size + 1)).all()
    if len(rows) <= page.size:
        return Page(rows, "", total)
    return Page(rows[: page.size], page_token(rows[page.size].number), total)


def _count(connection: Connection, query: Select[Any], number: Column[int]) -> int:
    count = select(func.count()).select_from(number.table)
    if query.whereclause is not None:
        count = count.where(query.whereclause)
    return connection.scalar(count) or 0
