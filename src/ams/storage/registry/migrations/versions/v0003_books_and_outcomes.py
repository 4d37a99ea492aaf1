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
        sa.Column("topic_id", sa.String(length=36), nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=False, comment="hash of an idempotency key"),
        sa.Column("content", sa.LargeBinary(), nullable=False, comment="hash of the messages"),
        sa.Column("log_end", sa.BigInteger(), nullable=False, comment="the topic's end when the key was claimed"),
        sa.Column("claimed_at", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch"),
        sa.Column("version", sa.Integer(), nullable=False, comment="raised by each change"),
        sa.Column("mark", sa.String(length=36), nullable=False, comment="of who claimed it"),
        sa.Column("first", sa.BigInteger(), comment="offset of the first message; null: not known yet"),
        sa.Column("messages", sa.Integer(), comment="null: not known yet"),
        sa.Column("time", sa.BigInteger(), comment="publish time: milliseconds since the epoch"),
        sa.ForeignKeyConstraint(["topic_id"], ["topics.id"], name="publish_claims_topic_id_exists", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("topic_id", "key", name="publish_claims_key"),
    )
    op.create_index("publish_claims_by_claimed_at", "publish_claims", ["topic_id", "claimed_at"])
    op.create_table(
        "topic_sizes",
        sa.Column("topic_id", sa.String(length=36), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False, comment="ever published"),
        sa.ForeignKeyConstraint(["topic_id"], ["topics.id"], name="topic_sizes_topic_id_exists", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("topic_id", name="topic_sizes_key"),
    )


def _outcomes() -> None:
    op.create_table(
        "outcomes",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("now()")),
        sa.PrimaryKeyConstraint("id", name="outcomes_key"),
    )
    op.create_index("outcomes_by_made_at", "outcomes", ["made_at"])
