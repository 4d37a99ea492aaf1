"""What exists at first: users, projects, topics, subscriptions, access lists."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the first tables."""
    op.create_table(
        "keys",
        sa.Column("fingerprint", sa.String(64), primary_key=True, comment="of the key that encrypts the tokens"),
    )
    op.create_table(
        "users",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(36), nullable=False, unique=True),
        sa.Column("name", sa.Text(), nullable=False, unique=True),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("first_name", sa.Text(), nullable=False),
        sa.Column("last_name", sa.Text(), nullable=False),
        sa.Column("organization", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("service_roles", sa.Text(), nullable=False, comment="JSON list"),
        sa.Column("token_digest", sa.String(64), nullable=False, unique=True, comment="keyed hash"),
        sa.Column("token_sealed", sa.LargeBinary(), nullable=False, comment="encrypted"),
        sa.Column("created_on", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch"),
        sa.Column("modified_on", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch"),
        sa.Column("created_by", sa.String(36), sa.ForeignKey("users.id", ondelete="SET NULL"), index=True),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "projects",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(36), nullable=False, unique=True),
        sa.Column("name", sa.Text(), nullable=False, unique=True),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("created_on", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch"),
        sa.Column("modified_on", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch"),
        sa.Column("created_by", sa.String(36), sa.ForeignKey("users.id", ondelete="SET NULL"), index=True),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "memberships",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("user_id", sa.String(36), sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
        sa.Column(
            "project_id", sa.String(36), sa.ForeignKey("projects.id", ondelete="CASCADE"), nullable=False, index=True
        ),
        sa.Column("roles", sa.Text(), nullable=False, comment="JSON list"),
        sa.UniqueConstraint("user_id", "project_id"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "subscriptions",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(36), nullable=False, unique=True),
        sa.Column("project_id", sa.String(36), sa.ForeignKey("projects.id", ondelete="CASCADE"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False, comment="a name: the topic may go and come back"),
        sa.Column("ack_deadline_seconds", sa.Integer(), nullable=False, comment="seconds"),
        sa.Column("push", sa.Text(), comment="JSON; null: a pull subscription"),
        sa.Column("created_on", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch"),
        sa.UniqueConstraint("project_id", "name"),
        sqlite_autoincrement=True,
    )
    op.create_index("subscriptions_by_topic", "subscriptions", ["project_id", "topic"])
    op.create_table(
        "topics",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(36), nullable=False, unique=True),
        sa.Column("project_id", sa.String(36), sa.ForeignKey("projects.id", ondelete="CASCADE"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("schema", sa.Text(), comment="name of the attached schema"),
        sa.Column("retention", sa.BigInteger(), comment="milliseconds; null: the log's default"),
        sa.Column("created_on", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch"),
        sa.UniqueConstraint("project_id", "name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "subscription_access",
        sa.Column(
            "resource_id", sa.String(36), sa.ForeignKey("subscriptions.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("position", sa.Integer(), primary_key=True),
        sa.Column("user_id", sa.String(36), sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True),
        sa.UniqueConstraint("resource_id", "user_id"),
    )
    op.create_table(
        "topic_access",
        sa.Column("resource_id", sa.String(36), sa.ForeignKey("topics.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("position", sa.Integer(), primary_key=True),
        sa.Column("user_id", sa.String(36), sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True),
        sa.UniqueConstraint("resource_id", "user_id"),
    )
