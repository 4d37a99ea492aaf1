"""What whoever keeps tables in a database says of them: the registry, and the certificate service.

Two may share one database of PostgreSQL: the names of their tables, locks and channels differ.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlalchemy import Column, DateTime, Index, MetaData, String, Table, text

NAMING = {
    "pk": "%(table_name)s_key",
    "fk": "%(table_name)s_%(column_0_name)s_exists",
    "uq": "%(table_name)s_%(column_0_name)s_unique",
    "ix": "%(table_name)s_by_%(column_0_name)s",
}
"""How constraints and indexes are called, on both engines."""


@dataclass(frozen=True)
class Schema:
    """Tables, and what belongs to them."""

    what: str
    """What a person calls it: `registry`."""
    tables: MetaData
    shared: MetaData
    """Tables only PostgreSQL has, as they are of use only where several nodes share a database."""
    outcomes: Table
    """One of `shared`, made by `outcomes_table`."""
    taken: Mapping[str, str]
    """Unique constraints a client can meet, and their error texts."""
    absent: str
    """What a client is told when what a row refers to is not there."""
    migrations: str
    """Where Alembic finds the migrations: `package:folder`."""
    version: str
    """Table that holds the newest migration the database has had."""
    head: str
    """The newest migration."""
    channel: str
    """What nodes on PostgreSQL tell each other through."""
    serving: int
    """Key of the lock that each node on PostgreSQL shares while it serves."""
    owns: Callable[[str], bool]
    """Whether a table of this name would be one of these, or of nobody we know."""


def outcomes_table(name: str, shared: MetaData) -> Table:
    """Make the table of marks: one of each transaction of the last hour.

    By it a node whose commit was not answered finds out how it ended (`ams.storage.database.postgresql.outcomes`).
    """
    return Table(
        name,
        shared,
        Column("id", String(36), primary_key=True),
        Column("made_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
        Index(f"{name}_by_made_at", "made_at"),
    )
