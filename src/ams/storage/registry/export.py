"""Export and import of the registry (`ams.storage.export_format`): fields of lines have the names of columns."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, singledispatchmethod
from typing import Any, NamedTuple, TypeVar

import msgspec
from sqlalchemy import Connection, Row, Select, Table, delete, insert, select

from ams.core.clock import Milliseconds
from ams.core.names import SubscriptionId, TokenId, TopicId, UserId, new_uuid, topic_id, topic_id_text
from ams.core.offsets import Range, bitmap_of, encode_bitmap, ranges_of
from ams.core.public_keys import PublicKey
from ams.core.push_config import AUTOGEN, HTTP_ENDPOINT, PushConfig
from ams.storage import export_format as kinds
from ams.storage.export_format import Line
from ams.storage.registry import snapshots, tables
from ams.storage.registry.logins import columns, fields_of, hash_of, issuer_on, key_columns, sealed_columns, secret_of
from ams.storage.registry.records import SchemaContent
from ams.storage.registry.resources import TOPICS_WITH_SCHEMA
from ams.storage.registry.statements import with_creator, with_user_and_creator
from ams.storage.registry.users import token_columns
from ams.storage.secrets import Secrets, new_token

S = TypeVar("S", bound=msgspec.Struct)

Name = tuple[str, str]  # the name of a project, and of something in it

_FETCH = {"yield_per": 1000}  # rows fetched at a time, to bound memory


class CursorPosition(NamedTuple):
    """Position of a subscription's cursor."""

    offset: int
    lost: int
    done: Sequence[Range] = ()  # acknowledged above the offset; parallel subscriptions only


Standings = Mapping[SubscriptionId, CursorPosition]


