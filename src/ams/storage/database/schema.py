"""A schema: the tables of the registry, or of the certificate service, for the database; and what errors mean.

Two may share one database of PostgreSQL: the names of their tables, locks and channels differ.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from sqlalchemy import Column, Connection, DateTime, Index, MetaData, String, Table, text
from sqlalchemy.exc import DBAPIError

from ams.core.errors import AlreadyExists, AmsError, NotFound, RegistryUnavailable

T = TypeVar("T")
Work = Callable[[Connection], T]
"""What is done in one transaction. It may be run again from its beginning, so it does nothing elsewhere."""

NAMING = {
    "pk": "%(table_name)s_key",
    "fk": "%(table_name)s_%(column_0_name)s_exists",
    "uq": "%(table_name)s_%(column_0_name)s_unique",
    "ix": "%(table_name)s_by_%(column_0_name)s",
}
"""How constraints and indexes are called, on both engines."""

logger = structlog.get_logger("ams.registry")


@dataclass(frozen=True)
class Schema:
    """Tables, and what belongs to them."""

    what: str
    """What a person calls it: `registry`."""
    tables: MetaData
    outcomes: Table
    """Made by `outcomes_table`; only PostgreSQL has it, as it is of use only where several nodes share a database."""
    taken: Mapping[str, str]
    """Unique constraints a client can meet, and their error texts."""
    absent: str
    """The error text for a client when what a row refers to is not there."""
    migrations: str
    """Where Alembic finds the migrations: `package:folder`."""
    version: str
    """Table that holds the newest migration the database has had."""
    head: str
    """The newest migration."""
    channel: str
    """The channel through which nodes on PostgreSQL notify each other."""
    serving: int
    """Key of the lock that each node on PostgreSQL shares while it serves."""
    owns: Callable[[str], bool]
    """Whether a table of this name would be one of these, or of nothing known."""


def outcomes_table(name: str) -> Table:
    """Make the table of marks: one of each transaction of the last hour.

    By it a node whose commit was not answered finds out how it ended (`ams.storage.database.postgresql.store`).
    """
    return Table(
        name,
        MetaData(naming_convention=NAMING),
        Column("id", String(36), primary_key=True),
        Column("made_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
        Index(f"{name}_by_made_at", "made_at"),
    )


def driver_error(error: BaseException | None) -> Any:
    """Return what the driver raised."""
    return error.orig if isinstance(error, DBAPIError) else error


def reason(error: BaseException | None) -> str:
    """Return what the driver said, in one line and without any values."""
    lines = str(driver_error(error)).strip().splitlines()
    return lines[0] if lines else type(driver_error(error)).__name__


def unavailable(error: BaseException) -> RegistryUnavailable:
    """Say in the log why the database could not do its work, and return the error for the caller."""
    logger.error("registry.failed", reason=reason(error))
    failure = RegistryUnavailable()
    failure.__cause__ = error
    return failure


def broken_rule(error: BaseException, schema: Schema, *, foreign: bool, constraint: str) -> AmsError:
    """Say what a row means to a client that was refused by a constraint of this name, or for what it refers to."""
    if foreign:
        return NotFound(schema.absent)
    taken = schema.taken.get(constraint)
    return AlreadyExists(taken) if taken else unavailable(error)
