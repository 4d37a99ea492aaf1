"""The tables, one text for SQLite and PostgreSQL.

`number` gives the order of creation: lists are cut and continued by it. `id` is the identity everything else refers
to. Uniqueness and cascades are the database's work (HTTP contract 17.3, U11 and U12), so no race can pass by them.
A change here needs a migration; `tests/storage/database/test_opening.py` compares the two.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.schema import SchemaItem

from ams.storage.audit.records import audit_table
from ams.storage.database.schema import NAMING, Schema, outcomes_table

METADATA = MetaData(naming_convention=NAMING)

TAKEN = {
    "projects_name_unique": "Project already exists",
    "users_name_unique": "User already exists",
    "memberships_user_id_unique": "User is already a member of the project",
    "topics_project_id_unique": "Topic already exists",
    "subscriptions_project_id_unique": "Subscription already exists",
    "snapshots_project_id_unique": "Snapshot already exists",
    "schemas_project_id_unique": "Schema already exists",
    "registrations_one_pending": "User registration already exists",
    "named_tokens_user_id_unique": "Token already exists",
    "named_tokens_key_id_unique": "The key is another token's already",
    "bindings_user_id_unique": "Binding already exists",
    "bindings_issuer_unique": "Identity is already bound to a user",
    "issuers_name_unique": "Issuer already exists",
    "issuers_url_unique": "Issuer already exists",
}
"""Unique constraints a client can meet, and their error texts."""


_object = msgspec.json.Decoder(dict[str, Any])


class _Json(TypeDecorator[Mapping[str, Any]]):
    """A column of JSON in the table, a mapping in rows; null: none."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Mapping[str, Any] | None, dialect: Dialect) -> str | None:
        return msgspec.json.encode(dict(value)).decode() if value else None

    def process_result_value(self, value: str | None, dialect: Dialect) -> Mapping[str, Any]:
        return _object.decode(value) if value else {}


def _label_column() -> Column[Mapping[str, str]]:
    return Column("labels", _Json, comment="JSON object of texts; null: none")


def _numbered(name: str, *parts: SchemaItem) -> Table:
    """Make a table whose rows are in the order of their creation."""
    number = Column("number", Integer, primary_key=True, autoincrement=True)
    return Table(name, METADATA, number, *parts, sqlite_autoincrement=True)


def _identified(name: str, *parts: SchemaItem) -> Table:
    """Make a table like that, of what others refer to."""
    return _numbered(name, Column("id", String(36), nullable=False, unique=True), *parts)


def _texts(*names: str) -> Sequence[Column[str]]:
    return [Column(name, Text, nullable=False) for name in names]


def _created_by() -> Column[str | None]:
    return Column("created_by", String(36), ForeignKey("users.id", ondelete="SET NULL"), index=True)


def _of(name: str, owner: str, **options: Any) -> Column[str]:
    """Make the column of what a row goes with."""
    return Column(name, String(36), ForeignKey(owner, ondelete="CASCADE"), **options)


def _project() -> Column[str]:
    return _of("project_id", "projects.id", nullable=False)


def _partial_index(name: str, column: Column[Any], where: ColumnElement[bool], *, unique: bool = False) -> None:
    Index(name, column, unique=unique, sqlite_where=where, postgresql_where=where)


def _table(name: str, *parts: SchemaItem) -> Table:
    return Table(name, METADATA, *parts)


def _times(*names: str) -> Sequence[Column[int]]:
    return [Column(name, BigInteger, nullable=False, comment="milliseconds since the epoch") for name in names]


def _days(owner: str, of: str, comment: str | None = None) -> Sequence[Column[Any]]:
    """Make the columns of a table of figures by day."""
    return [
        _of(owner, of, primary_key=True),
        Column("day", String(10), primary_key=True, comment="YYYY-MM-DD, UTC"),
        *(Column(name, BigInteger, nullable=False, comment=comment) for name in ("messages", "bytes")),
    ]


users = _identified(
    "users",
    Column("name", Text, nullable=False, unique=True),
    *_texts("email", "first_name", "last_name", "organization", "description"),
    Column("service_roles", Text, nullable=False, comment="JSON list"),
    Column("token_digest", String(64), nullable=False, unique=True, comment="keyed hash"),
    Column("token_sealed", LargeBinary, nullable=False, comment="encrypted"),
    *_times("created_on", "modified_on"),
    _created_by(),
    Column("made_in", String(36), index=True, comment="identity of the project that it was made in; null: none"),
    Index("users_by_created_on", "created_on"),
)