class Contents:
    """Lines of one state of the registry; without `secrets`, tokens and other secrets are left out."""

    def __init__(self, connection: Connection, secrets: Secrets | None, standings: Standings) -> None:
        self._connection, self._secrets, self._standings = connection, secrets, standings

    def lines(self) -> Iterator[Line]:
        """Yield all lines, each after those that it refers to. Raises `Damaged` for an unreadable token."""
        secrets, days = self._secrets, tables.project_days
        yield from self._rows(
            _with_maker(tables.users),
            lambda row: _line(kinds.User, row, token=secrets.decrypt(row.token_sealed, row.id) if secrets else ""),
        )
        yield from self._rows(
            _with_maker(tables.projects),
            lambda row: _line(kinds.Project, row, days=self._days(days, days.c.project_id == row.id)),
        )
        yield from self._rows(_MEMBERSHIPS, partial(_line, kinds.Membership))
        yield from self._rows(_in_project(tables.schemas), self._schema)
        yield from self._rows(_in_project(tables.topics, TOPICS_WITH_SCHEMA), self._topic)
        yield from self._rows(_in_project(tables.subscriptions), self._subscription)
        done_of = snapshots.done_of
        yield from self._rows(_SNAPSHOTS, lambda row: _line(kinds.Snapshot, row, done=tuple(ranges_of(done_of(row)))))
        yield from self._rows(
            _with_maker(tables.registrations, "modified_by"),
            lambda row: _line(kinds.Registration, row, activation_token=row.activation_token if secrets else ""),
        )
        if secrets is not None:  # the import cannot make new named tokens
            named_tokens = with_user_and_creator(tables.named_tokens)
            yield from self._rows(named_tokens, lambda row: _line(kinds.NamedToken, row, hash=hash_of(secrets, row)))
        yield from self._rows(with_user_and_creator(tables.bindings), partial(_line, kinds.Binding))
        yield from self._rows(_with_maker(tables.issuers), self._issuer)

    def _rows(self, query: Select[Any], read: Callable[[Row[Any]], Line]) -> Iterator[Line]:
        # The context manager closes the database cursor at once if a row is damaged.
        with self._connection.execute(query, execution_options=_FETCH) as rows:
            for row in rows:
                yield read(row)

    def _schema(self, row: Row[Any]) -> Line:
        revisions = tables.schema_revisions
        query = select(revisions).where(revisions.c.schema_id == row.id).order_by(revisions.c.revision)
        found = tuple(_line(kinds.Revision, each) for each in self._connection.execute(query))
        return _line(kinds.Schema, row, revisions=found)

    def _topic(self, row: Row[Any]) -> Line:
        days = tables.daily_messages
        return _line(
            kinds.Topic, row, authorized=self._names_on_list(tables.topic_access, row.id),
            tally=self._tally(tables.topic_tallies, row.id), days=self._days(days, days.c.topic_id == row.id),
            deleted_schema=row.deleted_schema or "", schema=row.schema_name, schema_encoding=row.encoding or "",
        )  # fmt: skip

    def _subscription(self, row: Row[Any]) -> Line:
        standing = self._standings.get(row.id, CursorPosition(0, 0))
        config = row.push
        if config is not None and self._secrets is None:
            config = replace(config, header_value="", verification_hash="")
        return _line(
            kinds.Subscription, row, push=config, push_secrets=self._push_secrets(row.id),
            authorized=self._names_on_list(tables.subscription_access, row.id),
            offset=standing.offset, lost=standing.lost, done=tuple(standing.done),
            tally=self._tally(tables.subscription_tallies, row.id),
        )  # fmt: skip

    def _issuer(self, row: Row[Any]) -> Line:
        secret = secret_of(row, self._secrets) if self._secrets else ""
        made = {"id": row.id, "created_on": row.created_on, "modified_on": row.modified_on, "created_by": row.creator}
        return msgspec.convert({**fields_of(row, secret), **made}, kinds.Issuer)

    def _push_secrets(self, subscription: SubscriptionId) -> tuple[kinds.PushSecret, ...]:
        secrets, push_secrets = self._secrets, tables.push_secrets
        if secrets is None:
            return ()
        query = select(push_secrets).where(push_secrets.c.subscription_id == subscription)
        rows = self._connection.execute(query.order_by(push_secrets.c.number))
        opened = ((secrets.open_push(row.sealed, subscription), row.until) for row in rows)
        return tuple(kinds.PushSecret(secret=secret, until=until) for secret, until in opened)

    def _tally(self, tallies: Table, owner: str) -> kinds.Tally | None:
        row = self._connection.execute(select(tallies).where(tallies.c[0] == owner)).first()
        if row is None:
            return None
        *_, last, before = row
        return _line(kinds.Tally, row, last=last, before=before)

    def _days(self, table: Table, condition: Any) -> tuple[kinds.Day, ...]:
        query = select(table.c.day, table.c.messages, table.c.bytes).where(condition).order_by(table.c.day)
        return tuple(kinds.Day(*row) for row in self._connection.execute(query))

    def _names_on_list(self, access: Table, resource: str) -> tuple[str, ...]:
        query = select(tables.users.c.name).join(access)
        query = query.where(access.c.resource_id == resource).order_by(access.c.position)
        return tuple(self._connection.scalars(query))


def _line(kind: type[S], row: Row[Any], **more: Any) -> S:
    """Convert a row to a line; fields are the columns of the same name, except those in `more`."""
    found = row._mapping
    values = {name: found[name] for name in kind.__struct_fields__ if name in found and name not in more}
    values |= {name: row.creator for name in ("created_by", "modified_by") if name in values}
    return kind(**values, **more)


def _with_maker(table: Table, made_by: str = "created_by") -> Select[Any]:
    return with_creator(table, made_by).order_by(table.c.number)


def _in_project(table: Table, rows: Select[Any] | None = None) -> Select[Any]:
    projects, rows = tables.projects, select(table) if rows is None else rows
    query = rows.add_columns(projects.c.name.label("project")).join(projects, projects.c.id == table.c.project_id)
    return query.order_by(table.c.number)


