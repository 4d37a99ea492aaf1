"""Opening a database: its tables made or migrated, its key the right one, and changes of others heard.

A new database gets the tables at once and is marked as having had all migrations; an old one is migrated. Only then
is the migration library loaded, as that alone would take a third of the time a start may take.
"""

from collections.abc import Sequence

import structlog
from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, insert, inspect, select

from ams.core.errors import AmsError, RegistryUnavailable, Unusable
from ams.storage.database.database import Database, is_postgresql
from ams.storage.database.schema import Schema, reason
from ams.storage.free_space import UNLIMITED, FreeSpace

logger = structlog.get_logger("ams.registry")


def prepare(connection: Connection, schema: Schema) -> None:
    """Make or migrate the tables, within the connection's transaction.

    Raises `Unusable` for a database that is not ours or was written by a newer version.
    """
    names = [name for name in inspect(connection).get_table_names() if schema.owns(name)]
    if not names:
        create(connection, schema)
        return
    if schema.version not in names:
        raise Unusable(f"the {schema.what}'s database belongs to something else; choose another one")
    if _revision(connection, schema) != schema.head:
        migrate(connection, schema)


def create(connection: Connection, schema: Schema) -> None:
    """Create all tables in an empty database, and mark it as having had all migrations."""
    create_tables(connection, schema)
    version = _version(schema)
    version.create(connection)
    connection.execute(insert(version).values(version_num=schema.head))


def create_tables(connection: Connection, schema: Schema) -> None:
    """Create all tables but that of the version."""
    schema.tables.create_all(connection, checkfirst=False)
    if connection.dialect.name == "postgresql":
        schema.outcomes.metadata.create_all(connection, checkfirst=False)


def migrate(connection: Connection, schema: Schema) -> None:
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


def _revision(connection: Connection, schema: Schema) -> str | None:
    names: Sequence[str] = inspect(connection).get_table_names()
    return connection.scalar(select(_version(schema).c.version_num)) if schema.version in names else None


def _version(schema: Schema) -> Table:
    return Table(
        schema.version,
        MetaData(),
        Column("version_num", String(32), nullable=False),
        PrimaryKeyConstraint("version_num", name=f"{schema.version}_pkc"),
    )


async def opened(
    url: str,
    schema: Schema,
    keys: Table,
    fingerprint: str,
    *,
    other_key: str,
    password: str = "",
    space: FreeSpace = UNLIMITED,
) -> Database:
    """Open the database at `url`, SQLite's or PostgreSQL's, whose secrets have the key of this fingerprint.

    `keys` is the table that holds it. Raises `Unusable` for a database that is not ours, and with the text `other_key`
    for one with another key; `RegistryUnavailable`, which says why, for a PostgreSQL that does not answer now.
    """
    database = Database(url, schema, space, password=password)

    def prepare_and_compare(connection: Connection) -> None:
        prepare(connection, schema)
        known = connection.scalar(select(keys.c.fingerprint))
        if known is None:
            connection.execute(insert(keys).values(fingerprint=fingerprint))
        elif known != fingerprint:
            raise Unusable(other_key)

    try:
        await database.prepare(prepare_and_compare)
        await database.listen()
    except RegistryUnavailable as error:
        await database.close()
        raise _not_opened(url, schema, error) from None
    except BaseException:
        await database.close()
        raise
    return database


def _not_opened(url: str, schema: Schema, error: RegistryUnavailable) -> AmsError:
    """A server comes back by itself; a file does not."""
    said = reason(error.__cause__)
    if is_postgresql(url):
        return RegistryUnavailable(f"the {schema.what}'s database does not answer: {said}")
    return Unusable(f"the {schema.what}'s database is not usable: {said}")
