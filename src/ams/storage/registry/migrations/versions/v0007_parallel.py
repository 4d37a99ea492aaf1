"""Parallel subscriptions: their options, and snapshots of where they stood."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add a column and a table."""
    op.add_column("subscriptions", sa.Column("parallel", sa.Text, comment="JSON; null: an ordered subscription"))
    op.create_table(
        "snapshots",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        _of("project_id", "projects.id"),
        sa.Column("name", sa.Text, nullable=False),
        _of("topic_id", "topics.id", index=True),
        sa.Column("floor", sa.BigInteger, nullable=False, comment="all offsets before it were done"),
        sa.Column("done", sa.LargeBinary, nullable=False, comment="those done above it (ams.core.offsets)"),
        sa.Column("created_on", sa.BigInteger, nullable=False, comment="milliseconds since the epoch"),
        sa.Column("expires_on", sa.BigInteger, nullable=False, comment="milliseconds since the epoch"),
        sa.UniqueConstraint("project_id", "name"),
        sqlite_autoincrement=True,
    )


def _of(name: str, owner: str, *, index: bool = False) -> "sa.Column[str]":
    return sa.Column(name, sa.String(36), sa.ForeignKey(owner, ondelete="CASCADE"), nullable=False, index=index)
