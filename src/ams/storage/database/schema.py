"""Schemas: tables of the registry or the certificate service, their creation and migration, and the meaning of errors.

Both may share one PostgreSQL database, as the names of their tables, locks and channels differ. A new database gets the
current tables and is marked as migrated. An old one is migrated; only then the migration library is imported, which is
slow.
"""

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa
import structlog
from sqlalchemy.exc import DBAPIError

from ams.core.errors import AlreadyExists, AmsError, NotFound, RegistryUnavailable, Unusable

T = TypeVar("T")
Work = Callable[[sa.Connection], T]  # one transaction; may run again, so it must have no other side effects

# Names of constraints and indexes.
NAMING = {
    "pk": "%(table_name)s_key",
    "fk": "%(table_name)s_%(column_0_name)s_exists",
    "uq": "%(table_name)s_%(column_0_name)s_unique",
    "ix": "%(table_name)s_by_%(column_0_name)s",
}

logger = structlog.get_logger("ams.registry")


@dataclass(frozen=True)
class DatabaseSchema:
    """Tables, with their error texts, migrations and locks."""

    what: str  # its name for people: `registry`
    tables: sa.MetaData
    outcomes: sa.Table  # made by `outcomes_table`; only on PostgreSQL
    taken: Mapping[str, str]  # error texts by unique constraint that a client can violate
    absent: str  # error text for a violated foreign key
    keys: sa.Table  # fingerprint of the key of the secrets
    other_key: str  # error text for another key
    migrations: str  # path of the migrations for Alembic: `package:folder`
    version: str  # table with the newest applied migration
    head: str  # newest migration
    channel: str  # PostgreSQL channel for notifications between nodes
    serving: int  # key of the advisory lock that each node shares while it serves
    owns: Callable[[str], bool]  # whether a table of this name belongs to this schema, or is unknown


def outcomes_table(name: str) -> sa.Table:
    """Make the table of marks: one per transaction of the last hour, to look up whether a commit succeeded."""
    return sa.Table(
        name,
        sa.MetaData(naming_convention=NAMING),
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("now()")),
        sa.Index(f"{name}_by_made_at", "made_at"),
    )


async def in_thread(pool: ThreadPoolExecutor, function: Callable[..., T], *given: object) -> T:
    """Run a function in a thread of a pool, in the current context, so that log lines name the request."""
    run = contextvars.copy_context().run
    return await asyncio.get_running_loop().run_in_executor(pool, run, function, *given)


def driver_error(error: BaseException | None) -> Any:
    """Return the driver's exception."""
    return error.orig if isinstance(error, DBAPIError) else error


def reason(error: BaseException | None) -> str:
    """Return the driver's message in one line, without values."""
    lines = str(driver_error(error)).strip().splitlines()
    return lines[0] if lines else type(driver_error(error)).__name__


def unavailable(error: BaseException) -> RegistryUnavailable:
    """Log why the database failed, and return the error for the caller."""
    logger.error("registry.failed", reason=reason(error))
    failure = RegistryUnavailable()
    failure.__cause__ = error
    return failure


def broken_rule(error: BaseException, schema: DatabaseSchema, *, foreign: bool, constraint: str) -> AmsError:
    """Return the error for a client that violated a constraint of this name or a foreign key."""
    if foreign:
        return NotFound(schema.absent)
    taken = schema.taken.get(constraint)
    return AlreadyExists(taken) if taken else unavailable(error)


def prepare(connection: sa.Connection, schema: DatabaseSchema) -> None:
    """Create or migrate the tables. Raises `Unusable` for a foreign database or one of a newer version."""
    names = [name for name in sa.inspect(connection).get_table_names() if schema.owns(name)]
    if not names:
        create(connection, schema)
        return
    if schema.version not in names:
        raise Unusable(f"the {schema.what}'s database belongs to something else; choose another one")
    if _revision(connection, schema) != schema.head:
        migrate(connection, schema)


def create(connection: sa.Connection, schema: DatabaseSchema) -> None:
    """Create all tables in an empty database and mark it as migrated."""
    create_tables(connection, schema)
    version = _version(schema)
    version.create(connection)
    connection.execute(sa.insert(version).values(version_num=schema.head))


def create_tables(connection: sa.Connection, schema: DatabaseSchema) -> None:
    """Create all tables except that of the version."""
    schema.tables.create_all(connection, checkfirst=False)
    if connection.dialect.name == "postgresql":
        schema.outcomes.metadata.create_all(connection, checkfirst=False)


def migrate(connection: sa.Connection, schema: DatabaseSchema) -> None:
    """Run the missing migrations."""
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", schema.migrations)
    config.attributes["connection"] = connection
    before = _revision(connection, schema)
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise Unusable(f"the {schema.what}'s database was written by a newer version; install that one") from error
    logger.info("registry.migrated", before=before, after=_revision(connection, schema))


def _revision(connection: sa.Connection, schema: DatabaseSchema) -> str | None:
    if schema.version not in sa.inspect(connection).get_table_names():
        return None
    return connection.scalar(sa.select(_version(schema).c.version_num))


def _version(schema: DatabaseSchema) -> sa.Table:
    return sa.Table(
        schema.version,
        sa.MetaData(),
        sa.Column("version_num", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("version_num", name=f"{schema.version}_pkc"),
    )
