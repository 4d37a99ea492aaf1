"""The table of the audit log, for each that keeps one."""

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, Text


def audit_table(metadata: MetaData, name: str) -> Table:
    """Make the table; a row is an `ams.audit.event.AuditEvent`. Rows are only ever added."""
    return Table(
        name,
        metadata,
        Column("number", Integer, primary_key=True, autoincrement=True),
        Column("id", String(36), nullable=False, unique=True),
        Column("at", BigInteger, nullable=False, comment="milliseconds since the epoch"),
        Column("service", Text, nullable=False),
        Column("action", Text, nullable=False),
        Column("resource", Text, nullable=False),
        Column("actor", Text, nullable=False),
        Column("address", Text, nullable=False),
        Column("code", Integer, nullable=False),
        Column("result", Text, nullable=False),
        Column("reason", Text, nullable=False),
        Column("request", Text, nullable=False),
        Column("times", Integer, nullable=False),
        Index(f"{name}_by_at", "at"),
        Index(f"{name}_by_actor", "actor"),
    )
