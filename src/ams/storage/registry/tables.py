"""Tables of the registry, the same for SQLite and PostgreSQL.

`number` is the order of creation, used for paging. `id` is the identity that other tables refer to. The database
enforces uniqueness and cascades (HTTP contract 17.3, U11 and U12), so races cannot break them. A change here needs a
migration; `tests/storage/database/test_opening.py` compares both.
"""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.schema import SchemaItem

from ams.core.iam import Bindings
from ams.core.parallel_options import ParallelOptions
from ams.core.push_config import PushConfig
from ams.core.rights import Rights
from ams.storage.audit.records import audit_table
from ams.storage.database.schema import NAMING, DatabaseSchema, outcomes_table

METADATA = sa.MetaData(naming_convention=NAMING)

# Error texts by violated unique constraint.
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


@functools.lru_cache(1024)
def _roles(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))  # cached: few distinct values, hundreds per page of users


class _Roles(sa.TypeDecorator[Sequence[str]]):
    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Sequence[str] | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else json.dumps(list(dict.fromkeys(value)))

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Sequence[str] | None:
        return None if value is None else _roles(value)


class _Structure(sa.TypeDecorator[Any]):
    """A JSON column whose values are instances of a class; null: what `empty` makes."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, kind: Any, empty: Callable[[], Any] = NoneType) -> None:
        super().__init__()
        self.kind, self.empty = kind, empty
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str | None:
        return None if value is None or value == self.empty() else msgspec.json.encode(value).decode()

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Any:
        return self.empty() if value is None else self._decoder.decode(value)


def _iam_column() -> sa.Column[Bindings]:
    return sa.Column("iam", _Structure(Bindings, tuple), comment="JSON list of IAM bindings without effect; null: none")


def _label_column() -> sa.Column[Mapping[str, str]]:
    return sa.Column("labels", _Structure(dict[str, Any], dict), comment="JSON object of texts; null: none")


def _numbered_table(name: str, *parts: SchemaItem) -> sa.Table:
    number = sa.Column("number", sa.Integer, primary_key=True, autoincrement=True)
    return sa.Table(name, METADATA, number, *parts, sqlite_autoincrement=True)


def _identified_table(name: str, *parts: SchemaItem) -> sa.Table:
    return _numbered_table(name, sa.Column("id", sa.String(36), nullable=False, unique=True), *parts)


def _texts(*names: str) -> Sequence[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def _created_by() -> sa.Column[str | None]:
    return sa.Column("created_by", sa.String(36), sa.ForeignKey("users.id", ondelete="SET NULL"), index=True)


def _of(name: str, owner: str, **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.String(36), sa.ForeignKey(owner, ondelete="CASCADE"), **options)


def _named_in(owner: str) -> Sequence[SchemaItem]:
    key, name = f"{owner}_id", sa.Column("name", sa.Text, nullable=False)
    return [_of(key, f"{owner}s.id", nullable=False), name, sa.UniqueConstraint(key, "name")]


def _number(name: str, comment: str) -> sa.Column[int | None]:
    return sa.Column(name, sa.BigInteger, comment=comment)


def _partial_index(name: str, column: sa.Column[Any], where: sa.ColumnElement[bool], *, unique: bool = False) -> None:
    sa.Index(name, column, unique=unique, sqlite_where=where, postgresql_where=where)


def _table(name: str, *parts: SchemaItem) -> sa.Table:
    return sa.Table(name, METADATA, *parts)


def _times(*names: str) -> Sequence[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger, nullable=False, comment="milliseconds since the epoch") for name in names]


def _days(owner: str, of: str, comment: str | None = None) -> Sequence[sa.Column[Any]]:
    return [
        _of(owner, of, primary_key=True),
        sa.Column("day", sa.String(10), primary_key=True, comment="YYYY-MM-DD, UTC"),
        *(sa.Column(name, sa.BigInteger, nullable=False, comment=comment) for name in ("messages", "bytes")),
    ]


users = _identified_table(
    "users",
    sa.Column("name", sa.Text, nullable=False, unique=True),
    *_texts("email", "first_name", "last_name", "organization", "description"),
    sa.Column("service_roles", _Roles, nullable=False, comment="JSON list"),
    sa.Column("token_digest", sa.String(64), nullable=False, unique=True, comment="keyed hash"),
    sa.Column("token_sealed", sa.LargeBinary, nullable=False, comment="encrypted"),
    *_times("created_on", "modified_on"),
    _created_by(),
    sa.Column("made_in", sa.String(36), index=True, comment="identity of the project that it was made in; null: none"),
    sa.Index("users_by_created_on", "created_on"),
)

projects = _identified_table(
    "projects",
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("description", sa.Text, nullable=False),
    *_times("created_on", "modified_on"),
    _created_by(),
    _number("retention", "milliseconds, for topics without their own; null: the log's default"),
    sa.Column("quotas", _Structure(dict[str, Any], dict), comment="JSON object of numbers: its own quotas; null: none"),
    sa.Column(
        "strict_data", sa.Boolean, comment="whether data that is not base64 is refused; null: as the setting says"
    ),
)

memberships = _numbered_table(
    "memberships",
    _of("user_id", "users.id", nullable=False),
    _of("project_id", "projects.id", nullable=False, index=True),
    sa.Column("roles", _Roles, nullable=False, comment="JSON list"),
    sa.UniqueConstraint("user_id", "project_id"),
    sa.Index("memberships_by_project", "project_id", "user_id"),
)

topics = _identified_table(
    "topics",
    *_named_in("project"),
    _number("retention", "milliseconds; null: the project's, then the log's default"),
    *_times("created_on"),
    _label_column(),
    _iam_column(),
    sa.Column("deleted_schema", sa.String(8), comment="what encoding was said of a schema that is deleted; null: none"),
    sa.Index("topics_by_project", "project_id", "number", "created_on"),
)

subscriptions = _identified_table(
    "subscriptions",
    *_named_in("project"),
    sa.Column("topic", sa.Text, nullable=False, comment="a name: the topic may go and come back"),
    sa.Column("ack_deadline_seconds", sa.Integer, nullable=False, comment="seconds"),
    sa.Column("push", _Structure(PushConfig), comment="JSON; null: a pull subscription"),
    *_times("created_on"),
    sa.Column("parallel", _Structure(ParallelOptions), comment="JSON; null: an ordered subscription"),
    _number("used_on", "milliseconds since the epoch, of one that goes unused; null: not noted"),
    _label_column(),
    _iam_column(),
    sa.Index("subscriptions_by_topic", "project_id", "topic"),
    sa.Index("subscriptions_by_project", "project_id", "number", "created_on"),
)

# Queried by every node every few seconds and every ten minutes.
_partial_index("subscriptions_pushed", subscriptions.c.number, subscriptions.c.push.is_not(None))
_partial_index("subscriptions_parallel", subscriptions.c.number, subscriptions.c.parallel.is_not(None))

snapshots = _numbered_table(
    "snapshots",
    *_named_in("project"),
    _of("topic_id", "topics.id", nullable=False, index=True),
    sa.Column("floor", sa.BigInteger, nullable=False, comment="all offsets before it were done"),
    sa.Column("done", sa.LargeBinary, nullable=False, comment="those done above it (ams.core.offsets)"),
    *_times("created_on", "expires_on"),
    _label_column(),
    _iam_column(),
    sa.Index("snapshots_by_expiry", "expires_on"),
)
"""Snapshots of parallel subscriptions; deleted with their topic."""


def _access(name: str, resources: sa.Table) -> sa.Table:
    return _table(
        name,
        sa.Column("resource_id", sa.String(36), sa.ForeignKey(resources.c.id, ondelete="CASCADE"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        _of("user_id", "users.id", nullable=False, index=True),
        sa.UniqueConstraint("resource_id", "user_id"),
    )


topic_access = _access("topic_access", topics)
subscription_access = _access("subscription_access", subscriptions)

schemas = _identified_table(
    "schemas",
    *_named_in("project"),
    sa.Column("revision", sa.Integer, nullable=False, comment="the newest"),
    *_times("created_on"),
    _iam_column(),
    sa.Column(
        "last_revision", sa.Integer, comment="the highest there ever was, where it was deleted; null: the newest"
    ),
)

schema_revisions = _table(
    "schema_revisions",
    _of("schema_id", "schemas.id", primary_key=True),
    sa.Column("revision", sa.Integer, primary_key=True, comment="from 1"),
    sa.Column("type", sa.String(8), nullable=False, comment="json, avro or protobuf"),
    sa.Column("payload", sa.Text, comment="JSON: the schema of the data; null: only attributes are checked"),
    sa.Column("attributes", sa.Text, comment="JSON: what attributes must be; null: anything"),
    *_times("created_on"),
    sa.Column("bytes", sa.Integer, nullable=False, server_default="0", comment="of payload and attributes"),
    sa.Index("schema_revisions_by_bytes", "schema_id", "bytes"),
)

topic_schemas = _table(
    "topic_schemas",
    _of("topic_id", "topics.id", primary_key=True),
    _of("schema_id", "schemas.id", nullable=False, index=True),
    sa.Column("encoding", sa.String(8), comment="JSON or BINARY; null: not said"),
    sa.Column("first_revision", sa.Integer, comment="the oldest that messages may keep; null: any"),
    sa.Column("last_revision", sa.Integer, comment="the newest that messages may keep; null: any"),
)
"""Schemas of topics, by identity, as schemas may be renamed."""

registrations = _identified_table(
    "registrations",
    *_texts("name", "email", "first_name", "last_name", "organization", "description"),
    sa.Column("status", sa.String(8), nullable=False, comment="pending, accepted or declined"),
    sa.Column("activation_token", sa.Text, nullable=False, comment="empty once decided; opens nothing"),
    sa.Column("decline_comment", sa.Text, nullable=False),
    *_times("registered_at"),
    _number("modified_at", "milliseconds since the epoch; null while pending"),
    sa.Column("modified_by", sa.String(36), sa.ForeignKey("users.id", ondelete="SET NULL"), index=True),
)
_partial_index("registrations_one_pending", registrations.c.name, registrations.c.status == "pending", unique=True)

topic_tallies = _table(
    "topic_tallies",
    _of("topic_id", "topics.id", primary_key=True),
    sa.Column("messages", sa.BigInteger, nullable=False, comment="counted into the days; the log's end when caught up"),
    sa.Column("bytes", sa.BigInteger, nullable=False, comment="counted into the days"),
    sa.Column("last_messages", sa.BigInteger, nullable=False, comment="of the last publish request"),
    _number("last_publish", "milliseconds since the epoch; null: never"),
    _number("previous_publish", "milliseconds since the epoch; null: only one so far"),
)

subscription_tallies = _table(
    "subscription_tallies",
    _of("subscription_id", "subscriptions.id", primary_key=True),
    sa.Column("messages", sa.BigInteger, nullable=False, comment="handed out, repeats included"),
    sa.Column("bytes", sa.BigInteger, nullable=False, comment="handed out, repeats included"),
    sa.Column("last_messages", sa.BigInteger, nullable=False, comment="of the last pull"),
    _number("last_pull", "milliseconds since the epoch; null: never"),
    _number("previous_pull", "milliseconds since the epoch; null: only one so far"),
)

daily_messages = _table("daily_messages", *_days("topic_id", "topics.id"))
"""Messages published to a topic per day; the sum is its tally."""

project_days = _table("project_days", *_days("project_id", "projects.id", "also of topics that are gone"))
"""Messages published to all topics of a project per day, including deleted topics (U13)."""

keys = _table(
    "keys", sa.Column("fingerprint", sa.String(64), primary_key=True, comment="of the key that encrypts the tokens")
)

publish_claims = _table(
    "publish_claims",
    _of("topic_id", "topics.id", primary_key=True),
    sa.Column("key", sa.LargeBinary, primary_key=True, comment="hash of an idempotency key"),
    sa.Column("content", sa.LargeBinary, nullable=False, comment="hash of the messages"),
    sa.Column("log_end", sa.BigInteger, nullable=False, comment="the topic's end when the key was claimed"),
    *_times("claimed_at"),
    sa.Column("version", sa.Integer, nullable=False, comment="raised by each change"),
    sa.Column("mark", sa.String(36), nullable=False, comment="of who claimed it"),
    _number("first", "offset of the first message; null: not known yet"),
    sa.Column("messages", sa.Integer, comment="null: not known yet"),
    _number("time", "publish time: milliseconds since the epoch"),
    sa.Index("publish_claims_by_claimed_at", "topic_id", "claimed_at"),
)
"""Idempotency keys of the log on Kafka."""

topic_sizes = _table(
    "topic_sizes",
    _of("topic_id", "topics.id", primary_key=True),
    sa.Column("bytes", sa.BigInteger, nullable=False, comment="ever published"),
)

push_secrets = _numbered_table(
    "push_secrets",
    _of("subscription_id", "subscriptions.id", nullable=False, index=True),
    sa.Column("sealed", sa.LargeBinary, nullable=False, comment="encrypted"),
    *_times("created_on"),
    _number("until", "milliseconds since the epoch; null: until another takes its place"),
)
"""Signing secrets of deliveries, newest last; two for a while after a rotation."""

signing_keys = _table(
    "signing_keys",
    sa.Column("purpose", sa.String(16), primary_key=True),
    sa.Column("id", sa.String(40), nullable=False, comment="what names the key where something is signed with it"),
    sa.Column("sealed", sa.LargeBinary, nullable=False, comment="the private key in PEM, encrypted"),
    *_times("created_on"),
)

lease_holders = _table(
    "lease_holders",
    sa.Column("holder", sa.String(64), primary_key=True, comment="its name, another one at each start"),
    sa.Column("kind", sa.String(8), nullable=False, comment="of its leases"),
    sa.Column("until", sa.BigInteger, nullable=False, comment="end of its leases: milliseconds since the epoch"),
    sa.Column("leaving", sa.Boolean, nullable=False, comment="whether it only finishes what it has"),
    sa.Column("url", sa.Text, nullable=False, comment="how other nodes reach it; empty: it does not say"),
    sa.Column("pubsub", sa.Text, nullable=False, comment="HOST:PORT of its Google Pub/Sub port; empty: none"),
)
"""Processes that hold leases (`ams.cluster.lease_table`). Times are the database's."""

