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
        sa.Column("id", sa.String(36), nullable=False),
        _user(),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False, comment="keyed hash of the token's hash"),
        sa.Column("sealed", sa.LargeBinary, nullable=False, comment="encrypted: the token's hash, not the token"),
        sa.Column("rights", sa.Text, comment="JSON list of action and resource; null: all the user's"),
        _time("created_on"),
        sa.Column("expires_on", sa.BigInteger, comment="milliseconds since the epoch; null: never"),
        sa.Column("last_used", sa.BigInteger, comment="milliseconds since the epoch; null: never"),
        *_created_by("named_tokens"),
        _owned("named_tokens"),
        sa.PrimaryKeyConstraint("number", name="named_tokens_key"),
        sa.UniqueConstraint("id", name="named_tokens_id_unique"),
        sa.UniqueConstraint("digest", name="named_tokens_digest_unique"),
        sa.UniqueConstraint("user_id", "name", name="named_tokens_user_id_unique"),
        sqlite_autoincrement=True,
    )
    op.create_index("named_tokens_by_created_by", "named_tokens", ["created_by"])
    op.create_table(
        "bindings",
        _number(),
        _user(),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("issuer", sa.Text, nullable=False, comment="URL"),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("by_login", sa.Boolean, nullable=False, comment="made with its user at the first login"),
        _time("created_on"),
        *_created_by("bindings"),
        _owned("bindings"),
        sa.PrimaryKeyConstraint("number", name="bindings_key"),
        sa.UniqueConstraint("user_id", "name", name="bindings_user_id_unique"),
        sa.UniqueConstraint("issuer", "subject", name="bindings_issuer_unique"),
        sqlite_autoincrement=True,
    )
    op.create_index("bindings_by_created_by", "bindings", ["created_by"])
    op.create_table(
        "issuers",
        _number(),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("rest", sa.Text, nullable=False, comment="JSON: what else is set of it, but for its secret"),
        sa.Column("secret", sa.LargeBinary, comment="encrypted; null: none"),
        _time("created_on"),
        _time("modified_on"),
        *_created_by("issuers"),
        sa.PrimaryKeyConstraint("number", name="issuers_key"),
        sa.UniqueConstraint("id", name="issuers_id_unique"),
        sa.UniqueConstraint("name", name="issuers_name_unique"),
        sa.UniqueConstraint("url", name="issuers_url_unique"),
        sqlite_autoincrement=True,
    )
    op.create_index("issuers_by_created_by", "issuers", ["created_by"])


def _number() -> "sa.Column[int]":
    return sa.Column("number", sa.Integer, autoincrement=True, nullable=False)


def _time(name: str) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger, nullable=False, comment="milliseconds since the epoch")


def _user() -> "sa.Column[str]":
    return sa.Column("user_id", sa.String(36), nullable=False)


def _owned(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=f"{table}_user_id_exists", ondelete="CASCADE")


def _created_by(table: str) -> "tuple[sa.Column[str], sa.ForeignKeyConstraint]":
    column = sa.Column("created_by", sa.String(36))
    name = f"{table}_created_by_exists"
    return column, sa.ForeignKeyConstraint(["created_by"], ["users.id"], name=name, ondelete="SET NULL")
