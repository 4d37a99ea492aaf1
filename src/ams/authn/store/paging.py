"""Lists of the certificate service: complete, oldest first, or in pages when that is asked for (15, A20)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import BigInteger, Column, Connection, Row, Select, literal

from ams.core.errors import BadRequest

T = TypeVar("T")
U = TypeVar("U")

MOST = 10_000
"""Items of a page, when pages are asked for."""
_MAX_DIGITS = 18


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which page is asked for: a size of 0 is everything, an empty token the first page."""

    size: int = 0
    token: str = ""


EVERYTHING = PageRequest()


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list."""

    items: Sequence[T]
    next_token: str = ""
    """Asks for the next page; empty on the last one."""

    def map(self, change: Callable[[T], U]) -> "Page[U]":
        """Return the page with each item changed."""
        return Page([change(item) for item in self.items], self.next_token)


def read_page(connection: Connection, query: Select[Any], number: Column[int], page: PageRequest) -> Page[Row[Any]]:
    """Read a page of `query`, ordered by `number`; raise `BadRequest` "Invalid page token"."""
    cut = query.order_by(number)
    if page.token:
        cut = cut.where(number > literal(_last(page.token), BigInteger))
    if page.size <= 0:
        return Page(connection.execute(cut).all())
    size = min(page.size, MOST)
    rows = connection.execute(cut.limit(size + 1)).all()
    if len(rows) <= size:
        return Page(rows)
    return Page(rows[:size], str(rows[size - 1].number))


def _last(token: str) -> int:
    """Return the number of the last item before a page."""
    if not token.isascii() or not token.isdigit() or len(token) > _MAX_DIGITS:
        raise BadRequest("Invalid page token")
    return int(token)
