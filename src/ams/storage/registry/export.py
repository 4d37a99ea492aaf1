"""The registry as lines of an export (`ams.storage.export_format`), and an empty registry filled with such lines.

One description serves both: a field of a line is the column of the same name, and what is more is beside it.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import singledispatchmethod
from typing import Any, NamedTuple, TypeVar

import msgspec
from sqlalchemy import Connection, Row, Select, Table, delete, insert, select

from ams.core.clock import Milliseconds
from ams.core.names import Offset, SubscriptionId, TokenId, TopicId, UserId, new_uuid, topic_id, topic_id_text
from ams.core.offsets import Range, bitmap_of, packed, ranges_of
from ams.core.public_keys import PublicKey
from ams.core.push_config import AUTOGEN, HTTP_ENDPOINT, PushConfig
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
    Snapshot,
    Subscription,
    Tally,
    Topic,
    User,
)
from ams.storage.registry import parallel, push
from ams.storage.registry.logins import (
    columns,
    fields_of,
    hash_of,
    issuer_on,
    key_columns,
    rights_written,
    sealed,
    secret_of,
)
from ams.storage.registry.records import SchemaContent
from ams.storage.registry.statements import with_creator, with_user_and_creator
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
    snapshots,
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
from ams.storage.registry.users import rights_read, roles_written
from ams.storage.secrets import Secrets, new_token

S = TypeVar("S", bound=msgspec.Struct)

Name = tuple[str, str]
"""Of something in a project: the project's and its own."""

_AT_ONCE = {"yield_per": 1000}
"""Rows a database hands over at a time: of what is exported nothing large is in memory."""
_TABLES: Mapping[type[msgspec.Struct], Table] = {
    User: users,
    Project: projects,
    Membership: memberships,
    Schema: schemas,
    Revision: schema_revisions,
    Topic: topics,
    Subscription: subscriptions,
    Snapshot: snapshots,
    Registration: registrations,
    NamedToken: named_tokens,
    Binding: bindings,
}
_OTHERWISE = frozenset({"created_by", "modified_by", "roles", "service_roles", "push", "parallel", "rights", "done"})
"""What columns hold in another form than lines: identities rather than names, and JSON."""
_SAME: Mapping[type[msgspec.Struct], Sequence[str]] = {
    kind: [name for name in kind.__struct_fields__ if name in table.c and name not in _OTHERWISE]
    for kind, table in _TABLES.items()
}
"""Fields that are columns of the same name."""


class _Tallies(NamedTuple):
    """A table of tallies, and what its columns are called."""

    table: Table
    owner: str
    last: str
    before: str


_OF_TOPICS = _Tallies(topic_tallies, "topic_id", "last_publish", "previous_publish")
_OF_SUBSCRIPTIONS = _Tallies(subscription_tallies, "subscription_id", "last_pull", "previous_pull")


class CursorPosition(NamedTuple):
    """Where a subscription's cursor stands."""

    offset: int
    lost: int
    done: Sequence[Range] = ()
    """Above the offset, of a parallel subscription."""


