"""Filling an empty registry with the lines of an export (`ams.storage.export_format`), in one transaction.

The lines are good: names and references were judged before (`ams.app.moving.rules`). What an identity or a time is
missing for gets one.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import singledispatchmethod
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, insert

from ams.core.clock import Milliseconds
from ams.core.names import SubscriptionId, TokenId, TopicId, UserId, new_uuid, topic_id, topic_id_text
from ams.core.push_config import AUTOGEN, HTTP_ENDPOINT, PushConfig
from ams.storage.export_format import (
    Binding,
    Day,
    Issuer,
    Line,
    Membership,
    NamedToken,
    Project,
    Registration,
    Schema,
    Subscription,
    Tally,
    Topic,
    User,
)
from ams.storage.registry import push
from ams.storage.registry.issuers import columns, issuer_on
from ams.storage.registry.named_tokens import rights_written, sealed
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
    topic_sizes,
    topic_tallies,
    topics,
    users,
)
from ams.storage.secrets import Secrets, new_token

Name = tuple[str, str]
"""Of something in a project: the project's and its own."""


class Loaded(NamedTuple):
    """A topic whose messages are in the log already."""

    topic: TopicId
    bytes: int
    """Ever published to it."""


class Placed(NamedTuple):
    """A subscription and where its cursor has to stand."""

    subscription: SubscriptionId
    topic: TopicId | None
    """None: there is no such topic now."""
    offset: int
    lost: int


