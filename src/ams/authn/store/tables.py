"""The tables of the certificate service, one text for SQLite and PostgreSQL.

`number` gives the order of creation, which is that of lists. Uniqueness and cascades are the database's work (contract
15, A3 and A4), so no race can pass by them. A change here needs a migration; `tests/storage/database/test_opening.py`
compares the two.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from ams.authn.values import HOST_GONE
from ams.storage.audit.records import audit_table
from ams.storage.database.schema import NAMING, Schema, outcomes_table

METADATA = MetaData(naming_convention=NAMING)

VERSION = "authn_version"  # table that holds the newest migration

TAKEN = {
    "authn_service_types_name_unique": "service-type object with this name already exists",
    "authn_auth_methods_service_uuid_unique": "Auth method object with this host already exists",
    "authn_bindings_name_unique": "binding object with this name already exists",
    "authn_bindings_login_unique": "binding object with this auth_identifier already exists",
    "authn_keys_name_unique": "key object with this name already exists",
}
"""Texts for a race that only the database notices: usually each write looks for the value first, and names it."""


def _number() -> Column[int]:
    return Column("number", Integer, primary_key=True, autoincrement=True)


def _uuid() -> Column[str]:
    return Column("uuid", String(36), nullable=False, unique=True)


def _created_on() -> Column[int]:
    return Column("created_on", BigInteger, nullable=False, comment="milliseconds since the epoch")


def _updated_on() -> Column[int | None]:
    return Column("updated_on", BigInteger, comment="milliseconds since the epoch; null: never")


def _of_a_host() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["service_uuid", "host"], ["authn_hosts.service_uuid", "authn_hosts.host"], ondelete="CASCADE"
    )


service_types = Table(
    "authn_service_types",
    METADATA,
    _number(),
    _uuid(),
    Column("name", Text, nullable=False, unique=True),
    Column("auth_types", Text, nullable=False, comment="JSON list"),
    Column("auth_method", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("verify_client_host", Boolean, nullable=False),
    _created_on(),
    _updated_on(),
    sqlite_autoincrement=True,
)

hosts = Table(
    "authn_hosts",
    METADATA,
    Column("service_uuid", String(36), ForeignKey("authn_service_types.uuid", ondelete="CASCADE"), primary_key=True),
    Column("host", Text, primary_key=True),
    Column("position", Integer, nullable=False, comment="in the list of its service type"),
)

auth_methods = Table(
    "authn_auth_methods",
    METADATA,
    _number(),
    _uuid(),
    Column("service_uuid", String(36), nullable=False),
    Column("host", Text, nullable=False),
    Column("port", Integer, nullable=False),
    Column("type", Text, nullable=False),
    Column("sealed", LargeBinary, nullable=False, comment="access key and headers, encrypted"),
    _created_on(),
    _updated_on(),
    UniqueConstraint("service_uuid", "host"),
    _of_a_host(),
    sqlite_autoincrement=True,
)

bindings = Table(
    "authn_bindings",
    METADATA,
    _number(),
    _uuid(),
    Column("name", Text, nullable=False, unique=True),
    Column("service_uuid", String(36), nullable=False),
    Column("host", Text, nullable=False),
    Column("auth_identifier", Text, nullable=False),
    Column("unique_key", Text, nullable=False),
    Column("auth_type", Text, nullable=False),
    Column("login", String(64), nullable=False, unique=True, comment="hash of what a login is found by"),
    Column("issuer", Text, nullable=False),
    Column("subject_sha256", String(64), nullable=False),
    _created_on(),
    _updated_on(),
    Column("last_auth", BigInteger, comment="milliseconds since the epoch; null: never"),
    _of_a_host(),
    Index("authn_bindings_by_host", "service_uuid", "host", "number"),
    sqlite_autoincrement=True,
)

keys = Table(
    "authn_keys",
    METADATA,
    _number(),
    Column("name", Text, nullable=False, unique=True),
    Column("scope", String(16), nullable=False),
    Column("digest", String(64), nullable=False, unique=True, comment="keyed hash"),
    _created_on(),
    sqlite_autoincrement=True,
)

sealing = Table(
    "authn_sealing",
    METADATA,
    Column("fingerprint", String(64), primary_key=True, comment="of the key that secrets are encrypted with"),
)

audit = audit_table(METADATA, "authn_audit")


AUTHN = Schema(
    what="certificate service",
    tables=METADATA,
    outcomes=outcomes_table("authn_outcomes"),
    taken=TAKEN,
    absent=HOST_GONE,
    migrations="ams.authn.store:migrations",
    version=VERSION,
    head="0001",
    channel="ams_authn",
    serving=0x616D735F61757468,  # "ams_auth" in ASCII
    owns=lambda table: table.startswith("authn_"),
)
"""They may be in one PostgreSQL database with the registry's tables, whichever are made first."""
