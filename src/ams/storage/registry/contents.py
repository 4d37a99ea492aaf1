"""All that the registry holds, as lines of an export (`ams.storage.export_format`), each after those it refers to."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, Row, Select, Table, select

from ams.core.names import SubscriptionId
from ams.core.push_config import PushConfig
from ams.storage.export_format import (
    Binding,
    Day,
    Issuer,
    Line,
    Membership,
    NamedToken,
    Project,
    PushSecret,
    Registration,
    Revision,
    Schema,
    Subscription,
    Tally,
    Topic,
    User,
)
from ams.storage.registry import push
from ams.storage.registry.issuers import fields_of, secret_of
from ams.storage.registry.named_tokens import hash_of, rights_read
from ams.storage.registry.tables import (
    bindings,
    daily_messages,
    issuers,
    memberships,
    named_tokens,
    project_days,
    projects,
    push_secrets,
    registrations,
    schema_revisions,
    schemas,
    subscription_access,
    subscription_tallies,
    subscriptions,
    topic_access,
    topic_schemas,
    topic_tallies,
    topics,
    users,
)
from ams.storage.secrets import Secrets

_AT_ONCE = {"yield_per": 1000}
"""Rows a database hands over at a time: of what is exported nothing large is in memory."""
_MAKER = users.alias("maker")


class Standing(NamedTuple):
    """Where a subscription's cursor stands."""

    offset: int
    lost: int


class Contents:
    """Reads one state of the registry; `secrets` is None to leave tokens and what else is secret out."""

    def __init__(
        self, connection: Connection, secrets: Secrets | None, standings: Mapping[SubscriptionId, Standing]
    ) -> None:
        self._connection = connection
        self._secrets = secrets
        self._standings = standings

    def lines(self) -> Iterator[Line]:
        """Yield everything, each kind in the order in which it was made. Raises `Damaged` for an unreadable token."""
        yield from map(self._user, self._rows(_made(users)))
        yield from map(self._project, self._rows(_made(projects)))
        yield from map(_membership, self._rows(_MEMBERSHIPS))
        yield from map(self._schema, self._rows(_in_project(schemas)))
        yield from map(self._topic, self._rows(_TOPICS))
        yield from map(self._subscription, self._rows(_in_project(subscriptions)))
        yield from map(self._registration, self._rows(_REGISTRATIONS))
        if self._secrets is not None:  # a named token is nothing but a secret: nobody could make another for it
            yield from (_named_token(row, self._secrets) for row in self._rows(_of_user(named_tokens)))
        yield from map(_binding, self._rows(_of_user(bindings)))
        yield from map(self._issuer, self._rows(_made(issuers)))

    def _rows(self, query: Select[Any]) -> Iterator[Row[Any]]:
        with self._connection.execute(query, execution_options=_AT_ONCE) as rows:  # closed when a row is damaged, too
            yield from rows

    def _user(self, row: Row[Any]) -> User:
        token = self._secrets.decrypt(row.token_sealed, row.id) if self._secrets else ""
        return User(
            name=row.name, id=row.id, email=row.email, first_name=row.first_name, last_name=row.last_name,
            organization=row.organization, description=row.description, service_roles=_texts(row.service_roles),
            token=token, created_on=row.created_on, modified_on=row.modified_on, created_by=row.maker,
        )  # fmt: skip

    def _project(self, row: Row[Any]) -> Project:
        return Project(
            name=row.name, id=row.id, description=row.description, created_on=row.created_on,
            modified_on=row.modified_on, created_by=row.maker, retention=row.retention,
            days=self._days(project_days, project_days.c.project_id == row.id),
        )  # fmt: skip

    def _schema(self, row: Row[Any]) -> Schema:
        query = select(schema_revisions).where(schema_revisions.c.schema_id == row.id)
        revisions = self._connection.execute(query.order_by(schema_revisions.c.revision))
        return Schema(
            project=row.project, name=row.name, id=row.id, created_on=row.created_on,
            revisions=tuple(_revision(each) for each in revisions),
        )  # fmt: skip

    def _topic(self, row: Row[Any]) -> Topic:
        tally = self._connection.execute(select(topic_tallies).where(topic_tallies.c.topic_id == row.id)).first()
        return Topic(
            project=row.project, name=row.name, id=row.id, retention=row.retention, created_on=row.created_on,
            schema=row.schema, authorized=self._listed(topic_access, row.id),
            tally=_tally(tally, tally.last_publish, tally.previous_publish) if tally else None,
            days=self._days(daily_messages, daily_messages.c.topic_id == row.id),
        )  # fmt: skip

    def _subscription(self, row: Row[Any]) -> Subscription:
        query = select(subscription_tallies).where(subscription_tallies.c.subscription_id == row.id)
        tally = self._connection.execute(query).first()
        standing = self._standings.get(row.id, Standing(0, 0))
        return Subscription(
            project=row.project, name=row.name, topic=row.topic, id=row.id, created_on=row.created_on,
            ack_deadline_seconds=row.ack_deadline_seconds, push=self._push(push.read(row.push)),
            push_secrets=self._push_secrets(row.id),
            authorized=self._listed(subscription_access, row.id), offset=standing.offset, lost=standing.lost,
            tally=_tally(tally, tally.last_pull, tally.previous_pull) if tally else None,
        )  # fmt: skip

    def _registration(self, row: Row[Any]) -> Registration:
        return Registration(
            name=row.name, id=row.id, email=row.email, first_name=row.first_name, last_name=row.last_name,
            organization=row.organization, description=row.description, status=row.status,
            activation_token=row.activation_token if self._secrets else "", decline_comment=row.decline_comment,
            registered_at=row.registered_at, modified_at=row.modified_at, modified_by=row.maker,
        )  # fmt: skip

    def _issuer(self, row: Row[Any]) -> Issuer:
        secret = secret_of(row, self._secrets) if self._secrets else ""
        made = {"id": row.id, "created_on": row.created_on, "modified_on": row.modified_on, "created_by": row.maker}
        return msgspec.convert({**fields_of(row, secret), **made}, Issuer)

    def _push(self, config: PushConfig | None) -> PushConfig | None:
        if config is None or self._secrets:
            return config
        return replace(config, header_value="", verification_hash="")

    def _push_secrets(self, subscription: SubscriptionId) -> tuple[PushSecret, ...]:
        if self._secrets is None:
            return ()
        query = select(push_secrets).where(push_secrets.c.subscription_id == subscription)
        rows = self._connection.execute(query.order_by(push_secrets.c.number))
        return tuple(
            PushSecret(secret=self._secrets.open_push(row.sealed, subscription), until=row.until) for row in rows
        )

    def _days(self, table: Table, condition: Any) -> tuple[Day, ...]:
        query = select(table.c.day, table.c.messages, table.c.bytes).where(condition).order_by(table.c.day)
        return tuple(Day(*row) for row in self._connection.execute(query))

    def _listed(self, access: Table, resource: str) -> tuple[str, ...]:
        query = select(users.c.name).join(access, access.c.user_id == users.c.id)
        query = query.where(access.c.resource_id == resource).order_by(access.c.position)
        return tuple(self._connection.scalars(query))


