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
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("auth_types", sa.Text(), nullable=False, comment="JSON list"),
        sa.Column("auth_method", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("verify_client_host", sa.Boolean(), nullable=False),
        sa.Column("created_on", sa.BigInteger(), nullable=False, comment=_MOMENT),
        sa.Column("updated_on", sa.BigInteger(), comment=_OR_NEVER),
        sa.PrimaryKeyConstraint("number", name="authn_service_types_key"),
        sa.UniqueConstraint("uuid", name="authn_service_types_uuid_unique"),
        sa.UniqueConstraint("name", name="authn_service_types_name_unique"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "authn_hosts",
        sa.Column("service_uuid", sa.String(length=36), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False, comment="in the list of its service type"),
        sa.ForeignKeyConstraint(
            ["service_uuid"], ["authn_service_types.uuid"], name="authn_hosts_service_uuid_exists", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("service_uuid", "host", name="authn_hosts_key"),
    )


def _auth_methods() -> None:
    op.create_table(
        "authn_auth_methods",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("service_uuid", sa.String(length=36), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False, comment="access key and headers, encrypted"),
        sa.Column("created_on", sa.BigInteger(), nullable=False, comment=_MOMENT),
        sa.Column("updated_on", sa.BigInteger(), comment=_OR_NEVER),
        sa.PrimaryKeyConstraint("number", name="authn_auth_methods_key"),
        sa.UniqueConstraint("uuid", name="authn_auth_methods_uuid_unique"),
        sa.UniqueConstraint("service_uuid", "host", name="authn_auth_methods_service_uuid_unique"),
        _of_a_host("authn_auth_methods"),
        sqlite_autoincrement=True,
    )


def _bindings() -> None:
    op.create_table(
        "authn_bindings",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("service_uuid", sa.String(length=36), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("auth_identifier", sa.Text(), nullable=False),
        sa.Column("unique_key", sa.Text(), nullable=False),
        sa.Column("auth_type", sa.Text(), nullable=False),
        sa.Column("login", sa.String(length=64), nullable=False, comment="hash of what a login is found by"),
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("subject_sha256", sa.String(length=64), nullable=False),
        sa.Column("created_on", sa.BigInteger(), nullable=False, comment=_MOMENT),
        sa.Column("updated_on", sa.BigInteger(), comment=_OR_NEVER),
        sa.Column("last_auth", sa.BigInteger(), comment=_OR_NEVER),
        sa.PrimaryKeyConstraint("number", name="authn_bindings_key"),
        sa.UniqueConstraint("uuid", name="authn_bindings_uuid_unique"),
        sa.UniqueConstraint("name", name="authn_bindings_name_unique"),
        sa.UniqueConstraint("login", name="authn_bindings_login_unique"),
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
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False, comment="keyed hash"),
        sa.Column("created_on", sa.BigInteger(), nullable=False, comment=_MOMENT),
        sa.PrimaryKeyConstraint("number", name="authn_keys_key"),
        sa.UniqueConstraint("name", name="authn_keys_name_unique"),
        sa.UniqueConstraint("digest", name="authn_keys_digest_unique"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "authn_sealing",
        sa.Column(
            "fingerprint",
            sa.String(length=64),
            nullable=False,
            comment="of the key that secrets are encrypted with",
        ),
        sa.PrimaryKeyConstraint("fingerprint", name="authn_sealing_key"),
    )


def _audit() -> None:
    op.create_table(
        "authn_audit_prunings",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False, comment=_MOMENT),
        sa.Column("until", sa.BigInteger(), nullable=False, comment=f"{_MOMENT}: what is older may go"),
        sa.PrimaryKeyConstraint("number", name="authn_audit_prunings_key"),
    )
    op.create_table(
        "authn_audit",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False, comment=_MOMENT),
        sa.Column("service", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("resource", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("code", sa.Integer(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("times", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="authn_audit_key"),
        sa.UniqueConstraint("id", name="authn_audit_id_unique"),
    )
    op.create_index("authn_audit_by_at", "authn_audit", ["at"])
    op.create_index("authn_audit_by_actor", "authn_audit", ["actor"])
    for statement in guards("authn_audit", op.get_bind().dialect.name):
        op.execute(statement)


def _outcomes() -> None:
    op.create_table(
        "authn_outcomes",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("now()")),
        sa.PrimaryKeyConstraint("id", name="authn_outcomes_key"),
    )
    op.create_index("authn_outcomes_by_made_at", "authn_outcomes", ["made_at"])
