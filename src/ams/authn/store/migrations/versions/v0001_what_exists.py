"""Service types, auth methods, bindings, keys, the audit log, and, on PostgreSQL, marks of transactions."""

import sqlalchemy as sa
from alembic import op

from ams.storage.audit.records import guards

revision = "0001"
down_revision = None

_MOMENT = "milliseconds since the epoch"
_OR_NEVER = "milliseconds since the epoch; null: never"


def upgrade() -> None:
    """Make all tables."""
    _service_types()
    _auth_methods()
    _bindings()
    _keys()
    _audit()
    if op.get_bind().dialect.name == "postgresql":
        _outcomes()


def _service_types() -> None:
    op.create_table(
        "authn_service_types",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("uuid", sa.String(36), nullable=False, unique=True),
        sa.Column("name", sa.Text(), nullable=False, unique=True),
        sa.Column("auth_types", sa.Text(), nullable=False, comment="JSON list"),
        sa.Column("auth_method", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("verify_client_host", sa.Boolean(), nullable=False),
        sa.Column("created_on", sa.BigInteger(), nullable=False, comment=_MOMENT),
        sa.Column("updated_on", sa.BigInteger(), comment=_OR_NEVER),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "authn_hosts",
        sa.Column(
            "service_uuid",
            sa.String(36),
            sa.ForeignKey("authn_service_types.uuid", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("host", sa.Text(), primary_key=True),
        sa.Column("position", sa.Integer(), nullable=False, comment="in the list of its service type"),
    )


def _auth_methods() -> None:
    op.create_table(
        "authn_auth_methods",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("uuid", sa.String(36), nullable=False, unique=True),
        sa.Column("service_uuid", sa.String(36), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False, comment="access key and headers, encrypted"),
        sa.Column("created_on", sa.BigInteger(), nullable=False, comment=_MOMENT),
        sa.Column("updated_on", sa.BigInteger(), comment=_OR_NEVER),
        sa.UniqueConstraint("service_uuid", "host"),
        _of_a_host("authn_auth_methods"),
        sqlite_autoincrement=True,
    )


def _bindings() -> None:
    op.create_table(
        "authn_bindings",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("uuid", sa.String(36), nullable=False, unique=True),
        sa.Column("name", sa.Text(), nullable=False, unique=True),
        sa.Column("service_uuid", sa.String(36), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("auth_identifier", sa.Text(), nullable=False),
        sa.Column("unique_key", sa.Text(), nullable=False),
        sa.Column("auth_type", sa.Text(), nullable=False),
        sa.Column("login", sa.String(64), nullable=False, unique=True, comment="hash of what a login is found by"),
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("subject_sha256", sa.String(64), nullable=False),
        sa.Column("created_on", sa.BigInteger(), nullable=False, comment=_MOMENT),
        sa.Column("updated_on", sa.BigInteger(), comment=_OR_NEVER),
        sa.Column("last_auth", sa.BigInteger(), comment=_OR_NEVER),
        _of_a_host("authn_bindings"),
        sqlite_autoincrement=True,
    )
    op.create_index("authn_bindings_by_host", "authn_bindings", ["service_uuid", "host", "number"])


def _of_a_host(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["service_uuid", "host"],
        ["authn_hosts.service_uuid", "authn_hosts.host"],
        name=f"{table}_service_uuid_exists",
        ondelete="CASCADE",
    )


def _keys() -> None:
    op.create_table(
        "authn_keys",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("name", sa.Text(), nullable=False, unique=True),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False, unique=True, comment="keyed hash"),
        sa.Column("created_on", sa.BigInteger(), nullable=False, comment=_MOMENT),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "authn_sealing",
        sa.Column("fingerprint", sa.String(64), primary_key=True, comment="of the key that secrets are encrypted with"),
    )


def _audit() -> None:
    op.create_table(
        "authn_audit_prunings",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("at", sa.BigInteger(), nullable=False, comment=_MOMENT),
        sa.Column("until", sa.BigInteger(), nullable=False, comment=f"{_MOMENT}: what is older may go"),
    )
    op.create_table(
        "authn_audit",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(36), nullable=False, unique=True),
        sa.Column("at", sa.BigInteger(), nullable=False, index=True, comment=_MOMENT),
        sa.Column("service", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False, index=True),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("code", sa.Integer(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("times", sa.Integer(), nullable=False),
    )
    for statement in guards("authn_audit", op.get_bind().dialect.name):
        op.execute(statement)


def _outcomes() -> None:
    op.create_table(
        "authn_outcomes",
        sa.Column("id", sa.String(36), primary_key=True),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False, index=True, server_default=sa.text("now()")),
    )
