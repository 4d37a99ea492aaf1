"""Statements that SQLite and PostgreSQL both take: over many rows, in the dialect of each, and for pages of a list."""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import sqlalchemy as sa

from ams.core.clock import Clock
from ams.core.errors import InvalidInput
from ams.core.names import UserId
from ams.core.retention_clock import RetentionClock
from ams.storage.database.database import Database
from ams.storage.registry.records import Page, PageRequest
from ams.storage.registry.tables import users
from ams.storage.secrets import Secrets

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from ams.storage.registry.projects import QuotaRecords

T = TypeVar("T")
K = TypeVar("K", bound="DataclassInstance")

_DATABASE_NOW = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
_PARTS = {
    "sqlite": {
        "given": "json_each(:rows) AS given",
        "now": ":now",
        "believed": ":believed",
        "joined": "group_concat",
        "kept": "",
    },
    "postgresql": {
        "given": "json_array_elements(CAST(:rows AS json)) AS given",
        "now": _DATABASE_NOW,
        "believed": _DATABASE_NOW,
        "joined": "string_agg",
        "kept": "FOR KEY SHARE OF subscriptions",
    },
}
_VALUES = {
    "sqlite": sa.text("json_each(:given_values) AS given"),
    "postgresql": sa.text("json_array_elements_text(CAST(:given_values AS json)) AS given"),
}


class Statement:
    """A statement whose text has parts that differ between the databases.

    `{now}` is the time in milliseconds: this process's on SQLite, which no other process uses; else the database's.
    `{believed}` is that of this process's `RetentionClock` there: ages go by it, so that a wrong time forgets nothing.
    `{joined}` is the function that joins texts. With `{kept}` at its end no subscription goes before its row is there.
    `{given}` are the rows, whose third field is `text(2)` or `number(2)`. They are given as one JSON text: a statement
    for each would give up the interpreter each time.
    """

    def __init__(self, statement: str) -> None:
        statement = re.sub(r"\btext\((\d)\)", r"(given.value ->> \1)", statement)
        statement = re.sub(r"\bnumber\((\d)\)", r"CAST(given.value ->> \1 AS BIGINT)", statement)
        self._texts = {dialect: sa.text(statement.format(**parts)) for dialect, parts in _PARTS.items()}

    def run(
        self,
        connection: sa.Connection,
        rows: Sequence[Sequence[object]] | None = None,
        /,
        *,
        clock: Clock | None = None,
        retention_clock: RetentionClock | None = None,
        **said: object,
    ) -> sa.CursorResult[Any]:
        """Run the statement; `clock` is for `{now}`, `retention_clock` for `{believed}`, `said` for all others."""
        if rows is not None:
            said["rows"] = json.dumps(rows)
        if connection.dialect.name == "sqlite":
            clocks = {"now": clock, "believed": retention_clock}
            said |= {name: each.wall() for name, each in clocks.items() if each is not None}
        return connection.execute(self._texts[connection.dialect.name], said)


def among(connection: sa.Connection, values: Iterable[str]) -> sa.Select[Any]:
    """Return the query for these texts, for a condition `column.in_(...)` that holds however many there are."""
    rows = _VALUES[connection.dialect.name].bindparams(given_values=json.dumps(list(values)))
    return sa.select(sa.column("value", sa.String)).select_from(rows)


class Shared(NamedTuple):
    """Common to all parts of the registry."""

    database: Database
    secrets: Secrets
    clock: Clock
    retention_clock: RetentionClock
    quotas: "QuotaRecords"
    cache_size: int


class Records:
    """A part of the registry."""

    def __init__(self, shared: Shared) -> None:
        self._database, self._secrets, self._clock, self._retention_clock, self._quotas, _ = shared


def record(kind: type[K], row: sa.Row[Any], **more: Any) -> K:
    """Make a record of a row: a field is the column of its name, unless it is in `more`."""
    names = [each.name for each in fields(kind) if each.name not in more]
    return kind(**{name: getattr(row, name) for name in names}, **more)


_CREATOR = users.alias("creator")


def with_creator(table: sa.Table, made_by: str = "created_by") -> sa.Select[Any]:
    """Select rows with the names of those who made them, as `creator`."""
    return sa.select(table, _CREATOR.c.name.label("creator")).outerjoin(_CREATOR, _CREATOR.c.id == table.c[made_by])


def with_user_and_creator(table: sa.Table) -> sa.Select[Any]:
    """Select rows likewise, with the names of the users they are of, as `user`; oldest first."""
    query = with_creator(table).add_columns(users.c.name.label("user")).join(users, users.c.id == table.c.user_id)
    return query.order_by(table.c.number)


def existing(user: UserId | None) -> sa.ScalarSelect[Any]:
    """Return a user's identity for a column of creators, null when the user is gone."""
    return sa.select(users.c.id).where(users.c.id == user).scalar_subquery()


def page_token(number: int) -> str:
    """Write the token of the page that begins with item `number`."""
    return base64.b64encode(b"%d" % number).decode("ascii")


def page_start(token: str) -> int:
    """Read the number of a token; raise `InvalidInput` "Invalid page token"."""
    try:
        digits = base64.b64decode(token, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput("Invalid page token") from None
    if not digits.isdigit() or len(digits) > 18:
        raise InvalidInput("Invalid page token")
    return int(digits)


def read_page(
    connection: sa.Connection,
    query: sa.Select[Any],
    number: sa.Column[int],
    page: PageRequest,
    *,
    total: int | None = None,
) -> Page[Any]:
    """Read a page of rows of `query`, ordered by `number` from the newest down (contract 4). Raises `InvalidInput`.

    Rows are counted in the table of `number` alone: joins must not change how many there are, without a given `total`.
    """
    if total is None:
        count = sa.select(sa.func.count()).select_from(number.table)
        if query.whereclause is not None:
            count = count.where(query.whereclause)
        total = connection.scalar(count) or 0
    cut = query.order_by(number.desc())
    if page.token:
        # As large as a token may say: PostgreSQL refuses a number that its column could not hold.
        cut = cut.where(number <= sa.literal(page_start(page.token), sa.BigInteger))
    if not 0 < page.size < total:  # a size may be any number, also one no database takes
        return Page(connection.execute(cut).all(), "", total)
    rows = connection.execute(cut.limit(page.size + 1)).all()
    if len(rows) <= page.size:
        return Page(rows, "", total)
    return Page(rows[: page.size], page_token(rows[page.size].number), total)


async def page_of(
    database: Database,
    query: sa.Select[Any],
    number: sa.Column[int],
    page: PageRequest,
    make: Callable[[sa.Row[Any]], T],
) -> Page[T]:
    """Return a page of values made of rows, as `read_page` reads them."""
    return await database.read(lambda connection: read_page(connection, query, number, page).map(make))
