"""A schema: the tables of the registry, or of the certificate service; how they are made; and what errors mean.

Two may share one database of PostgreSQL: the names of their tables, locks and channels differ. A new database gets the
tables at once and is marked as having had all migrations; an old one is migrated. Only then is the migration library
loaded, as that alone would take a third of the time a start may take.
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
Work = Callable[[sa.Connection], T]  # one transaction; it may be run again, so it does nothing elsewhere

# Names of constraints and indexes.
NAMING = {
    "pk": "%(table_name)s_key",
    "fk": "%(table_name)s_%(column_0_name)s_exists",
    "uq": "%(table_name)s_%(column_0_name)s_unique",
    "ix": "%(table_name)s_by_%(column_0_name)s",
}

logger = structlog.get_logger("ams.registry")


@dataclass(frozen=True)
class Schema:
    """Tables, and what belongs to them."""

    what: str  # what a person calls it: `registry`
    tables: sa.MetaData
    outcomes: sa.Table  # made by `outcomes_table`; only on PostgreSQL, which several nodes may share
    taken: Mapping[str, str]  # unique constraints a client can meet, and their error texts
    absent: str  # the error text for a client when what a row refers to is not there
    migrations: str  # where Alembic finds the migrations: `package:folder`
    version: str  # table that holds the newest migration the database has had
    head: str  # the newest migration
    channel: str  # the channel through which nodes on PostgreSQL notify each other
    serving: int  # key of the lock that each node on PostgreSQL shares while it serves
    owns: Callable[[str], bool]  # whether a table of this name would be one of these, or of nothing known


def outcomes_table(name: str) -> sa.Table:
    """Make the table of marks: one of each transaction of the last hour, to look up how a commit ended."""
    return sa.Table(
        name,
        sa.MetaData(naming_convention=NAMING),
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("now()")),
        sa.Index(f"{name}_by_made_at", "made_at"),
    )


async def in_thread(pool: ThreadPoolExecutor, function: Callable[..., T], *given: object) -> T:
    """Run a function in a thread of a pool, as the present request, which lines of the log then name."""
    run = contextvars.copy_context().run
    return await asyncio.get_running_loop().run_in_executor(pool, run, function, *given)


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


def prepare(connection: sa.Connection, schema: Schema) -> None:
    """Make or migrate the tables. Raises `Unusable` for a database that is not ours, or of a newer version."""
    names = [name for name in sa.inspect(connection).get_table_names() if schema.owns(name)]
    if not names:
        create(connection, schema)
        return
    if schema.version not in names:
        raise Unusable(f"the {schema.what}'s database belongs to something else; choose another one")
    if _revision(connection, schema) != schema.head:
        migrate(connection, schema)


def create(connection: sa.Connection, schema: Schema) -> None:
    """Create all tables in an empty database, and mark it as having had all migrations."""
    create_tables(connection, schema)
    version = _version(schema)
    version.create(connection)
    connection.execute(sa.insert(version).values(version_num=schema.head))


def create_tables(connection: sa.Connection, schema: Schema) -> None:
    """Create all tables but that of the version."""
    schema.tables.create_all(connection, checkfirst=False)
    if connection.dialect.name == "postgresql":
        schema.outcomes.metadata.create_all(connection, checkfirst=False)


def migrate(connection: sa.Connection, schema: Schema) -> None:
    """Run the migrations that the database has not had."""
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


def _revision(connection: sa.Connection, schema: Schema) -> str | None:
    if schema.version not in sa.inspect(connection).get_table_names():
        return None
    return connection.scalar(sa.select(_version(schema).c.version_num))


def _version(schema: Schema) -> sa.Table:
    return sa.Table(
        schema.version,
        sa.MetaData(),
        sa.Column("version_num", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("version_num", name=f"{schema.version}_pkc"),
    )