projects = _identified(
    "projects",
    Column("name", Text, nullable=False, unique=True),
    Column("description", Text, nullable=False),
    *_times("created_on", "modified_on"),
    _created_by(),
    Column("retention", BigInteger, comment="milliseconds, for topics without their own; null: the log's default"),
    Column("quotas", _Json, comment="JSON object of numbers: its own quotas; null: none"),
    Column("strict_data", Boolean, comment="whether data that is not base64 is refused; null: as the setting says"),
)

memberships = _numbered(
    "memberships",
    _of("user_id", "users.id", nullable=False),
    _of("project_id", "projects.id", nullable=False, index=True),
    Column("roles", Text, nullable=False, comment="JSON list"),
    UniqueConstraint("user_id", "project_id"),
    Index("memberships_by_project", "project_id", "user_id"),
)

topics = _identified(
    "topics",
    _project(),
    Column("name", Text, nullable=False),
    Column("retention", BigInteger, comment="milliseconds; null: the project's, then the log's default"),
    *_times("created_on"),
    _label_column(),
    Column("deleted_schema", String(8), comment="what encoding was said of a schema that is deleted; null: none"),
    UniqueConstraint("project_id", "name"),
    Index("topics_by_project", "project_id", "number", "created_on"),
)

subscriptions = _identified(
    "subscriptions",
    _project(),
    Column("name", Text, nullable=False),
    Column("topic", Text, nullable=False, comment="a name: the topic may go and come back"),
    Column("ack_deadline_seconds", Integer, nullable=False, comment="seconds"),
    Column("push", Text, comment="JSON; null: a pull subscription"),
    *_times("created_on"),
    Column("parallel", Text, comment="JSON; null: an ordered subscription"),
    Column("used_on", BigInteger, comment="milliseconds since the epoch, of one that goes unused; null: not noted"),
    _label_column(),
    UniqueConstraint("project_id", "name"),
    Index("subscriptions_by_topic", "project_id", "topic"),
    Index("subscriptions_by_project", "project_id", "number", "created_on"),
)

# Read every few seconds, and every ten minutes, by every node.
_partial_index("subscriptions_pushed", subscriptions.c.number, subscriptions.c.push.is_not(None))
_partial_index("subscriptions_parallel", subscriptions.c.number, subscriptions.c.parallel.is_not(None))

snapshots = _numbered(
    "snapshots",
    _project(),
    Column("name", Text, nullable=False),
    _of("topic_id", "topics.id", nullable=False, index=True),
    Column("floor", BigInteger, nullable=False, comment="all offsets before it were done"),
    Column("done", LargeBinary, nullable=False, comment="those done above it (ams.core.offsets)"),
    *_times("created_on", "expires_on"),
    _label_column(),
    UniqueConstraint("project_id", "name"),
    Index("snapshots_by_expiry", "expires_on"),
)
"""Former states of parallel subscriptions; a row goes with its topic."""


def _access(name: str, resources: Table) -> Table:
    """Make a table of access lists."""
    return Table(
        name,
        METADATA,
        Column("resource_id", String(36), ForeignKey(resources.c.id, ondelete="CASCADE"), primary_key=True),
        Column("position", Integer, primary_key=True),
        _of("user_id", "users.id", nullable=False, index=True),
        UniqueConstraint("resource_id", "user_id"),
    )


topic_access = _access("topic_access", topics)
subscription_access = _access("subscription_access", subscriptions)

schemas = _identified(
    "schemas",
    _project(),
    Column("name", Text, nullable=False),
    Column("revision", Integer, nullable=False, comment="the newest"),
    *_times("created_on"),
    Column("last_revision", Integer, comment="the highest there ever was, where it was deleted; null: the newest"),
    UniqueConstraint("project_id", "name"),
)

schema_revisions = _table(
    "schema_revisions",
    _of("schema_id", "schemas.id", primary_key=True),
    Column("revision", Integer, primary_key=True, comment="from 1"),
    Column("type", String(8), nullable=False, comment="json or avro"),
    Column("payload", Text, comment="JSON: the schema of the data; null: only attributes are checked"),
    Column("attributes", Text, comment="JSON: what attributes must be; null: anything"),
    *_times("created_on"),
    Column("bytes", Integer, nullable=False, server_default="0", comment="of payload and attributes"),
    Index("schema_revisions_by_bytes", "schema_id", "bytes"),
)

topic_schemas = _table(
    "topic_schemas",
    _of("topic_id", "topics.id", primary_key=True),
    _of("schema_id", "schemas.id", nullable=False, index=True),
    Column("encoding", String(8), comment="JSON or BINARY; null: not said"),
    Column("first_revision", Integer, comment="the oldest that messages may keep; null: any"),
    Column("last_revision", Integer, comment="the newest that messages may keep; null: any"),
)
"""The schema of a topic, by identity, as a schema may be renamed."""

