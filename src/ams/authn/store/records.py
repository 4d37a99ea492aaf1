"""Records of service types, auth methods and bindings, and cache invalidation between nodes.

Secrets of auth methods are encrypted, and bound to their auth method (15, A16). A login finds its binding by a short
hash. So 100,000 bindings are no slower than 100, and names of any length fit into a unique index. Lists are complete,
oldest first, or paged on demand (15, A20).
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec
import sqlalchemy as sa

from ams.authn import values
from ams.authn.store.tables import auth_methods, bindings, hosts, service_types
from ams.core.clock import Milliseconds
from ams.core.errors import AlreadyExists, BadRequest, Conflict, NotFound
from ams.core.versions import ANY_VERSION, Precondition
from ams.storage.database.database import Database
from ams.storage.database.invalidation import Cache, Invalidation
from ams.storage.secrets import Secrets

T = TypeVar("T")

TYPES = "authn_types"  # everything: service types are few, seldom change, and all else depends on them
METHODS = "authn_methods"  # all auth methods
BINDING = "authn_binding"  # a binding; key: its `login`

FORGET_TYPES = Invalidation(TYPES, ())
FORGET_METHODS = Invalidation(METHODS, ())

MAX_PAGE_ITEMS = 10_000  # items of a page
_MAX_DIGITS = 18
_FIXED_COLUMNS = ("uuid", "created_on", "updated_on")
"""Columns that a change of a record leaves alone, or sets itself."""

Types = Callable[[str], values.ServiceType | None]  # finds a service type by uuid, in the transaction


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A requested page. Size 0: everything; empty token: the first page."""

    size: int = 0
    token: str = ""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list. `next_token` is for the next page; empty on the last one."""

    items: Sequence[T]
    next_token: str = ""


def _read_page(
    connection: sa.Connection,
    query: sa.Select[Any],
    number: sa.Column[int],
    page: PageRequest,
    record: Callable[[sa.Row[Any]], T],
) -> Page[T]:
    cut = query.order_by(number)
    if page.token:
        if not page.token.isascii() or not page.token.isdigit() or len(page.token) > _MAX_DIGITS:
            raise BadRequest("Invalid page token")
        cut = cut.where(number > sa.literal(int(page.token), sa.BigInteger))
    size = min(page.size, MAX_PAGE_ITEMS)
    rows = connection.execute(cut.limit(size + 1) if size > 0 else cut).all()
    shown = rows[:size] if size > 0 else rows
    return Page([record(row) for row in shown], str(shown[-1].number) if len(shown) < len(rows) else "")


def _exists(connection: sa.Connection, number: sa.Column[int], *conditions: sa.ColumnElement[bool]) -> bool:
    return connection.scalar(sa.select(number).where(*conditions).limit(1)) is not None


def _rows(statement: Any) -> Callable[[sa.Connection], int]:
    return lambda connection: int(connection.execute(statement).rowcount)


def _same(kind: type, of: object, *, but: Sequence[str] = ()) -> dict[str, Any]:
    return {each.name: getattr(of, each.name) for each in fields(kind) if each.name not in but}


class ServiceTypeRecords:
    """Service types by name and by uuid."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._by_name: Cache[str, values.ServiceType] = database.invalidations.new_cache()
        database.invalidations.on(TYPES, database.invalidations.forget_all)

    async def find(self, name: str) -> values.ServiceType | None:
        """Return a service type, or None; cached."""
        return await self._by_name.find(
            name, lambda: self._database.read(lambda connection: _type(connection, service_types.c.name == name))
        )

    async def find_by_uuid(self, uuid: str) -> values.ServiceType | None:
        """Return a service type, or None."""
        return await self._database.read(lambda connection: _type_by_uuid(connection, uuid))

    async def page(self, page: PageRequest) -> Page[values.ServiceType]:
        """Return service types, oldest first. Raises `BadRequest` for a bad token."""

        def work(connection: sa.Connection) -> Page[values.ServiceType]:
            found = _read_page(connection, sa.select(service_types), service_types.c.number, page, lambda row: row)
            return Page(_with_hosts(connection, found.items), found.next_token)

        return await self._database.read(work)

    async def create(self, made: values.ServiceType) -> None:
        """Add a service type. Raises `AlreadyExists` if the name is taken."""

        def work(connection: sa.Connection) -> None:
            _require_free_type(connection, made)
            row = sa.insert(service_types).values(uuid=made.uuid, created_on=made.created_on, **_type_row(made))
            connection.execute(row)
            _put_hosts(connection, made)

        await self._database.write(work)

    async def change(
        self, uuid: values.ServiceTypeId, now: Milliseconds, change: Callable[[values.ServiceType], values.ServiceType]
    ) -> values.ServiceType:
        """Change a service type atomically. Raises `NotFound`, `AlreadyExists`, `Conflict` if in use (15, A6)."""

        def work(connection: sa.Connection) -> values.ServiceType:
            present = _type_by_uuid(connection, uuid)
            if present is None:
                raise NotFound(values.SERVICE_TYPE_GONE)
            changed = replace(change(present), updated_on=now)
            if changed.name != present.name:
                _require_free_type(connection, changed)
            _require_reachable(connection, present, changed)
            row = sa.update(service_types).where(service_types.c.uuid == uuid)
            connection.execute(row.values(updated_on=now, **_type_row(changed)))
            _put_hosts(connection, changed)
            return changed

        return await self._database.write(work, FORGET_TYPES)

    async def delete(self, uuid: values.ServiceTypeId, expected: Precondition = ANY_VERSION) -> bool:
        """Delete a service type with all it has (15, A3). Returns False if there is none. Raises `ChangedMeanwhile`."""
        gone = sa.delete(service_types).where(service_types.c.uuid == uuid)

        def work(connection: sa.Connection) -> bool:
            expected.check(lambda: _type_by_uuid(connection, uuid))
            return connection.execute(gone).rowcount > 0

        return await self._database.write(work, FORGET_TYPES, large=True, grows=False)