leases = _table(
    "leases",
    _of("subscription_id", "subscriptions.id", primary_key=True),
    sa.Column("kind", sa.String(8), primary_key=True, comment="push: who delivers it; parallel: who works on it"),
    sa.Column(
        "holder", sa.String(64), sa.ForeignKey("lease_holders.holder", ondelete="CASCADE"), nullable=False, index=True
    ),
    sa.Column("state", sa.Text, comment="how the delivery goes, JSON; null: nothing was reported"),
)

named_tokens = _identified_table(
    "named_tokens",
    *_named_in("user"),
    sa.Column("digest", sa.String(64), nullable=False, unique=True, comment="keyed hash of the token's hash"),
    sa.Column("sealed", sa.LargeBinary, nullable=False, comment="encrypted: the token's hash, not the token"),
    sa.Column("rights", _Structure(Rights), comment="JSON list of action and resource; null: all the user's"),
    sa.Column("public_key", sa.Text, comment="PEM; null: none, it is a text"),
    sa.Column("key_id", sa.String(40), comment="of the public key; null: none"),
    *_times("created_on"),
    _number("expires_on", "milliseconds since the epoch; null: never"),
    _number("last_used", "milliseconds since the epoch; null: never"),
    _created_by(),
    sa.Index("named_tokens_key_id_unique", "key_id", unique=True),
)
"""Looked up by hash; their texts are not stored. With a public key there is no text, and the hash matches no token."""

