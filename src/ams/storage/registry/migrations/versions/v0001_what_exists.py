"""What exists at first: users, projects, topics, subscriptions, access lists."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the first tables."""
    op.create_table(
        "keys",
        sa.Column("fingerprint", sa.String(length=64), nullable=False, comment="of the key that encrypts the tokens"),
        sa.PrimaryKeyConstraint("fingerprint", name="keys_key"),
    )
    op.create_table(
        "users",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("first_name", sa.Text(), nullable=False),
        sa.Column("last_name", sa.Text(), nullable=False),
        sa.Column("organization", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("service_roles", sa.Text(), nullable=False, comment="JSON list"),
        sa.Column("token_digest", sa.String(length=64), nullable=False, comment="keyed hash"),
        sa.Column("token_sealed", sa.LargeBinary(), nullable=False, comment="encrypted"),
        sa.Column("created_on", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch"),
        sa.Column("modified_on", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch"),
        sa.Column("created_by", sa.String(length=36)),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name="users_created_by_exists", ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("number", name="users_key"),
        sa.UniqueConstraint("id", name="users_id_unique"),
        sa.UniqueConstraint("name", name="users_name_unique"),
        sa.UniqueConstraint("token_digest", name="users_token_digest_unique"),
        sqlite_autoincrement=True,
    )
    op.create_index("users_by_created_by", "users", ["created_by"])
    op.create_table(
        "projects",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("created_on", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch"),
        sa.Column("modified_on", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch"),
        sa.Column("created_by", sa.String(length=36)),
        sa.ForeignKeyConstraint(["created_by"], ["users.id"], name="projects_created_by_exists", ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("number", name="projects_key"),
        sa.UniqueConstraint("id", name="projects_id_unique"),
        sa.UniqueConstraint("name", name="projects_name_unique"),
        sqlite_autoincrement=True,
    )
    op.create_index("projects_by_created_by", "projects", ["created_by"])
    op.create_table(
        "memberships",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("user_id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=36), nullable=False),
        sa.Column("roles", sa.Text(), nullable=False, comment="JSON list"),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name="memberships_project_id_exists", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="memberships_user_id_exists", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("number", name="memberships_key"),
        sa.UniqueConstraint("user_id", "project_id", name="memberships_user_id_unique"),
        sqlite_autoincrement=True,
    )
    op.create_index("memberships_by_project_id", "memberships", ["project_id"])
    op.create_table(
        "subscriptions",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False, comment="a name: the topic may go and come back"),
        sa.Column("ack_deadline_seconds", sa.Integer(), nullable=False, comment="seconds"),
        sa.Column("push", sa.Text(), comment="JSON; null: a pull subscription"),
        sa.Column("created_on", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch"),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name="subscriptions_project_id_exists", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("number", name="subscriptions_key"),
        sa.UniqueConstraint("id", name="subscriptions_id_unique"),
        sa.UniqueConstraint("project_id", "name", name="subscriptions_project_id_unique"),
        sqlite_autoincrement=True,
    )
    op.create_index("subscriptions_by_topic", "subscriptions", ["project_id", "topic"])
    op.create_table(
        "topics",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("schema", sa.Text(), comment="name of the attached schema"),
        sa.Column("retention", sa.BigInteger(), comment="milliseconds; null: the log's default"),
        sa.Column("created_on", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="topics_project_id_exists", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("number", name="topics_key"),
        sa.UniqueConstraint("id", name="topics_id_unique"),
        sa.UniqueConstraint("project_id", "name", name="topics_project_id_unique"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "subscription_access",
        sa.Column("resource_id", sa.String(length=36), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.String(length=36), nullable=False),
        sa.ForeignKeyConstraint(
            ["resource_id"], ["subscriptions.id"], name="subscription_access_resource_id_exists", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name="subscription_access_user_id_exists", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("resource_id", "position", name="subscription_access_key"),
        sa.UniqueConstraint("resource_id", "user_id", name="subscription_access_resource_id_unique"),
    )
    op.create_index("subscription_access_by_user_id", "subscription_access", ["user_id"])
    op.create_table(
        "topic_access",
        sa.Column("resource_id", sa.String(length=36), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("user_id", sa.String(length=36), nullable=False),
        sa.ForeignKeyConstraint(
            ["resource_id"], ["topics.id"], name="topic_access_resource_id_exists", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="topic_access_user_id_exists", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("resource_id", "position", name="topic_access_key"),
        sa.UniqueConstraint("resource_id", "user_id", name="topic_access_resource_id_unique"),
    )
    op.create_index("topic_access_by_user_id", "topic_access", ["user_id"])