_MEMBERSHIPS = (
    _in_project(tables.memberships)
    .add_columns(tables.users.c.name.label("user"))
    .join(tables.users, tables.users.c.id == tables.memberships.c.user_id)
)
_SNAPSHOTS = (
    _in_project(tables.snapshots)
    .add_columns(tables.topics.c.name.label("topic"))
    .join(tables.topics, tables.topics.c.id == tables.snapshots.c.topic_id)
)


class Loaded(NamedTuple):
    """A topic whose messages are already in the log."""

    topic: TopicId
    bytes: int  # published in total


class ImportedCursor(NamedTuple):
    """A subscription and the position for its cursor."""

    subscription: SubscriptionId
    topic: TopicId | None  # None: deleted
    offset: int
    lost: int
    done: Sequence[Range] = ()


def empty(connection: Connection) -> None:
    """Delete all rows of export lines; dependent rows are deleted by cascade."""
    owners = ("subscriptions", "snapshots", "topics", "schemas", "registrations", "bindings", "issuers", "projects")
    for name in (*owners, "users"):
        connection.execute(delete(tables.METADATA.tables[name]))


class RegistryImport:
    """Adds validated lines (`ams.app.moving.rules`) to an empty registry, in one transaction.

    Missing identities are created, and missing times are that of the import. `logs` are topics already in the log.
    """

    def __init__(
        self, connection: Connection, secrets: Secrets, now: Milliseconds, logs: Mapping[Name, Loaded]
    ) -> None:
        self.cursors: list[ImportedCursor] = []  # of the subscriptions added
        self._connection, self._secrets, self._now, self._logs = connection, secrets, now, logs
        self._users: dict[str, str] = {}
        self._projects: dict[str, str] = {}
        self._schemas: dict[Name, str] = {}
        self.topics: dict[Name, TopicId] = {}  # topics added

    @singledispatchmethod
    def add(self, line: Line) -> None:
        """Add the record of a line."""
        raise TypeError(f"{line!r} is nothing a registry holds")

    @add.register
    def _(self, line: kinds.User) -> None:
        identity = self._users[line.name] = line.id or new_uuid()
        token = token_columns(self._secrets, line.token or new_token(), UserId(identity))
        self._insert_line(line, id=identity, **token)

    @add.register
    def _(self, line: kinds.Project) -> None:
        identity = self._projects[line.name] = line.id or new_uuid()
        self._insert_line(line, id=identity)
        self._insert_days(tables.project_days, line.days, project_id=identity)

    @add.register
    def _(self, line: kinds.Membership | kinds.Binding) -> None:
        self._insert_line(line)

    @add.register
    def _(self, line: kinds.Schema) -> None:
        identity = self._schemas[line.project, line.name] = line.id or new_uuid()
        self._insert_line(line, id=identity, revision=line.revisions[-1].revision)
        for each in line.revisions:
            size = SchemaContent(each.type, each.payload, each.attributes).bytes
            made = {"created_on": self._time(each.created_on, line.created_on), "bytes": size}
            self._insert(tables.schema_revisions, schema_id=identity, **msgspec.structs.asdict(each) | made)

    @add.register
    def _(self, line: kinds.Topic) -> None:
        name = (line.project, line.name)
        log = self._logs.get(name)
        identity = topic_id_text(log.topic) if log else line.id or new_uuid()
        self.topics[name] = topic_id(identity)
        self._insert_line(line, id=identity, deleted_schema=line.deleted_schema or None)
        if log and log.bytes:  # used by the log on Kafka (`ams.storage.registry.idempotency`)
            self._insert(tables.topic_sizes, topic_id=identity, bytes=log.bytes)
        if line.schema is not None:
            self._insert(
                tables.topic_schemas, topic_id=identity, schema_id=self._schemas[line.project, line.schema],
                encoding=line.schema_encoding or None, first_revision=line.first_revision,
                last_revision=line.last_revision,
            )  # fmt: skip
        self._insert_access(tables.topic_access, identity, line.authorized)
        self._insert_days(tables.daily_messages, line.days, topic_id=identity)
        self._insert_tally(tables.topic_tallies, identity, line.tally)

    @add.register
    def _(self, line: kinds.Subscription) -> None:
        identity = SubscriptionId(line.id or new_uuid())
        self._insert_line(line, id=identity, push=_with_secrets(line.push))
        for each in line.push_secrets:
            secret = self._secrets.seal_push(each.secret, identity)
            values = {"subscription_id": identity, "created_on": self._now, "until": each.until}
            self._insert(tables.push_secrets, sealed=secret, **values)
        self._insert_access(tables.subscription_access, identity, line.authorized)
        self._insert_tally(tables.subscription_tallies, identity, line.tally)
        if line.parallel is None or not line.parallel.detached:  # a detached one has no cursor
            topic = self.topics.get((line.project, line.topic))
            self.cursors.append(ImportedCursor(identity, topic, line.offset, line.lost, line.done))

    @add.register
    def _(self, line: kinds.Snapshot) -> None:
        topic = topic_id_text(self.topics[line.project, line.topic])
        self._insert_line(line, topic_id=topic, done=encode_bitmap(bitmap_of(line.done)))

    @add.register
    def _(self, line: kinds.Registration) -> None:
        token = line.activation_token or (new_token() if line.status == "pending" else "")
        self._insert_line(
            line, id=line.id or new_uuid(), activation_token=token, registered_at=self._time(line.registered_at),
            modified_by=self._user(line.modified_by),
        )  # fmt: skip

    @add.register
    def _(self, line: kinds.NamedToken) -> None:
        identity = TokenId(line.id or new_uuid())
        key = None if line.public_key is None else PublicKey.read(line.public_key)
        self._insert_line(line, id=identity, **key_columns(key), **sealed_columns(self._secrets, line.hash, identity))

    @add.register
    def _(self, line: kinds.Issuer) -> None:
        identity = line.id or new_uuid()
        values = self._origin(line, tables.issuers) | columns(self._secrets, issuer_on(line), identity)
        self._insert(tables.issuers, id=identity, **values)

    def _insert_line(self, line: Line, **more: Any) -> None:
        """Insert the row of a line; columns are the fields of the same name, except those in `more`."""
        table = tables.METADATA.tables[f"{kinds.kind(line)}s"]
        values = {name: getattr(line, name) for name in line.__struct_fields__ if name in table.c}
        self._insert(table, **values | self._origin(line, table) | more)

    def _origin(self, line: Any, table: Table) -> dict[str, Any]:
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

    def _insert_days(self, table: Table, days: Iterable[kinds.Day], **owner: str) -> None:
        self._insert_all(table, [{**owner, **day._asdict()} for day in days])

    def _insert_tally(self, tallies: Table, owner: str, tally: kinds.Tally | None) -> None:
        if tally is not None:  # the columns are the owner, and the fields of a tally in their order
            values = (owner, *msgspec.structs.astuple(tally))
            self._insert(tallies, **dict(zip(tallies.c.keys(), values, strict=True)))

    def _insert_access(self, table: Table, resource: str, names: Iterable[str]) -> None:
        users = enumerate(self._users[name] for name in names)
        rows = [{"resource_id": resource, "position": position, "user_id": user} for position, user in users]
        self._insert_all(table, rows)

    def _user(self, name: str | None) -> str | None:
        return None if name is None else self._users[name]

    def _time(self, *given: int | None) -> int:
        """Return the first given time, else the time of the import."""
        return next((each for each in given if each is not None), self._now)


def _with_secrets(config: PushConfig | None) -> PushConfig | None:
    if config is None or config.type != HTTP_ENDPOINT:
        return config
    header = config.header_value or (new_token() if config.header_type == AUTOGEN else "")
    return replace(config, header_value=header, verification_hash=config.verification_hash or new_token())
