"""Claims of idempotency keys, sizes of topics, and, on PostgreSQL, marks of transactions."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add tables."""
    _books()
    if op.get_bind().dialect.name == "postgresql":
        _outcomes()
        # SQLite keeps no comments.
        op.alter_column("topics", "retention", comment="milliseconds; null: the project's, then the log's default")


def _books() -> None:
    op.create_table(
        "publish_claims",
        sa.Column("topic_id", sa.String(36), sa.ForeignKey("topics.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("key", sa.LargeBinary(), primary_key=True, comment="hash of an idempotency key"),
        sa.Column("content", sa.LargeBinary(), nullable=False, comment="hash of the messages"),
        sa.Column("log_end", sa.BigInteger(), nullable=False, comment="the topic's end when the key was claimed"),
        sa.Column("claimed_at", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch"),
        sa.Column("version", sa.Integer(), nullable=False, comment="raised by each change"),
        sa.Column("mark", sa.String(36), nullable=False, comment="of who claimed it"),
        sa.Column("first", sa.BigInteger(), comment="offset of the first message; null: not known yet"),
        sa.Column("messages", sa.Integer(), comment="null: not known yet"),
        sa.Column("time", sa.BigInteger(), comment="publish time: milliseconds since the epoch"),
    )
    op.create_index("publish_claims_by_claimed_at", "publish_claims", ["topic_id", "claimed_at"])
    op.create_table(
        "topic_sizes",
        sa.Column("topic_id", sa.String(36), sa.ForeignKey("topics.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("bytes", sa.BigInteger(), nullable=False, comment="ever published"),
    )


def _outcomes() -> None:
    op.create_table(
        "outcomes",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False, index=True, server_default=sa.text("now()")),
    )
