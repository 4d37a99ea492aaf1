"""Bringing a database to the tables of this version.

A new database gets the tables at once and is marked as having had all migrations; an old one is migrated. Only then
is the migration library loaded, as that alone would take a third of the time a start may take.
"""

from collections.abc import Sequence

import structlog
from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, insert, inspect, select

from ams.errors import Unusable
from ams.registry.shared_tables import SHARED
from ams.registry.tables import METADATA

HEAD = "0004"
"""The newest migration."""

logger = structlog.get_logger("ams.registry")

_VERSION = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def prepare(connection: Connection) -> None:
    """Make or migrate the tables, within the connection's transaction.

    Raises `Unusable` for a database that is not ours or was written by a newer version.
    """
    names = inspect(connection).get_table_names()
    if not names:
        create(connection)
        return
    if _VERSION.name not in names:
        raise Unusable("the registry's database belongs to something else; choose another one")
    if connection.scalar(select(_VERSION.c.version_num)) != HEAD:
        migrate(connection)


def create(connection: Connection) -> None:
    """Make all tables in an empty database."""
    METADATA.create_all(connection, checkfirst=False)
    if connection.dialect.name == "postgresql":
        SHARED.create_all(connection, checkfirst=False)
    _VERSION.create(connection)
    connection.execute(insert(_VERSION).values(version_num=HEAD))


def migrate(connection: Connection, revision: str = "head") -> None:
    """Run the migrations up to `revision` that the database has not had."""
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", "ams.registry:migrations")
    config.attributes["connection"] = connection
    before = _revision(connection)
    try:
        command.upgrade(config, revision)
    except CommandError as error:
        raise Unusable("the registry's database was written by a newer version; install that one") from error
    logger.info("registry.migrated", before=before, after=_revision(connection))


def _revision(connection: Connection) -> str | None:
    names: Sequence[str] = inspect(connection).get_table_names()
    return connection.scalar(select(_VERSION.c.version_num)) if _VERSION.name in names else None