registrations = _identified(
    "registrations",
    Column("name", Text, nullable=False),
    *_texts("email", "first_name", "last_name", "organization", "description"),
    Column("status", String(8), nullable=False, comment="pending, accepted or declined"),
    Column("activation_token", Text, nullable=False, comment="empty once decided; opens nothing"),
    Column("decline_comment", Text, nullable=False),
    *_times("registered_at"),
    Column("modified_at", BigInteger, comment="milliseconds since the epoch; null while pending"),
    Column("modified_by", String(36), ForeignKey("users.id", ondelete="SET NULL"), index=True),
)
_partial_index("registrations_one_pending", registrations.c.name, registrations.c.status == "pending", unique=True)

topic_tallies = _table(
    "topic_tallies",
    _of("topic_id", "topics.id", primary_key=True),
    Column("messages", BigInteger, nullable=False, comment="counted into the days; the log's end when caught up"),
    Column("bytes", BigInteger, nullable=False, comment="counted into the days"),
    Column("last_messages", BigInteger, nullable=False, comment="of the last publish request"),
    Column("last_publish", BigInteger, comment="milliseconds since the epoch; null: never"),
    Column("previous_publish", BigInteger, comment="milliseconds since the epoch; null: only one so far"),
)

subscription_tallies = _table(
    "subscription_tallies",
    _of("subscription_id", "subscriptions.id", primary_key=True),
    Column("messages", BigInteger, nullable=False, comment="handed out, repeats included"),
    Column("bytes", BigInteger, nullable=False, comment="handed out, repeats included"),
    Column("last_messages", BigInteger, nullable=False, comment="of the last pull"),
    Column("last_pull", BigInteger, comment="milliseconds since the epoch; null: never"),
    Column("previous_pull", BigInteger, comment="milliseconds since the epoch; null: only one so far"),
)

daily_messages = _table("daily_messages", *_days("topic_id", "topics.id"))
"""Published to a topic, by day; sums up to its tally."""

project_days = _table("project_days", *_days("project_id", "projects.id", "also of topics that are gone"))
"""Published to all topics of a project, by day: kept apart, so that a topic takes nothing with it (U13)."""

keys = _table(
    "keys",
    Column("fingerprint", String(64), primary_key=True, comment="of the key that encrypts the tokens"),
)

publish_claims = _table(
    "publish_claims",
    _of("topic_id", "topics.id", primary_key=True),
    Column("key", LargeBinary, primary_key=True, comment="hash of an idempotency key"),
    Column("content", LargeBinary, nullable=False, comment="hash of the messages"),
    Column("log_end", BigInteger, nullable=False, comment="the topic's end when the key was claimed"),
    *_times("claimed_at"),
    Column("version", Integer, nullable=False, comment="raised by each change"),
    Column("mark", String(36), nullable=False, comment="of who claimed it"),
    Column("first", BigInteger, comment="offset of the first message; null: not known yet"),
    Column("messages", Integer, comment="null: not known yet"),
    Column("time", BigInteger, comment="publish time: milliseconds since the epoch"),
    Index("publish_claims_by_claimed_at", "topic_id", "claimed_at"),
)
"""Idempotency keys, where the log cannot remember them."""

topic_sizes = _table(
    "topic_sizes",
    _of("topic_id", "topics.id", primary_key=True),
    Column("bytes", BigInteger, nullable=False, comment="ever published"),
)

push_secrets = _numbered(
    "push_secrets",
    _of("subscription_id", "subscriptions.id", nullable=False, index=True),
    Column("sealed", LargeBinary, nullable=False, comment="encrypted"),
    *_times("created_on"),
    Column("until", BigInteger, comment="milliseconds since the epoch; null: until another takes its place"),
)
"""Secrets that sign deliveries, the newest last; after a rotation two of them for a while."""

signing_keys = _table(
    "signing_keys",
    Column("purpose", String(16), primary_key=True),
    Column("id", String(40), nullable=False, comment="what names the key where something is signed with it"),
    Column("sealed", LargeBinary, nullable=False, comment="the private key in PEM, encrypted"),
    *_times("created_on"),
)

push_holders = _table(
    "push_holders",
    Column("holder", String(64), primary_key=True, comment="its name, another one at each start"),
    Column("until", BigInteger, nullable=False, comment="end of its leases: milliseconds since the epoch"),
    Column("leaving", Boolean, nullable=False, comment="whether it only finishes what it has"),
)
"""Processes that deliver (`ams.push.leases`). Times are the database's, as several nodes share it."""