def _type_by_uuid(connection: sa.Connection, uuid: str) -> values.ServiceType | None:
    return _type(connection, service_types.c.uuid == uuid)


def _type(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> values.ServiceType | None:
    rows = connection.execute(sa.select(service_types).where(condition)).all()
    return next(iter(_with_hosts(connection, rows)), None)


def _with_hosts(connection: sa.Connection, rows: Sequence[sa.Row[Any]]) -> list[values.ServiceType]:
    query = sa.select(hosts).order_by(hosts.c.service_uuid, hosts.c.position)
    if len(rows) == 1:
        query = query.where(hosts.c.service_uuid == rows[0].uuid)
    found: defaultdict[str, list[str]] = defaultdict(list)
    for row in connection.execute(query) if rows else ():
        found[row.service_uuid].append(row.host)
    return [
        values.ServiceType(
            **_same(values.ServiceType, row, but=("hosts", "auth_types")),
            hosts=tuple(found[row.uuid]),
            auth_types=tuple(msgspec.json.decode(row.auth_types, type=list[str])),
        )
        for row in rows
    ]


def _type_row(of: values.ServiceType) -> dict[str, object]:
    same = _same(values.ServiceType, of, but=("hosts", "auth_types", *_FIXED_COLUMNS))
    return {**same, "auth_types": msgspec.json.encode(of.auth_types).decode()}


def _require_free_type(connection: sa.Connection, wanted: values.ServiceType) -> None:
    if _exists(connection, service_types.c.number, service_types.c.name == wanted.name):
        raise AlreadyExists(f"service-type object with name: {wanted.name} already exists")


def _require_reachable(connection: sa.Connection, present: values.ServiceType, changed: values.ServiceType) -> None:
    methods, name = auth_methods.c.service_uuid == present.uuid, present.name
    if changed.auth_method != present.auth_method and _exists(connection, auth_methods.c.number, methods):
        raise Conflict(f"auth_method of service-type {name} is in use: delete its auth methods first")
    for host in present.hosts:
        is_used = (
            _exists(connection, table.c.number, table.c.service_uuid == present.uuid, table.c.host == host)
            for table in (auth_methods, bindings)
        )
        if host not in changed.hosts and any(is_used):
            raise Conflict(f"host {host} of service-type {name} is in use: delete its auth method and bindings first")


def _put_hosts(connection: sa.Connection, of: values.ServiceType) -> None:
    """Update the list of hosts. Unchanged rows stay, because others refer to them."""
    own = hosts.c.service_uuid == of.uuid
    known = set(connection.scalars(sa.select(hosts.c.host).where(own)))
    for host in known - set(of.hosts):
        connection.execute(sa.delete(hosts).where(own, hosts.c.host == host))
    for position, host in enumerate(of.hosts):
        if host in known:
            connection.execute(sa.update(hosts).where(own, hosts.c.host == host).values(position=position))
        else:
            connection.execute(sa.insert(hosts).values(service_uuid=of.uuid, host=host, position=position))


class _Kept(msgspec.Struct, omit_defaults=True):
    access_key: str = ""
    headers: dict[str, str] = {}


class AuthMethodRecords:
    """Auth methods by service type and host."""

    def __init__(self, database: Database, secrets: Secrets) -> None:
        self._database = database
        self._secrets = secrets
        self._by_host: Cache[tuple[str, str], values.AuthMethod] = database.invalidations.new_cache()
        database.invalidations.on(METHODS, lambda: self._by_host.forget_where(lambda _key, _value: True))

    async def find(self, service_uuid: str, host: str) -> values.AuthMethod | None:
        """Return the auth method of a host, or None; cached. Raises `Damaged`."""

        def work(connection: sa.Connection) -> values.AuthMethod | None:
            own = sa.select(auth_methods).where(
                auth_methods.c.service_uuid == service_uuid, auth_methods.c.host == host
            )
            row = connection.execute(own).first()
            return self._auth_method(row) if row else None

        return await self._by_host.find((service_uuid, host), lambda: self._database.read(work))

    async def page(self, page: PageRequest) -> Page[values.AuthMethod]:
        """Return auth methods, oldest first. Raises `BadRequest` for a bad token, `Damaged`."""
        query, number = sa.select(auth_methods), auth_methods.c.number
        return await self._database.read(
            lambda connection: _read_page(connection, query, number, page, self._auth_method)
        )

    async def create(self, made: values.AuthMethod) -> None:
        """Add an auth method. Raises `AlreadyExists`, `NotFound` without its host, `Conflict` for another kind."""
        row = sa.insert(auth_methods).values(uuid=made.uuid, created_on=made.created_on, **self._row(made))

        def work(connection: sa.Connection) -> None:
            _require_kind(connection, made)
            _require_free_host(connection, made)
            connection.execute(row)

        await self._database.write(work, FORGET_METHODS)

    async def change(
        self, uuid: str, now: Milliseconds, change: Callable[[values.AuthMethod, Types], values.AuthMethod]
    ) -> values.AuthMethod:
        """Change an auth method atomically. Raises as `create`, and what `change` raises."""
        own = auth_methods.c.uuid == uuid

        def work(connection: sa.Connection) -> values.AuthMethod:
            present = self._by_uuid(connection, uuid)
            if present is None:
                raise NotFound(values.AUTH_METHOD_GONE)
            changed = replace(change(present, partial(_type_by_uuid, connection)), updated_on=now)
            _require_kind(connection, changed)
            if (changed.service_uuid, changed.host) != (present.service_uuid, present.host):
                _require_free_host(connection, changed)
            connection.execute(sa.update(auth_methods).where(own).values(updated_on=now, **self._row(changed)))
            return changed

        return await self._database.write(work, FORGET_METHODS)

    async def delete(self, uuid: str, expected: Precondition = ANY_VERSION) -> bool:
        """Delete an auth method. Returns False if there is none. Raises `ChangedMeanwhile`."""
        gone = sa.delete(auth_methods).where(auth_methods.c.uuid == uuid)

        def work(connection: sa.Connection) -> bool:
            expected.check(lambda: self._by_uuid(connection, uuid))
            return connection.execute(gone).rowcount > 0

        return await self._database.write(work, FORGET_METHODS, grows=False)

    def _by_uuid(self, connection: sa.Connection, uuid: str) -> values.AuthMethod | None:
        row = connection.execute(sa.select(auth_methods).where(auth_methods.c.uuid == uuid)).first()
        return self._auth_method(row) if row else None

    def _row(self, of: values.AuthMethod) -> dict[str, object]:
        kept = msgspec.json.encode(_Kept(of.access_key, dict(of.headers))).decode()
        same = _same(values.AuthMethod, of, but=("access_key", "headers", *_FIXED_COLUMNS))
        return {**same, "sealed": self._secrets.seal(kept, f"auth method {of.uuid}")}

    def _auth_method(self, row: sa.Row[Any]) -> values.AuthMethod:
        kept = msgspec.json.decode(self._secrets.open(row.sealed, f"auth method {row.uuid}"), type=_Kept)
        same = _same(values.AuthMethod, row, but=("access_key", "headers"))
        return values.AuthMethod(**same, access_key=kept.access_key, headers=kept.headers)


def _require_kind(connection: sa.Connection, wanted: values.AuthMethod) -> None:
    """Refuse an auth method of another kind than its service type's: logins could not use it."""
    service_type = _type_by_uuid(connection, wanted.service_uuid)
    if service_type is None:
        raise NotFound(values.SERVICE_TYPE_GONE)
    if service_type.auth_method != wanted.type:
        raise Conflict(f"service-type {service_type.name} has auth_method: {service_type.auth_method}")


def _require_free_host(connection: sa.Connection, wanted: values.AuthMethod) -> None:
    same = (auth_methods.c.service_uuid == wanted.service_uuid, auth_methods.c.host == wanted.host)
    if _exists(connection, auth_methods.c.number, *same):
        raise AlreadyExists(f"Auth method object with host: {wanted.host} already exists")


class BindingRecords:
    """Bindings by name, and by the subject of a login."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._by_login: Cache[str, values.SubjectBinding] = database.invalidations.new_cache()
        database.invalidations.on(BINDING, self._by_login.forget)

    async def find(self, name: str) -> values.SubjectBinding | None:
        """Return a binding, or None."""
        return await self._database.read(lambda connection: _find_binding(connection, bindings.c.name == name))

    async def for_login(
        self, identifier: str, service_uuid: str, host: str, auth_type: str
    ) -> values.SubjectBinding | None:
        """Return the binding of a subject, or None; cached, so `last_auth` may be older."""
        login = _login(service_uuid, host, auth_type, identifier)
        return await self._by_login.find(
            login, lambda: self._database.read(lambda connection: _find_binding(connection, bindings.c.login == login))
        )

    async def page(self, page: PageRequest, service_uuid: str = "", host: str = "") -> Page[values.SubjectBinding]:
        """Return bindings, oldest first; with `service_uuid`, those of one host. Raises `BadRequest`."""
        query = sa.select(bindings)
        if service_uuid:
            query = query.where(bindings.c.service_uuid == service_uuid, bindings.c.host == host)
        return await self._database.read(
            lambda connection: _read_page(connection, query, bindings.c.number, page, _binding_of)
        )

    async def create(self, made: values.SubjectBinding) -> None:
        """Add a binding. Raises `AlreadyExists` for its identifier, then for its name; `NotFound` without its host."""
        row = sa.insert(bindings).values(uuid=made.uuid, created_on=made.created_on, **_binding_row(made))

        def work(connection: sa.Connection) -> None:
            _require_free_binding(connection, made)
            connection.execute(row)

        await self._database.write(work)

    async def change(
        self, name: str, now: Milliseconds, change: Callable[[values.SubjectBinding, Types], values.SubjectBinding]
    ) -> values.SubjectBinding:
        """Change a binding atomically. Raises `NotFound`, as `create`, and what `change` raises."""
        while True:
            known = await self.find(name)
            if known is None:
                raise NotFound(values.BINDING_GONE)
            changed = await self._database.write(partial(_change_binding, known, now, change), _forget(known))
            if changed is not None:
                return changed

    async def delete(self, name: str, expected: Precondition = ANY_VERSION) -> bool:
        """Delete a binding. Returns False if there is none. Raises `ChangedMeanwhile`."""

        def work(known: values.SubjectBinding, connection: sa.Connection) -> bool:
            own = bindings.c.uuid == known.uuid
            expected.check(lambda: _find_binding(connection, own))
            gone = sa.delete(bindings).where(own, bindings.c.login == _login_of(known))
            return connection.execute(gone).rowcount > 0

        while True:
            known = await self.find(name)
            if known is None:
                return False
            if await self._database.write(partial(work, known), _forget(known), grows=False):
                return True

    async def note_login(self, binding: values.BindingId, at: Milliseconds, subject_sha256: str | None = None) -> bool:
        """Store a login, and the subject's digest if there is none. Returns False without such a binding."""
        own = bindings.c.uuid == binding
        if subject_sha256 is None:
            return await self._database.put(_rows(sa.update(bindings).where(own).values(last_auth=at))) > 0
        known = await self._database.read(lambda connection: _find_binding(connection, own))
        if known is None:
            return False
        noted = sa.update(bindings).where(own, bindings.c.subject_sha256.in_(("", subject_sha256)))
        noted = noted.values(last_auth=at, subject_sha256=subject_sha256)
        return await self._database.write(_rows(noted), _forget(known), grows=False) > 0


def _change_binding(
    known: values.SubjectBinding,
    now: Milliseconds,
    change: Callable[[values.SubjectBinding, Types], values.SubjectBinding],
    connection: sa.Connection,
) -> values.SubjectBinding | None:
    """Change a binding. Returns None if its cache key has changed meanwhile."""
    present = _find_binding(connection, bindings.c.uuid == known.uuid)
    if present is None or _login_of(present) != _login_of(known) or present.name != known.name:
        return None
    changed = replace(change(present, partial(_type_by_uuid, connection)), updated_on=now)
    _require_free_binding(connection, changed, present)
    row = sa.update(bindings).where(bindings.c.uuid == known.uuid)
    connection.execute(row.values(updated_on=now, **_binding_row(changed)))
    return changed


def _find_binding(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> values.SubjectBinding | None:
    row = connection.execute(sa.select(bindings).where(condition)).first()
    return _binding_of(row) if row else None


def _binding_of(row: sa.Row[Any]) -> values.SubjectBinding:
    return values.SubjectBinding(**_same(values.SubjectBinding, row))


def _binding_row(of: values.SubjectBinding) -> dict[str, object]:
    return {**_same(values.SubjectBinding, of, but=("last_auth", *_FIXED_COLUMNS)), "login": _login_of(of)}


def _login_of(binding: values.SubjectBinding) -> str:
    return _login(binding.service_uuid, binding.host, binding.auth_type, binding.auth_identifier)


def _login(*shown: str) -> str:
    return hashlib.sha256(msgspec.json.encode(shown)).hexdigest()


def _forget(known: values.SubjectBinding) -> Invalidation:
    return Invalidation(BINDING, (_login_of(known),))


def _require_free_binding(
    connection: sa.Connection, wanted: values.SubjectBinding, present: values.SubjectBinding | None = None
) -> None:
    login = _login_of(wanted)
    # For each of the four fields: a moved binding may collide with another one (15, A4).
    moves = present is None or _login_of(present) != login
    if moves and _exists(connection, bindings.c.number, bindings.c.login == login):
        raise AlreadyExists(f"binding object with auth_identifier: {wanted.auth_identifier} already exists")
    is_renamed = present is None or present.name != wanted.name
    if is_renamed and _exists(connection, bindings.c.number, bindings.c.name == wanted.name):
        raise AlreadyExists(f"binding object with name: {wanted.name} already exists")