bindings = _numbered_table(
    "bindings",
    *_named_in("user"),
    sa.Column("issuer", sa.Text, nullable=False, comment="URL"),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("by_login", sa.Boolean, nullable=False, comment="made with its user at the first login"),
    *_times("created_on"),
    _created_by(),
    sa.UniqueConstraint("issuer", "subject"),
)

issuers = _identified_table(
    "issuers",
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("url", sa.Text, nullable=False, unique=True),
    sa.Column("rest", sa.Text, nullable=False, comment="JSON: what else is set of it, but for its secret"),
    sa.Column("secret", sa.LargeBinary, comment="encrypted; null: none"),
    *_times("created_on", "modified_on"),
    _created_by(),
)

history = _table(
    "history",
    sa.Column("of", sa.Text, primary_key=True, comment="a topic's, subscription's or project's id, or `service`"),
    sa.Column("began", sa.BigInteger, primary_key=True, comment="minutes since the epoch"),
    sa.Column("data", sa.LargeBinary, nullable=False, comment="records of 33 bytes (`ams.service.history`)"),
)
"""Measurements of the last day on PostgreSQL; otherwise they are in a separate file."""

audit = audit_table(METADATA, "audit")


OTHERS = "authn_"  # prefix of the certificate service's tables, which may be in the same database

REGISTRY = DatabaseSchema(
    what="registry",
    tables=METADATA,
    outcomes=outcomes_table("outcomes"),
    taken=TAKEN,
    absent="project doesn't exist",
    keys=keys,
    other_key="the token key is not the one this registry's tokens were encrypted with; restore it",
    migrations="ams.storage.registry:migrations",
    version="alembic_version",
    head="0001",
    channel="ams_registry",
    serving=0x616D735F73657276,  # "ams_serv" in ASCII
    owns=lambda table: not table.startswith(OTHERS),
)
