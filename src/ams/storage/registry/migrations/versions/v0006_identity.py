"""Named tokens, issuers of OpenID Connect, and who is bound to which identity there."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the three tables."""
    op.create_table(
        "named_tokens",
        _number(),
        sa.Column("id", sa.String(36), nullable=False, unique=True),
        _user(),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False, unique=True, comment="keyed hash of the token's hash"),
        sa.Column("sealed", sa.LargeBinary, nullable=False, comment="encrypted: the token's hash, not the token"),
        sa.Column("rights", sa.Text, comment="JSON list of action and resource; null: all the user's"),
        _time("created_on"),
        sa.Column("expires_on", sa.BigInteger, comment="milliseconds since the epoch; null: never"),
        sa.Column("last_used", sa.BigInteger, comment="milliseconds since the epoch; null: never"),
        _created_by(),
        sa.UniqueConstraint("user_id", "name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "bindings",
        _number(),
        _user(),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("issuer", sa.Text, nullable=False, comment="URL"),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("by_login", sa.Boolean, nullable=False, comment="made with its user at the first login"),
        _time("created_on"),
        _created_by(),
        sa.UniqueConstraint("user_id", "name"),
        sa.UniqueConstraint("issuer", "subject"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "issuers",
        _number(),
        sa.Column("id", sa.String(36), nullable=False, unique=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("url", sa.Text, nullable=False, unique=True),
        sa.Column("rest", sa.Text, nullable=False, comment="JSON: what else is set of it, but for its secret"),
        sa.Column("secret", sa.LargeBinary, comment="encrypted; null: none"),
        _time("created_on"),
        _time("modified_on"),
        _created_by(),
        sqlite_autoincrement=True,
    )


def _number() -> "sa.Column[int]":
    return sa.Column("number", sa.Integer, primary_key=True, autoincrement=True)


def _time(name: str) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger, nullable=False, comment="milliseconds since the epoch")


def _user() -> "sa.Column[str]":
    return sa.Column("user_id", sa.String(36), sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False)


def _created_by() -> "sa.Column[str]":
    return sa.Column("created_by", sa.String(36), sa.ForeignKey("users.id", ondelete="SET NULL"), index=True)