class Contents:
    """Reads one state of the registry; `secrets` is None to leave tokens and what else is secret out."""

    def __init__(
        self, connection: Connection, secrets: Secrets | None, standings: Mapping[SubscriptionId, CursorPosition]
    ) -> None:
        self._connection = connection
        self._secrets = secrets
        self._standings = standings

    def lines(self) -> Iterator[Line]:
        """Yield everything, each line after those it refers to, each kind in the order in which it was made.

        Raises `Damaged` for an unreadable token.
        """
        yield from self._rows(_made(users), self._user)
        yield from self._rows(_made(projects), self._project)
        yield from self._rows(_MEMBERSHIPS, _membership)
        yield from self._rows(_in_project(schemas), self._schema)
        yield from self._rows(_TOPICS, self._topic)
        yield from self._rows(_in_project(subscriptions), self._subscription)
        yield from self._rows(_SNAPSHOTS, _snapshot)
        yield from self._rows(_made(registrations, "modified_by"), self._registration)
        secrets = self._secrets
        if secrets is not None:  # a named token is nothing but a secret: no other could be made for it
            yield from self._rows(with_user_and_creator(named_tokens), lambda row: _named_token(row, secrets))
        yield from self._rows(with_user_and_creator(bindings), _binding)
        yield from self._rows(_made(issuers), self._issuer)

    def _rows(self, query: Select[Any], read: Callable[[Row[Any]], Line]) -> Iterator[Line]:
        """Yield the line of each row. Rows are read within: what the database holds open for them is closed at once
        when one is damaged.
        """
        with self._connection.execute(query, execution_options=_AT_ONCE) as rows:
            for row in rows:
                yield read(row)

    def _user(self, row: Row[Any]) -> User:
        token = self._secrets.decrypt(row.token_sealed, row.id) if self._secrets else ""
        return _line(User, row, service_roles=_texts(row.service_roles), token=token, created_by=row.creator)

    def _project(self, row: Row[Any]) -> Project:
        days = self._days(project_days, project_days.c.project_id == row.id)
        return _line(Project, row, created_by=row.creator, days=days)

    def _schema(self, row: Row[Any]) -> Schema:
        query = select(schema_revisions).where(schema_revisions.c.schema_id == row.id)
        revisions = self._connection.execute(query.order_by(schema_revisions.c.revision))
        return _line(Schema, row, project=row.project, revisions=tuple(_line(Revision, each) for each in revisions))

    def _topic(self, row: Row[Any]) -> Topic:
        return _line(
            Topic, row, project=row.project, schema=row.schema, authorized=self._listed(topic_access, row.id),
            tally=self._tally(_OF_TOPICS, row.id), days=self._days(daily_messages, daily_messages.c.topic_id == row.id),
            deleted_schema=row.deleted_schema or "", schema_encoding=row.encoding or "",
            first_revision=row.first_revision, last_revision=row.last_revision,
        )  # fmt: skip

    def _subscription(self, row: Row[Any]) -> Subscription:
        standing = self._standings.get(row.id, CursorPosition(0, 0))
        return _line(
            Subscription, row, project=row.project, push=self._push(push.read(row.push)),
            push_secrets=self._push_secrets(row.id), authorized=self._listed(subscription_access, row.id),
            offset=standing.offset, lost=standing.lost, done=tuple(standing.done),
            tally=self._tally(_OF_SUBSCRIPTIONS, row.id), parallel=parallel.read(row.parallel),
        )  # fmt: skip

    def _registration(self, row: Row[Any]) -> Registration:
        token = row.activation_token if self._secrets else ""
        return _line(Registration, row, activation_token=token, modified_by=row.creator)

    def _issuer(self, row: Row[Any]) -> Issuer:
        secret = secret_of(row, self._secrets) if self._secrets else ""
        made = {"id": row.id, "created_on": row.created_on, "modified_on": row.modified_on, "created_by": row.creator}
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

    def _tally(self, tallies: _Tallies, owner: str) -> Tally | None:
        query = select(tallies.table).where(tallies.table.c[tallies.owner] == owner)
        row = self._connection.execute(query).first()
        if row is None:
            return None
        last, before = getattr(row, tallies.last), getattr(row, tallies.before)
        return Tally(messages=row.messages, bytes=row.bytes, last_messages=row.last_messages, last=last, before=before)

    def _days(self, table: Table, condition: Any) -> tuple[Day, ...]:
        query = select(table.c.day, table.c.messages, table.c.bytes).where(condition).order_by(table.c.day)
        return tuple(Day(*row) for row in self._connection.execute(query))

    def _listed(self, access: Table, resource: str) -> tuple[str, ...]:
        query = select(users.c.name).join(access, access.c.user_id == users.c.id)
        query = query.where(access.c.resource_id == resource).order_by(access.c.position)
        return tuple(self._connection.scalars(query))


def _line(kind: type[S], row: Row[Any], **more: Any) -> S:
    """Make a line of a row: a field is the column of its name, unless it is in `more`."""
    return kind(**{name: getattr(row, name) for name in _SAME[kind]} | more)


def _made(table: Table, made_by: str = "created_by") -> Select[Any]:
    return with_creator(table, made_by).order_by(table.c.number)


def _in_project(table: Table) -> Select[Any]:
    """Select rows with the names of their projects."""
    query = select(table, projects.c.name.label("project")).join(projects, projects.c.id == table.c.project_id)
    return query.order_by(table.c.number)


_MEMBERSHIPS: Select[Any] = (
    select(users.c.name.label("user"), projects.c.name.label("project"), memberships.c.roles)
    .select_from(memberships)
    .join(users, users.c.id == memberships.c.user_id)
    .join(projects, projects.c.id == memberships.c.project_id)
    .order_by(memberships.c.number)
)
_TOPICS = (
    _in_project(topics)
    .add_columns(
        schemas.c.name.label("schema"), topic_schemas.c.encoding, topic_schemas.c.first_revision,
        topic_schemas.c.last_revision,
    )
    .outerjoin(topic_schemas, topic_schemas.c.topic_id == topics.c.id)
    .outerjoin(schemas, schemas.c.id == topic_schemas.c.schema_id)
)  # fmt: skip
_SNAPSHOTS = (
    _in_project(snapshots).add_columns(topics.c.name.label("topic")).join(topics, topics.c.id == snapshots.c.topic_id)
)


