"""The tables of the certificate service, for SQLite and PostgreSQL.

`number` is the order of creation, and of lists. The database enforces uniqueness and cascades (contract 15, A3 and A4),
so no race can bypass them. A change here needs a migration; `tests/storage/database/test_opening.py` compares both.
"""

import sqlalchemy as sa

from ams.authn.values import HOST_GONE
from ams.storage.audit.records import audit_table
from ams.storage.database.schema import NAMING, DatabaseSchema, outcomes_table

METADATA = sa.MetaData(naming_convention=NAMING)

VERSION = "authn_version"  # table with the newest migration


def _identity() -> tuple[sa.Column[int], sa.Column[str]]:
    number = sa.Column("number", sa.Integer, primary_key=True, autoincrement=True)
    return number, sa.Column("uuid", sa.String(36), nullable=False, unique=True)


def _times() -> tuple[sa.Column[int], sa.Column[int | None]]:
    created_on = sa.Column("created_on", sa.BigInteger, nullable=False, comment="milliseconds since the epoch")
    return created_on, sa.Column("updated_on", sa.BigInteger, comment="milliseconds since the epoch; null: never")


def _texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def _of_a_host() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["service_uuid", "host"], ["authn_hosts.service_uuid", "authn_hosts.host"], ondelete="CASCADE"
    )


service_types = sa.Table(
    "authn_service_types",
    METADATA,
    *_identity(),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("auth_types", sa.Text, nullable=False, comment="JSON list"),
    *_texts("auth_method", "type"),
    sa.Column("verify_client_host", sa.Boolean, nullable=False),
    *_times(),
    sqlite_autoincrement=True,
)

hosts = sa.Table(
    "authn_hosts",
    METADATA,
    sa.Column(
        "service_uuid", sa.String(36), sa.ForeignKey("authn_service_types.uuid", ondelete="CASCADE"), primary_key=True
    ),
    sa.Column("host", sa.Text, primary_key=True),
    sa.Column("position", sa.Integer, nullable=False, comment="in the list of its service type"),
)

auth_methods = sa.Table(
    "authn_auth_methods",
    METADATA,
    *_identity(),
    sa.Column("service_uuid", sa.String(36), nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("port", sa.Integer, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("sealed", sa.LargeBinary, nullable=False, comment="access key and headers, encrypted"),
    *_times(),
    sa.UniqueConstraint("service_uuid", "host"),
    _of_a_host(),
    sqlite_autoincrement=True,
)

bindings = sa.Table(
    "authn_bindings",
    METADATA,
    *_identity(),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("service_uuid", sa.String(36), nullable=False),
    *_texts("host", "auth_identifier", "unique_key", "auth_type"),
    sa.Column("login", sa.String(64), nullable=False, unique=True, comment="hash of what a login is found by"),
    sa.Column("issuer", sa.Text, nullable=False),
    sa.Column("subject_sha256", sa.String(64), nullable=False),
    *_times(),
    sa.Column("last_auth", sa.BigInteger, comment="milliseconds since the epoch; null: never"),
    _of_a_host(),
    sa.Index("authn_bindings_by_host", "service_uuid", "host", "number"),
    sqlite_autoincrement=True,
)

keys = sa.Table(
    "authn_keys",
    METADATA,
    _identity()[0],
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("scope", sa.String(16), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False, unique=True, comment="keyed hash"),
    _times()[0],
    sqlite_autoincrement=True,
)

sealing = sa.Table(
    "authn_sealing",
    METADATA,
    sa.Column("fingerprint", sa.String(64), primary_key=True, comment="of the key that secrets are encrypted with"),
)

audit = audit_table(METADATA, "authn_audit")


AUTHN = DatabaseSchema(
    what="certificate service",
    tables=METADATA,
    outcomes=outcomes_table("authn_outcomes"),
    taken={  # races that only the database detects: usually each write looks for the value first
        "authn_service_types_name_unique": "service-type object with this name already exists",
        "authn_auth_methods_service_uuid_unique": "Auth method object with this host already exists",
        "authn_bindings_name_unique": "binding object with this name already exists",
        "authn_bindings_login_unique": "binding object with this auth_identifier already exists",
        "authn_keys_name_unique": "key object with this name already exists",
    },
    absent=HOST_GONE,
    keys=sealing,
    other_key="the key of the secrets is not the one they were encrypted with; restore it",
    migrations="ams.authn.store:migrations",
    version=VERSION,
    head="0001",
    channel="ams_authn",
    serving=0x616D735F61757468,  # "ams_auth" in ASCII
    owns=lambda table: table.startswith("authn_"),  # a database may have these and the registry's tables
)