class Filling:
    """Adds lines one after the other; `logs` are the topics whose messages are there already."""

    def __init__(
        self, connection: Connection, secrets: Secrets, now: Milliseconds, logs: Mapping[Name, Loaded]
    ) -> None:
        self.cursors: list[Placed] = []
        """Of the subscriptions added."""
        self._connection = connection
        self._secrets = secrets
        self._now = now
        self._logs = logs
        self._users: dict[str, str] = {}
        self._projects: dict[str, str] = {}
        self._schemas: dict[Name, str] = {}
        self._topics: dict[Name, str] = {}

    @singledispatchmethod
    def add(self, line: Line) -> None:
        """Add what a line tells."""
        raise TypeError(f"{line!r} is nothing a registry holds")

    @add.register
    def _(self, line: User) -> None:
        identity = self._users[line.name] = line.id or new_uuid()
        token = line.token or new_token()
        self._insert(
            users, id=identity, name=line.name, email=line.email, first_name=line.first_name, last_name=line.last_name,
            organization=line.organization, description=line.description, service_roles=_listed(line.service_roles),
            token_digest=self._secrets.digest(token), token_sealed=self._secrets.encrypt(token, UserId(identity)),
            created_on=self._time(line.created_on), modified_on=self._time(line.modified_on, line.created_on),
            created_by=self._user(line.created_by),
        )  # fmt: skip

    @add.register
    def _(self, line: Project) -> None:
        identity = self._projects[line.name] = line.id or new_uuid()
        self._insert(
            projects, id=identity, name=line.name, description=line.description, retention=line.retention,
            created_on=self._time(line.created_on), modified_on=self._time(line.modified_on, line.created_on),
            created_by=self._user(line.created_by),
        )  # fmt: skip
        self._insert_days(project_days, line.days, project_id=identity)

    @add.register
    def _(self, line: Membership) -> None:
        self._insert(
            memberships, user_id=self._users[line.user], project_id=self._projects[line.project],
            roles=_listed(line.roles),
        )  # fmt: skip

    @add.register
    def _(self, line: Schema) -> None:
        identity = self._schemas[line.project, line.name] = line.id or new_uuid()
        created_on = self._time(line.created_on)
        self._insert(
            schemas, id=identity, project_id=self._projects[line.project], name=line.name,
            revision=line.revisions[-1].revision, created_on=created_on,
        )  # fmt: skip
        for each in line.revisions:
            self._insert(
                schema_revisions, schema_id=identity, revision=each.revision, type=each.type, payload=each.payload,
                attributes=each.attributes, created_on=self._time(each.created_on, created_on),
            )  # fmt: skip

    @add.register
    def _(self, line: Topic) -> None:
        name = (line.project, line.name)
        log = self._logs.get(name)
        identity = self._topics[name] = topic_id_text(log.topic) if log else line.id or new_uuid()
        self._insert(
            topics, id=identity, project_id=self._projects[line.project], name=line.name, retention=line.retention,
            created_on=self._time(line.created_on),
        )  # fmt: skip
        if log and log.bytes:  # for a log that cannot keep them itself (`ams.storage.registry.idempotency`)
            self._insert(topic_sizes, topic_id=identity, bytes=log.bytes)
        if line.schema is not None:
            self._insert(topic_schemas, topic_id=identity, schema_id=self._schemas[line.project, line.schema])
        self._insert_access(topic_access, identity, line.authorized)
        self._insert_days(daily_messages, line.days, topic_id=identity)
        if line.tally is not None:
            times = {"last_publish": line.tally.last, "previous_publish": line.tally.before}
            self._insert_tally(topic_tallies, line.tally, topic_id=identity, **times)

    @add.register
    def _(self, line: Subscription) -> None:
        identity = line.id or new_uuid()
        self._insert(
            subscriptions, id=identity, project_id=self._projects[line.project], name=line.name, topic=line.topic,
            ack_deadline_seconds=line.ack_deadline_seconds, push=push.stored(_with_secrets(line.push)),
            created_on=self._time(line.created_on),
        )  # fmt: skip
        for each in line.push_secrets:
            sealed = self._secrets.seal_push(each.secret, SubscriptionId(identity))
            values = {"subscription_id": identity, "created_on": self._now, "until": each.until}
            self._insert(push_secrets, sealed=sealed, **values)
        self._insert_access(subscription_access, identity, line.authorized)
        if line.tally is not None:
            times = {"last_pull": line.tally.last, "previous_pull": line.tally.before}
            self._insert_tally(subscription_tallies, line.tally, subscription_id=identity, **times)
        topic = self._topics.get((line.project, line.topic))
        place = Placed(SubscriptionId(identity), topic_id(topic) if topic else None, line.offset, line.lost)
        self.cursors.append(place)

    @add.register
    def _(self, line: Registration) -> None:
        self._insert(
            registrations, id=line.id or new_uuid(), name=line.name, email=line.email, first_name=line.first_name,
            last_name=line.last_name, organization=line.organization, description=line.description, status=line.status,
            activation_token=line.activation_token or (new_token() if line.status == "pending" else ""),
            decline_comment=line.decline_comment, registered_at=self._time(line.registered_at),
            modified_at=line.modified_at, modified_by=self._user(line.modified_by),
        )  # fmt: skip

    @add.register
    def _(self, line: NamedToken) -> None:
        identity = TokenId(line.id or new_uuid())
        self._insert(
            named_tokens, id=identity, user_id=self._users[line.user], name=line.name,
            rights=rights_written(line.rights), created_on=self._time(line.created_on), expires_on=line.expires_on,
            last_used=line.last_used, created_by=self._user(line.created_by),
            **sealed(self._secrets, line.hash, identity),
        )  # fmt: skip

    @add.register
    def _(self, line: Binding) -> None:
        self._insert(
            bindings, user_id=self._users[line.user], name=line.name, issuer=line.issuer, subject=line.subject,
            by_login=line.by_login, created_on=self._time(line.created_on), created_by=self._user(line.created_by),
        )  # fmt: skip

    @add.register
    def _(self, line: Issuer) -> None:
        identity = line.id or new_uuid()
        self._insert(
            issuers, id=identity, created_on=self._time(line.created_on),
            modified_on=self._time(line.modified_on, line.created_on), created_by=self._user(line.created_by),
            **columns(self._secrets, issuer_on(line), identity),
        )  # fmt: skip

    @property
    def topics(self) -> Mapping[Name, TopicId]:
        """The topics added, by name."""
        return {name: topic_id(identity) for name, identity in self._topics.items()}

    def _insert(self, table: Table, **values: Any) -> None:
        self._connection.execute(insert(table), values)

    def _insert_all(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            self._connection.execute(insert(table), rows)

    def _insert_days(self, table: Table, days: Iterable[Day], **owner: str) -> None:
        self._insert_all(table, [{**owner, **day._asdict()} for day in days])

    def _insert_tally(self, table: Table, tally: Tally, **values: Any) -> None:
        counts = {"messages": tally.messages, "bytes": tally.bytes, "last_messages": tally.last_messages}
        self._insert(table, **counts, **values)

    def _insert_access(self, table: Table, resource: str, names: Iterable[str]) -> None:
        listed = enumerate(self._users[name] for name in names)
        self._insert_all(
            table, [{"resource_id": resource, "position": position, "user_id": user} for position, user in listed]
        )

    def _user(self, name: str | None) -> str | None:
        return None if name is None else self._users[name]

    def _time(self, *told: int | None) -> int:
        """Return the first time that was told; now, when none was."""
        return next((each for each in told if each is not None), self._now)


def _with_secrets(config: PushConfig | None) -> PushConfig | None:
    """Give a push configuration that came without its secrets new ones."""
    if config is None or config.type != HTTP_ENDPOINT:
        return config
    header = new_token() if config.header_type == AUTOGEN else ""
    return replace(
        config,
        header_value=config.header_value or header,
        verification_hash=config.verification_hash or new_token(),
    )


def _listed(texts: Iterable[str]) -> str:
    return json.dumps(list(dict.fromkeys(texts)))