def _membership(row: Row[Any]) -> Membership:
    return Membership(user=row.user, project=row.project, roles=_texts(row.roles))


def _snapshot(row: Row[Any]) -> Snapshot:
    done = tuple(ranges_of(parallel.done_of(row)))
    return _line(Snapshot, row, project=row.project, topic=row.topic, done=done)


def _binding(row: Row[Any]) -> Binding:
    return _line(Binding, row, user=row.user, created_by=row.creator)


def _named_token(row: Row[Any], secrets: Secrets) -> NamedToken:
    held = {"hash": hash_of(secrets, row), "rights": rights_read(row.rights)}
    return _line(NamedToken, row, user=row.user, created_by=row.creator, **held)


def _texts(column: str) -> tuple[str, ...]:
    return tuple(json.loads(column))


class Loaded(NamedTuple):
    """A topic whose messages are in the log already."""

    topic: TopicId
    bytes: int
    """Published to it in all."""


class Placed(NamedTuple):
    """A subscription and where its cursor has to stand."""

    subscription: SubscriptionId
    topic: TopicId | None
    """None: there is no such topic now."""
    offset: int
    lost: int
    done: Sequence[Range] = ()


def empty(connection: Connection) -> None:
    """Remove all that lines of an export are stored as; what belongs to it goes along."""
    for table in (subscriptions, snapshots, topics, schemas, registrations, bindings, issuers, projects, users):
        connection.execute(delete(table))