def _made(table: Table) -> Select[Any]:
    """Select rows with the names of those who made them."""
    query = select(table, _MAKER.c.name.label("maker")).outerjoin(_MAKER, _MAKER.c.id == table.c.created_by)
    return query.order_by(table.c.number)


def _in_project(table: Table) -> Select[Any]:
    """Select rows with the names of their projects."""
    query = select(table, projects.c.name.label("project")).join(projects, projects.c.id == table.c.project_id)
    return query.order_by(table.c.number)


def _of_user(table: Table) -> Select[Any]:
    """Select rows with the names of their users and of those who made them."""
    return _made(table).add_columns(users.c.name.label("user")).join(users, users.c.id == table.c.user_id)


_MEMBERSHIPS: Select[Any] = (
    select(users.c.name.label("user"), projects.c.name.label("project"), memberships.c.roles)
    .select_from(memberships)
    .join(users, users.c.id == memberships.c.user_id)
    .join(projects, projects.c.id == memberships.c.project_id)
    .order_by(memberships.c.number)
)
_TOPICS = (
    _in_project(topics)
    .add_columns(schemas.c.name.label("schema"))
    .outerjoin(topic_schemas, topic_schemas.c.topic_id == topics.c.id)
    .outerjoin(schemas, schemas.c.id == topic_schemas.c.schema_id)
)
_REGISTRATIONS: Select[Any] = (
    select(registrations, _MAKER.c.name.label("maker"))
    .outerjoin(_MAKER, _MAKER.c.id == registrations.c.modified_by)
    .order_by(registrations.c.number)
)


def _membership(row: Row[Any]) -> Membership:
    return Membership(user=row.user, project=row.project, roles=_texts(row.roles))


def _named_token(row: Row[Any], secrets: Secrets) -> NamedToken:
    return NamedToken(
        user=row.user, name=row.name, hash=hash_of(secrets, row), id=row.id,
        rights=rights_read(row.rights), created_on=row.created_on, created_by=row.maker,
        expires_on=row.expires_on, last_used=row.last_used,
    )  # fmt: skip


def _binding(row: Row[Any]) -> Binding:
    return Binding(
        user=row.user, name=row.name, issuer=row.issuer, subject=row.subject, by_login=row.by_login,
        created_on=row.created_on, created_by=row.maker,
    )  # fmt: skip


def _revision(row: Row[Any]) -> Revision:
    return Revision(
        revision=row.revision, type=row.type, payload=row.payload, attributes=row.attributes, created_on=row.created_on
    )


def _tally(row: Row[Any], last: int | None, before: int | None) -> Tally:
    return Tally(messages=row.messages, bytes=row.bytes, last_messages=row.last_messages, last=last, before=before)


def _texts(column: str) -> tuple[str, ...]:
    return tuple(json.loads(column))
