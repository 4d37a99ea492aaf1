"""Statements that SQLite and PostgreSQL both take: over many rows, in the dialect of each, and for pages of a list."""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from ams.core.clock import Clock
from ams.core.errors import InvalidInput
from ams.core.names import UserId
from ams.storage.registry.records import Page, PageRequest
from ams.storage.registry.tables import users

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

K = TypeVar("K", bound="DataclassInstance")

_ROWS = {"sqlite": "json_each(:rows) AS given", "postgresql": "json_array_elements(CAST(:rows AS json)) AS given"}
_VALUES = {
    "sqlite": sa.text("json_each(:given_values) AS given"),
    "postgresql": sa.text("json_array_elements_text(CAST(:given_values AS json)) AS given"),
}
NOW = {"sqlite": ":now", "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"}
"""The time in milliseconds: this process's on SQLite, which no other process uses; else the database's."""
KEEPS_SUBSCRIPTIONS = {"sqlite": "", "postgresql": "FOR KEY SHARE OF subscriptions"}
"""End of a statement for rows of subscriptions, so that no subscription goes before its row is there."""
_JOINED = {"sqlite": "group_concat", "postgresql": "string_agg"}


class ByRows:
    """A statement over rows: its text reads them from `{given}`, a row's third field as `text(2)` or `number(2)`.

    The rows are given as one JSON text: a statement for each would give up the interpreter each time. The two databases
    read JSON alike but for the function that makes rows of it, with one column, `value`.
    """

    def __init__(self, statement: str) -> None:
        statement = re.sub(r"\btext\((\d)\)", r"(given.value ->> \1)", statement)
        statement = re.sub(r"\bnumber\((\d)\)", r"CAST(given.value ->> \1 AS BIGINT)", statement)
        self._texts: dict[str, sa.TextClause] = {
            dialect: sa.text(statement.replace("{given}", rows)) for dialect, rows in _ROWS.items()
        }

    def run(self, connection: sa.Connection, rows: Sequence[Sequence[object]], **said: object) -> sa.CursorResult[Any]:
        """Run the statement once, for all rows; return what came of it. `said` are its other parameters."""
        return connection.execute(self._texts[connection.dialect.name], {"rows": json.dumps(rows), **said})


class ByDialect:
    """A statement whose text has `{now}` for the time in milliseconds, `{joined}` for the function that joins texts."""

    def __init__(self, statement: str) -> None:
        self._texts: dict[str, sa.TextClause] = {
            dialect: sa.text(statement.replace("{now}", now).replace("{joined}", _JOINED[dialect]))
            for dialect, now in NOW.items()
        }

    def run(self, connection: sa.Connection, clock: Clock, **said: object) -> sa.CursorResult[Any]:
        """Run the statement; `said` are its parameters."""
        return connection.execute(self._texts[connection.dialect.name], {**said, **now(connection, clock)})


def now(connection: sa.Connection, clock: Clock) -> Mapping[str, object]:
    """Return the parameter that `NOW` needs in the dialect of a connection."""
    return {"now": clock.wall()} if connection.dialect.name == "sqlite" else {}


def among(connection: sa.Connection, values: Iterable[str]) -> sa.Select[Any]:
    """Return the query for these texts, for a condition `column.in_(...)` that holds however many there are."""
    rows = _VALUES[connection.dialect.name].bindparams(given_values=json.dumps(list(values)))
    return sa.select(sa.column("value", sa.String)).select_from(rows)


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

    Items made after the first page do not shift the later ones. Rows are counted in the table of `number` alone, so
    joins of the query must not change how many there are, unless the caller gives their `total`.
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