class RegistryImport:
    """Adds lines to an empty registry, one after the other, in one transaction.

    The lines are good: names and references were judged before (`ams.app.moving.rules`). What an identity or a time is
    missing for gets one. `logs` are the topics whose messages are there already.
    """

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
        """Add the record of a line."""
        raise TypeError(f"{line!r} is nothing a registry holds")

    @add.register
    def _(self, line: User) -> None:
        identity = self._users[line.name] = line.id or new_uuid()
        token = line.token or new_token()
        self._insert_line(
            line, id=identity, service_roles=roles_written(line.service_roles),
            token_digest=self._secrets.digest(token), token_sealed=self._secrets.encrypt(token, UserId(identity)),
        )  # fmt: skip

    @add.register
    def _(self, line: Project) -> None:
        identity = self._projects[line.name] = line.id or new_uuid()
        self._insert_line(line, id=identity)
        self._insert_days(project_days, line.days, project_id=identity)

    @add.register
    def _(self, line: Membership) -> None:
        self._insert_line(line, roles=roles_written(line.roles))

    @add.register
    def _(self, line: Schema) -> None:
        identity = self._schemas[line.project, line.name] = line.id or new_uuid()
        self._insert_line(line, id=identity, revision=line.revisions[-1].revision)
        for each in line.revisions:
            size = SchemaContent(each.type, each.payload, each.attributes).bytes
            made = self._time(each.created_on, line.created_on)
            self._insert_line(each, schema_id=identity, created_on=made, bytes=size)

    @add.register
    def _(self, line: Topic) -> None:
        name = (line.project, line.name)
        log = self._logs.get(name)
        identity = self._topics[name] = topic_id_text(log.topic) if log else line.id or new_uuid()
        self._insert_line(line, id=identity, deleted_schema=line.deleted_schema or None)
        if log and log.bytes:  # for a log that cannot keep them itself (`ams.storage.registry.idempotency`)
            self._insert(topic_sizes, topic_id=identity, bytes=log.bytes)
        if line.schema is not None:
            self._insert(
                topic_schemas, topic_id=identity, schema_id=self._schemas[line.project, line.schema],
                encoding=line.schema_encoding or None, first_revision=line.first_revision,
                last_revision=line.last_revision,
            )  # fmt: skip
        self._insert_access(topic_access, identity, line.authorized)
        self._insert_days(daily_messages, line.days, topic_id=identity)
        self._insert_tally(_OF_TOPICS, identity, line.tally)

    @add.register
    def _(self, line: Subscription) -> None:
        identity = line.id or new_uuid()
        options = parallel.stored(line.parallel)
        self._insert_line(line, id=identity, push=push.stored(_with_secrets(line.push)), parallel=options)
        for each in line.push_secrets:
            sealed = self._secrets.seal_push(each.secret, SubscriptionId(identity))
            values = {"subscription_id": identity, "created_on": self._now, "until": each.until}
            self._insert(push_secrets, sealed=sealed, **values)
        self._insert_access(subscription_access, identity, line.authorized)
        self._insert_tally(_OF_SUBSCRIPTIONS, identity, line.tally)
        topic = self._topics.get((line.project, line.topic))
        if line.parallel is not None and line.parallel.detached:  # it stands nowhere
            return
        done = _ranges(line.done)
        place = Placed(SubscriptionId(identity), topic_id(topic) if topic else None, line.offset, line.lost, done)
        self.cursors.append(place)

    @add.register
    def _(self, line: Snapshot) -> None:
        done = packed(bitmap_of(_ranges(line.done)))
        self._insert_line(line, topic_id=self._topics[line.project, line.topic], done=done)

    @add.register
    def _(self, line: Registration) -> None:
        token = line.activation_token or (new_token() if line.status == "pending" else "")
        self._insert_line(
            line, id=line.id or new_uuid(), activation_token=token, registered_at=self._time(line.registered_at),
            modified_by=self._user(line.modified_by),
        )  # fmt: skip

    @add.register
    def _(self, line: NamedToken) -> None:
        identity = TokenId(line.id or new_uuid())
        known_by = sealed(self._secrets, line.hash, identity)
        key = None if line.public_key is None else PublicKey.read(line.public_key)
        self._insert_line(line, id=identity, rights=rights_written(line.rights), **key_columns(key), **known_by)

    @add.register
    def _(self, line: Binding) -> None:
        self._insert_line(line)

    @add.register
    def _(self, line: Issuer) -> None:
        identity = line.id or new_uuid()
        self._insert(
            issuers, id=identity, **self._origin(line, issuers), **columns(self._secrets, issuer_on(line), identity)
        )

    @property
    def topics(self) -> Mapping[Name, TopicId]:
        """The topics added, by name."""
        return {name: topic_id(identity) for name, identity in self._topics.items()}

    def _insert_line(self, line: msgspec.Struct, **more: Any) -> None:
        """Add the row of a line: a column is the field of its name, unless it is in `more`."""
        table = _TABLES[type(line)]
        same = {name: getattr(line, name) for name in _SAME[type(line)]}
        self._insert(table, **{**same, **self._origin(line, table), **more})

    def _origin(self, line: Any, table: Table) -> dict[str, Any]:
        """Return those columns of a row that tell whose it is, who made it, and when."""
        values: dict[str, Any] = {}
        if "project_id" in table.c:
            values["project_id"] = self._projects[line.project]
        if "user_id" in table.c:
            values["user_id"] = self._users[line.user]
        if "created_by" in table.c:
            values["created_by"] = self._user(line.created_by)
        if "created_on" in table.c:
            values["created_on"] = self._time(line.created_on)
        if "modified_on" in table.c:
            values["modified_on"] = self._time(line.modified_on, line.created_on)
        return values

    def _insert(self, table: Table, **values: Any) -> None:
        self._connection.execute(insert(table), values)

    def _insert_all(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            self._connection.execute(insert(table), rows)

    def _insert_days(self, table: Table, days: Iterable[Day], **owner: str) -> None:
        self._insert_all(table, [{**owner, **day._asdict()} for day in days])

    def _insert_tally(self, tallies: _Tallies, owner: str, tally: Tally | None) -> None:
        if tally is None:
            return
        values = {tallies.owner: owner, tallies.last: tally.last, tallies.before: tally.before}
        counts = {"messages": tally.messages, "bytes": tally.bytes, "last_messages": tally.last_messages}
        self._insert(tallies.table, **values, **counts)

    def _insert_access(self, table: Table, resource: str, names: Iterable[str]) -> None:
        listed = enumerate(self._users[name] for name in names)
        self._insert_all(
            table, [{"resource_id": resource, "position": position, "user_id": user} for position, user in listed]
        )

    def _user(self, name: str | None) -> str | None:
        return None if name is None else self._users[name]

    def _time(self, *given: int | None) -> int:
        """Return the first time that is given; now, when none was."""
        return next((each for each in given if each is not None), self._now)


def _ranges(pairs: Iterable[tuple[int, int]]) -> list[Range]:
    return [(Offset(begin), Offset(end)) for begin, end in pairs]


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