push_leases = _table(
    "push_leases",
    _of("subscription_id", "subscriptions.id", primary_key=True),
    Column("holder", String(64), ForeignKey("push_holders.holder", ondelete="CASCADE"), nullable=False, index=True),
)

push_states = _table(
    "push_states",
    _of("subscription_id", "push_leases.subscription_id", primary_key=True),
    Column("state", Text, nullable=False, comment="JSON"),
    *_times("changed_on"),
)
"""The states of deliveries; those reported under a lease are deleted with it."""

parallel_nodes = _table(
    "parallel_nodes",
    Column("node", String(36), primary_key=True, comment="its name, another one at each start"),
    Column("url", Text, nullable=False, comment="how other nodes reach it; empty: it does not say"),
    Column("until", BigInteger, nullable=False, comment="end of what it owns: milliseconds since the epoch"),
    Column("pubsub", Text, comment="HOST:PORT at which other nodes reach its Google Pub/Sub port; null: none"),
)
"""Nodes that work on parallel subscriptions (`ams.service.parallel.ownership`). Times are the database's."""

parallel_owners = _table(
    "parallel_owners",
    _of("subscription_id", "subscriptions.id", primary_key=True),
    Column("node", String(36), ForeignKey("parallel_nodes.node", ondelete="CASCADE"), nullable=False, index=True),
)

named_tokens = _identified(
    "named_tokens",
    _of("user_id", "users.id", nullable=False),
    Column("name", Text, nullable=False),
    Column("digest", String(64), nullable=False, unique=True, comment="keyed hash of the token's hash"),
    Column("sealed", LargeBinary, nullable=False, comment="encrypted: the token's hash, not the token"),
    Column("rights", Text, comment="JSON list of action and resource; null: all the user's"),
    Column("public_key", Text, comment="PEM; null: none, it is a text"),
    Column("key_id", String(40), comment="of the public key; null: none"),
    *_times("created_on"),
    Column("expires_on", BigInteger, comment="milliseconds since the epoch; null: never"),
    Column("last_used", BigInteger, comment="milliseconds since the epoch; null: never"),
    _created_by(),
    UniqueConstraint("user_id", "name"),
    Index("named_tokens_key_id_unique", "key_id", unique=True),
)
"""Tokens of a user besides its own, known by a hash, so that their texts are nowhere. A token with a public key has no
text, and the hash of one that nobody ever had.
"""

bindings = _numbered(
    "bindings",
    _of("user_id", "users.id", nullable=False),
    Column("name", Text, nullable=False),
    Column("issuer", Text, nullable=False, comment="URL"),
    Column("subject", Text, nullable=False),
    Column("by_login", Boolean, nullable=False, comment="made with its user at the first login"),
    *_times("created_on"),
    _created_by(),
    UniqueConstraint("user_id", "name"),
    UniqueConstraint("issuer", "subject"),
)

issuers = _identified(
    "issuers",
    Column("name", Text, nullable=False, unique=True),
    Column("url", Text, nullable=False, unique=True),
    Column("rest", Text, nullable=False, comment="JSON: what else is set of it, but for its secret"),
    Column("secret", LargeBinary, comment="encrypted; null: none"),
    *_times("created_on", "modified_on"),
    _created_by(),
)

history = _table(
    "history",
    Column("of", Text, primary_key=True, comment="a topic's, subscription's or project's id, or `service`"),
    Column("began", BigInteger, primary_key=True, comment="minutes since the epoch"),
    Column("data", LargeBinary, nullable=False, comment="records of 33 bytes (`ams.service.history`)"),
)
"""Measurements of the last day, where several nodes share them; else they are in a file of their own."""

history_turns = _table(
    "history_turns",
    Column("node", String(36), primary_key=True, comment="the node that measures"),
    Column("until", BigInteger, nullable=False, comment="end of its turn: milliseconds since the epoch"),
)

audit = audit_table(METADATA, "audit")


OTHERS = "authn_"  # prefix of the certificate service's tables, which may be in the same database

REGISTRY = Schema(
    what="registry",
    tables=METADATA,
    outcomes=outcomes_table("outcomes"),
    taken=TAKEN,
    absent="project doesn't exist",
    migrations="ams.storage.registry:migrations",
    version="alembic_version",
    head="0001",
    channel="ams_registry",
    serving=0x616D735F73657276,  # "ams_serv" in ASCII
    owns=lambda table: not table.startswith(OTHERS),
)
