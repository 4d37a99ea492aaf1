"""Statements for both SQLite and PostgreSQL: bulk statements with dialect-specific parts, and pages of lists."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import sqlalchemy as sa

from ams.core.clock import Clock
from ams.core.names import ProjectId, UserId
from ams.core.retention_clock import RetentionClock
from ams.storage.database.database import Database, page_start, page_token
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
        "digest": "",
        "kept": "",
        "row_id": "rowid",
        "row_id_among": "(rowid IN ",
    },
    "postgresql": {
        "given": "json_array_elements(CAST(:rows AS json)) AS given",
        "now": _DATABASE_NOW,
        "believed": _DATABASE_NOW,
        "joined": "string_agg",
        "digest": "md5",
        "kept": "FOR KEY SHARE OF subscriptions",
        "row_id": "ctid",
        "row_id_among": "ctid = ANY(ARRAY",
    },
}
_VALUES = {
    "sqlite": sa.text("json_each(:given_values) AS given"),
    "postgresql": sa.text("json_array_elements_text(CAST(:given_values AS json)) AS given"),
}


class Statement:
    """A statement with placeholders for parts that differ between the databases.

    - `{now}`: time in milliseconds, of this process on SQLite, of the database on PostgreSQL.
    - `{believed}`: the same for ages; on SQLite that of the `RetentionClock`, so that a wrong clock deletes nothing.
    - `{joined}`: the function that joins texts; `{digest}`: one that shortens a text for the network.
    - `{row_id}`, `{row_id_among}`: the place of a row, and its condition; close it with two parentheses.
    - `{kept}`, at the end: locks the subscriptions until the row is inserted.
    - `{given}`: rows, passed as one JSON text to avoid a call per row; the third field is `text(2)` or `number(2)`.
    """

    def __init__(self, statement: str) -> None:
        statement = re.sub(r"\btext\((\d)\)", r"(given.value ->> \1)", statement)
        statement = re.sub(r"\bnumber\((\d)\)", r"CAST(given.value ->> \1 AS BIGINT)", statement)
        self._texts = {dialect: sa.text(statement.format(**parts)) for dialect, parts in _PARTS.items()}

    def run(
        self, connection: sa.Connection, rows: Sequence[Sequence[object]] | None = None, /, **said: object
    ) -> sa.CursorResult[Any]:
        """Run the statement with the parameters `said`, which include `now` and `believed` if it has these."""
        if rows is not None:
            said["rows"] = json.dumps(rows)
        return connection.execute(self._texts[connection.dialect.name], said)


def among(connection: sa.Connection, values: Iterable[str]) -> sa.Select[Any]:
    """Return a query for these texts, for a condition `column.in_(...)` with any number of values."""
    rows = _VALUES[connection.dialect.name].bindparams(given_values=json.dumps(list(values)))
    return sa.select(sa.column("value", sa.String)).select_from(rows)


class RegistryContext(NamedTuple):
    """State shared by all parts of the registry."""

    database: Database
    secrets: Secrets
    clock: Clock
    retention_clock: RetentionClock
    quotas: "QuotaRecords"


class Records:
    """A part of the registry."""

    def __init__(self, shared: RegistryContext) -> None:
        self._database, self._secrets, self._clock, self._retention_clock, self._quotas = shared

    async def _page(
        self, query: sa.Select[Any], number: sa.Column[int], page: PageRequest, make: Callable[[sa.Row[Any]], T]
    ) -> Page[T]:
        return await self._database.read(lambda connection: read_page(connection, query, number, page, None).map(make))


def record(kind: type[K], row: sa.Row[Any], **more: Any) -> K:
    """Convert a row to a record; fields are the columns of the same name, except those in `more`."""
    names = [each.name for each in fields(kind) if each.name not in more]
    return kind(**{name: getattr(row, name) for name in names}, **more)


_CREATOR = users.alias("creator")


def with_creator(table: sa.Table, made_by: str = "created_by") -> sa.Select[Any]:
    """Select rows with the name of their creator, as `creator`."""
    return sa.select(table, _CREATOR.c.name.label("creator")).outerjoin(_CREATOR, _CREATOR.c.id == table.c[made_by])


def with_user_and_creator(table: sa.Table) -> sa.Select[Any]:
    """Select rows also with the name of their user, as `user`; oldest first."""
    query = with_creator(table).add_columns(users.c.name.label("user")).join(users, users.c.id == table.c.user_id)
    return query.order_by(table.c.number)


def is_named(table: sa.Table, project: ProjectId, name: str) -> sa.ColumnElement[bool]:
    """Return the condition that a row has this name in a project."""
    return (table.c.project_id == project) & (table.c.name == name)


def existing(user: UserId | None) -> sa.ScalarSelect[Any]:
    """Return a user's identity for a column of creators, null for a deleted user."""
    return sa.select(users.c.id).where(users.c.id == user).scalar_subquery()


def read_page(
    connection: sa.Connection, query: sa.Select[Any], number: sa.Column[int], page: PageRequest, total: int | None
) -> Page[Any]:
    """Read a page of rows of `query`, ordered by descending `number` (contract 4). Raises `InvalidInput`.

    Without `total`, rows are counted in the table of `number`, so joins must not change their number.
    """
    if total is None:
        count = sa.select(sa.func.count()).select_from(number.table)
        if query.whereclause is not None:
            count = count.where(query.whereclause)
        total = connection.scalar(count) or 0
    cut = query.order_by(number.desc())
    if page.token:
        # The type of the largest token: PostgreSQL refuses values out of the column's range.
        cut = cut.where(number <= sa.literal(page_start(page.token)[0], sa.BigInteger))
    if not 0 < page.size < total:  # `size` may exceed the integers of a database
        return Page(connection.execute(cut).all(), "", total)
    rows = connection.execute(cut.limit(page.size + 1)).all()
    if len(rows) <= page.size:
        return Page(rows, "", total)
    return Page(rows[: page.size], page_token(rows[page.size].number), total)
