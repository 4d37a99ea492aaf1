"""Schemas with their revisions, registrations, tallies, and how long a project's messages are kept."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add tables; which schema a topic has is kept by identity, so that a schema can be renamed."""
    _schemas()
    _registrations()
    _tallies()
    op.add_column(
        "projects",
        sa.Column(
            "retention", sa.BigInteger(), comment="milliseconds, for topics without their own; null: the log's default"
        ),
    )
    op.drop_column("topics", "schema")
    # Pages of a project's resources, newest first, without sorting all of them, and counts by time of creation.
    op.create_index("topics_by_project", "topics", ["project_id", "number", "created_on"])
    op.create_index("subscriptions_by_project", "subscriptions", ["project_id", "number", "created_on"])
    op.create_index("users_by_created_on", "users", ["created_on"])
    op.create_index("memberships_by_project", "memberships", ["project_id", "user_id"])


def _schemas() -> None:
    op.create_table(
        "schemas",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(36), nullable=False, unique=True),
        sa.Column("project_id", sa.String(36), sa.ForeignKey("projects.id", ondelete="CASCADE"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False, comment="the newest"),
        sa.Column("created_on", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch"),
        sa.UniqueConstraint("project_id", "name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "schema_revisions",
        sa.Column("schema_id", sa.String(36), sa.ForeignKey("schemas.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("revision", sa.Integer(), primary_key=True, comment="from 1"),
        sa.Column("type", sa.String(8), nullable=False, comment="json or avro"),
        sa.Column("payload", sa.Text(), comment="JSON: the schema of the data; null: only attributes are checked"),
        sa.Column("attributes", sa.Text(), comment="JSON: what attributes must be; null: anything"),
        sa.Column("created_on", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch"),
    )
    op.create_table(
        "topic_schemas",
        sa.Column("topic_id", sa.String(36), sa.ForeignKey("topics.id", ondelete="CASCADE"), primary_key=True),
        sa.Column(
            "schema_id", sa.String(36), sa.ForeignKey("schemas.id", ondelete="CASCADE"), nullable=False, index=True
        ),
    )


def _registrations() -> None:
    op.create_table(
        "registrations",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(36), nullable=False, unique=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("first_name", sa.Text(), nullable=False),
        sa.Column("last_name", sa.Text(), nullable=False),
        sa.Column("organization", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("status", sa.String(8), nullable=False, comment="pending, accepted or declined"),
        sa.Column("activation_token", sa.Text(), nullable=False, comment="empty once decided; opens nothing"),
        sa.Column("decline_comment", sa.Text(), nullable=False),
        sa.Column("registered_at", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch"),
        sa.Column("modified_at", sa.BigInteger(), comment="milliseconds since the epoch; null while pending"),
        sa.Column("modified_by", sa.String(36), sa.ForeignKey("users.id", ondelete="SET NULL"), index=True),
        sqlite_autoincrement=True,
    )
    pending = sa.text("status = 'pending'")
    op.create_index(
        "registrations_one_pending",
        "registrations",
        ["name"],
        unique=True,
        sqlite_where=pending,
        postgresql_where=pending,
    )


def _tallies() -> None:
    op.create_table(
        "topic_tallies",
        sa.Column("topic_id", sa.String(36), sa.ForeignKey("topics.id", ondelete="CASCADE"), primary_key=True),
        sa.Column(
            "messages", sa.BigInteger(), nullable=False, comment="counted into the days; the log's end when caught up"
        ),
        sa.Column("bytes", sa.BigInteger(), nullable=False, comment="counted into the days"),
        sa.Column("last_messages", sa.BigInteger(), nullable=False, comment="of the last publish request"),
        sa.Column("last_publish", sa.BigInteger(), comment="milliseconds since the epoch; null: never"),
        sa.Column("previous_publish", sa.BigInteger(), comment="milliseconds since the epoch; null: only one so far"),
    )
    op.create_table(
        "subscription_tallies",
        sa.Column(
            "subscription_id", sa.String(36), sa.ForeignKey("subscriptions.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("messages", sa.BigInteger(), nullable=False, comment="handed out, repeats included"),
        sa.Column("bytes", sa.BigInteger(), nullable=False, comment="handed out, repeats included"),
        sa.Column("last_messages", sa.BigInteger(), nullable=False, comment="of the last pull"),
        sa.Column("last_pull", sa.BigInteger(), comment="milliseconds since the epoch; null: never"),
        sa.Column("previous_pull", sa.BigInteger(), comment="milliseconds since the epoch; null: only one so far"),
    )
    op.create_table(
        "daily_messages",
        sa.Column("topic_id", sa.String(36), sa.ForeignKey("topics.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("day", sa.String(10), primary_key=True, comment="YYYY-MM-DD, UTC"),
        sa.Column("messages", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "project_days",
        sa.Column("project_id", sa.String(36), sa.ForeignKey("projects.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("day", sa.String(10), primary_key=True, comment="YYYY-MM-DD, UTC"),
        sa.Column("messages", sa.BigInteger(), nullable=False, comment="also of topics that are gone"),
        sa.Column("bytes", sa.BigInteger(), nullable=False, comment="also of topics that are gone"),
    )
