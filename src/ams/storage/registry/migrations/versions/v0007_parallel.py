"""Parallel subscriptions: their options, snapshots of where they stood, and which node works on them."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add a column and tables."""
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
    op.create_table(
        "parallel_nodes",
        sa.Column("node", sa.String(36), primary_key=True, comment="its name, another one at each start"),
        sa.Column("url", sa.Text, nullable=False, comment="how other nodes reach it; empty: it does not say"),
        sa.Column("until", sa.BigInteger, nullable=False, comment="end of what it owns: milliseconds since the epoch"),
    )
    node = sa.ForeignKey("parallel_nodes.node", ondelete="CASCADE")
    op.create_table(
        "parallel_owners",
        _of("subscription_id", "subscriptions.id", primary_key=True),
        sa.Column("node", sa.String(36), node, nullable=False, index=True),
    )


def _of(name: str, owner: str, *, index: bool = False, primary_key: bool = False) -> "sa.Column[str]":
    key = sa.ForeignKey(owner, ondelete="CASCADE")
    return sa.Column(name, sa.String(36), key, nullable=False, index=index, primary_key=primary_key)
