"""Tables only PostgreSQL has, as they are of use only where several nodes share a database."""

from sqlalchemy import Column, DateTime, Index, MetaData, String, Table, text

from ams.registry.tables import NAMING

SHARED = MetaData(naming_convention=NAMING)

outcomes = Table(
    "outcomes",
    SHARED,
    Column("id", String(36), primary_key=True),
    Column("made_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
    Index("outcomes_by_made_at", "made_at"),
)
"""A mark of each transaction of the last hour, by which a node whose commit was not answered finds out how it ended."""
