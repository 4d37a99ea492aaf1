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
R = TypeVar("R", bound=values.ServiceType | values.AuthMethod | values.SubjectBinding)

TYPES = "authn_types"  # everything: service types are few, seldom change, and all else depends on them
METHODS = "authn_methods"  # all auth methods
BINDING = "authn_binding"  # a binding; key: its `login`

MAX_PAGE_ITEMS = 10_000  # items of a page
_MAX_DIGITS = 18
_FIXED_COLUMNS = ("uuid", "created_on", "updated_on")  # columns that a change of a record leaves alone, or sets itself

Types = Callable[[str], values.ServiceType | None]  # finds a service type by uuid, in the transaction
Change = Callable[[R, Types], R]  # returns a changed record


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


def _exists(connection: sa.Connection, number: sa.Column[int], *conditions: sa.ColumnElement[bool]) -> bool:
    return connection.scalar(sa.select(number).where(*conditions).limit(1)) is not None


def _same(kind: type, of: object, *, but: Sequence[str] = ()) -> dict[str, Any]:
    return {each.name: getattr(of, each.name) for each in fields(kind) if each.name not in but}


class _Records(Generic[R]):
    """Records of one table. A subclass converts rows, and checks records within the transaction that writes them."""

    table: sa.Table
    gone: str  # error text for a deleted record
    forget: Invalidation  # after a change
    are_deletions_large = False

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, page: PageRequest, *conditions: sa.ColumnElement[bool]) -> Page[R]:
        """Return records, oldest first. Raises `BadRequest` for a bad token, `Damaged`."""

        def work(connection: sa.Connection) -> Page[R]:
            number, query = self.table.c.number, sa.select(self.table).where(*conditions)
            if page.token:
                if not page.token.isascii() or not page.token.isdigit() or len(page.token) > _MAX_DIGITS:
                    raise BadRequest("Invalid page token")
                query = query.where(number > sa.literal(int(page.token), sa.BigInteger))
            size = min(page.size, MAX_PAGE_ITEMS)
            rows = connection.execute(query.order_by(number).limit(size + 1 if size > 0 else None)).all()
            shown = rows[:size] if size > 0 else rows
            next_token = str(shown[-1].number) if len(shown) < len(rows) else ""
            return Page(self._read_rows(connection, shown), next_token)

        return await self._database.read(work)

    async def create(self, made: R) -> R:
        """Add and return a record. Raises `AlreadyExists`, `NotFound` without its service type or host, `Conflict`."""

        def work(connection: sa.Connection) -> R:
            self._check(connection, made, None)
            self._write(connection, sa.insert(self.table), made, uuid=made.uuid, created_on=made.created_on)
            return made

        return await self._database.write(work)

    async def change(self, known: R, now: Milliseconds, change: Change[R], expected: Precondition = ANY_VERSION) -> R:
        """Change a record atomically. Raises `NotFound`, `ChangedMeanwhile`, as `create`, and what `change` raises."""

        def work(connection: sa.Connection, present: R) -> R:
            expected.check(lambda: present)
            changed: R = replace(change(present, partial(_type_by_uuid, connection)), updated_on=now)
            self._check(connection, changed, present)
            statement = sa.update(self.table).where(self.table.c.uuid == present.uuid)
            self._write(connection, statement, changed, updated_on=now)
            return changed

        return await self._write_known(known, work)

    async def delete(self, known: R, expected: Precondition = ANY_VERSION) -> None:
        """Delete a record, a service type with all it has (15, A3). Raises `NotFound`, `ChangedMeanwhile`."""

        def work(connection: sa.Connection, present: R) -> int | None:
            expected.check(lambda: present)
            return connection.execute(sa.delete(self.table).where(self.table.c.uuid == present.uuid)).rowcount or None

        await self._write_known(known, work, large=self.are_deletions_large, grows=False)

    async def _write_known(self, known: R, work: Callable[[sa.Connection, R], T | None], **limits: bool) -> T:
        """Run work on a record in its transaction, and invalidate its cache entry. Raises `NotFound`."""
        own = self.table.c.uuid == known.uuid

        def run(found: R, connection: sa.Connection) -> T | None:
            present = self._find(connection, own)
            if present is None or self._invalidation(present) != self._invalidation(found):
                return None  # its cache key has changed meanwhile
            return work(connection, present)

        while found := await self._read_one(own):
            made = await self._database.write(partial(run, found), self._invalidation(found), **limits)
            if made is not None:
                return made
        raise NotFound(self.gone)

    async def _read_one(self, *conditions: sa.ColumnElement[bool]) -> R | None:
        return await self._database.read(lambda connection: self._find(connection, *conditions))

    def _find(self, connection: sa.Connection, *conditions: sa.ColumnElement[bool]) -> R | None:
        rows = connection.execute(sa.select(self.table).where(*conditions)).all()
        return next(iter(self._read_rows(connection, rows)), None)

    def _write(self, connection: sa.Connection, statement: sa.Insert | sa.Update, of: R, **fixed: object) -> None:
        connection.execute(statement.values(**fixed, **self._row(of)))

    def _check(self, connection: sa.Connection, new: R, old: R | None) -> None:
        """Refuse a record that cannot be stored; `old` is None for a new one."""
        raise NotImplementedError

    def _invalidation(self, _: R) -> Invalidation:
        return self.forget

    def _row(self, of: R) -> dict[str, object]:
        raise NotImplementedError

    def _read_rows(self, connection: sa.Connection, rows: Sequence[sa.Row[Any]]) -> list[R]:
        raise NotImplementedError


class ServiceTypeRecords(_Records[values.ServiceType]):
    """Service types by name and by uuid."""

    table, gone, forget = service_types, values.SERVICE_TYPE_GONE, Invalidation(TYPES, ())
    are_deletions_large = True

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._by_name: Cache[str, values.ServiceType] = database.invalidations.new_cache()
        database.invalidations.on(TYPES, database.invalidations.forget_all)

    async def find(self, name: str) -> values.ServiceType | None:
        """Return a service type, or None; cached."""
        return await self._by_name.find(name, lambda: self._read_one(service_types.c.name == name))

    async def find_by_uuid(self, uuid: str) -> values.ServiceType | None:
        """Return a service type, or None."""
        return await self._read_one(service_types.c.uuid == uuid)

    def _check(self, connection: sa.Connection, new: values.ServiceType, old: values.ServiceType | None) -> None:
        has_new_name = old is None or old.name != new.name
        if has_new_name and _exists(connection, service_types.c.number, service_types.c.name == new.name):
            raise AlreadyExists(f"service-type object with name: {new.name} already exists")
        if old is None:
            return
        methods = auth_methods.c.service_uuid == old.uuid
        if new.auth_method != old.auth_method and _exists(connection, auth_methods.c.number, methods):
            raise Conflict(f"auth_method of service-type {old.name} is in use: delete its auth methods first")
        for host in (each for each in old.hosts if each not in new.hosts):
            for table in (auth_methods, bindings):
                if _exists(connection, table.c.number, table.c.service_uuid == old.uuid, table.c.host == host):
                    what = f"host {host} of service-type {old.name}"
                    raise Conflict(f"{what} is in use: delete its auth method and bindings first")

    def _write(
        self, connection: sa.Connection, statement: sa.Insert | sa.Update, of: values.ServiceType, **fixed: object
    ) -> None:
        super()._write(connection, statement, of, **fixed)
        own = hosts.c.service_uuid == of.uuid
        known = set(connection.scalars(sa.select(hosts.c.host).where(own)))
        # Unchanged rows stay, because others refer to them.
        for host in known - set(of.hosts):
            connection.execute(sa.delete(hosts).where(own, hosts.c.host == host))
        for position, host in enumerate(of.hosts):
            if host in known:
                connection.execute(sa.update(hosts).where(own, hosts.c.host == host).values(position=position))
            else:
                connection.execute(sa.insert(hosts).values(service_uuid=of.uuid, host=host, position=position))

    def _row(self, of: values.ServiceType) -> dict[str, object]:
        same = _same(values.ServiceType, of, but=("hosts", "auth_types", *_FIXED_COLUMNS))
        return {**same, "auth_types": msgspec.json.encode(of.auth_types).decode()}

    @staticmethod
    def _read_rows(connection: sa.Connection, rows: Sequence[sa.Row[Any]]) -> list[values.ServiceType]:
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


def _type_by_uuid(connection: sa.Connection, uuid: str) -> values.ServiceType | None:
    rows = connection.execute(sa.select(service_types).where(service_types.c.uuid == uuid)).all()
    return next(iter(ServiceTypeRecords._read_rows(connection, rows)), None)


class _Kept(msgspec.Struct, omit_defaults=True):
    access_key: str = ""
    headers: dict[str, str] = {}


class AuthMethodRecords(_Records[values.AuthMethod]):
    """Auth methods by service type and host."""

    table, gone, forget = auth_methods, values.AUTH_METHOD_GONE, Invalidation(METHODS, ())

    def __init__(self, database: Database, secrets: Secrets) -> None:
        super().__init__(database)
        self._secrets = secrets
        self._by_host: Cache[tuple[str, str], values.AuthMethod] = database.invalidations.new_cache()
        database.invalidations.on(METHODS, lambda: self._by_host.forget_where(lambda _key, _value: True))

    async def find(self, service_uuid: str, host: str) -> values.AuthMethod | None:
        """Return the auth method of a host, or None; cached. Raises `Damaged`."""
        own = (auth_methods.c.service_uuid == service_uuid, auth_methods.c.host == host)
        return await self._by_host.find((service_uuid, host), lambda: self._read_one(*own))

    def _check(self, connection: sa.Connection, new: values.AuthMethod, old: values.AuthMethod | None) -> None:
        if (service_type := _type_by_uuid(connection, new.service_uuid)) is None:
            raise NotFound(values.SERVICE_TYPE_GONE)
        if service_type.auth_method != new.type:  # logins could not use it
            raise Conflict(f"service-type {service_type.name} has auth_method: {service_type.auth_method}")
        if old is not None and (new.service_uuid, new.host) == (old.service_uuid, old.host):
            return
        same = (auth_methods.c.service_uuid == new.service_uuid, auth_methods.c.host == new.host)
        if _exists(connection, auth_methods.c.number, *same):
            raise AlreadyExists(f"Auth method object with host: {new.host} already exists")

    def _row(self, of: values.AuthMethod) -> dict[str, object]:
        kept = msgspec.json.encode(_Kept(of.access_key, dict(of.headers))).decode()
        same = _same(values.AuthMethod, of, but=("access_key", "headers", *_FIXED_COLUMNS))
        return {**same, "sealed": self._secrets.seal(kept, f"auth method {of.uuid}")}

    def _read_rows(self, connection: sa.Connection, rows: Sequence[sa.Row[Any]]) -> list[values.AuthMethod]:
        found = []
        for row in rows:
            kept = msgspec.json.decode(self._secrets.open(row.sealed, f"auth method {row.uuid}"), type=_Kept)
            same = _same(values.AuthMethod, row, but=("access_key", "headers"))
            found.append(values.AuthMethod(**same, access_key=kept.access_key, headers=kept.headers))
        return found


class BindingRecords(_Records[values.SubjectBinding]):
    """Bindings by name, and by the subject of a login."""

    table, gone = bindings, values.BINDING_GONE

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._by_login: Cache[str, values.SubjectBinding] = database.invalidations.new_cache()
        database.invalidations.on(BINDING, self._by_login.forget)

    async def find(self, name: str) -> values.SubjectBinding | None:
        """Return a binding, or None."""
        return await self._read_one(bindings.c.name == name)

    async def for_login(self, dn: str, service_uuid: str, host: str, auth_type: str) -> values.SubjectBinding | None:
        """Return the binding of a subject, or None; cached, so `last_auth` may be older."""
        login = _login(service_uuid, host, auth_type, dn)
        return await self._by_login.find(login, lambda: self._read_one(bindings.c.login == login))

    async def of_host(self, service_uuid: str, host: str, page: PageRequest) -> Page[values.SubjectBinding]:
        """Return the bindings of one host, as `page` does."""
        return await self.page(page, bindings.c.service_uuid == service_uuid, bindings.c.host == host)

    async def note_login(self, binding: values.BindingId, at: Milliseconds, subject_sha256: str | None = None) -> bool:
        """Store a login, and the subject's digest if there is none. Returns False without such a binding."""
        own = bindings.c.uuid == binding
        if subject_sha256 is None:
            statement = sa.update(bindings).where(own).values(last_auth=at)
            return await self._database.put(lambda connection: connection.execute(statement).rowcount) > 0
        if (known := await self._read_one(own)) is None:
            return False
        noted = sa.update(bindings).where(own, bindings.c.subject_sha256.in_(("", subject_sha256)))
        noted = noted.values(last_auth=at, subject_sha256=subject_sha256)
        return await self._database.change(noted, self._invalidation(known), grows=False) > 0

    def _check(self, connection: sa.Connection, new: values.SubjectBinding, old: values.SubjectBinding | None) -> None:
        login = _login_of(new)
        moves = old is None or _login_of(old) != login  # it may collide with another one then (15, A4)
        if moves and _exists(connection, bindings.c.number, bindings.c.login == login):
            raise AlreadyExists(f"binding object with auth_identifier: {new.auth_identifier} already exists")
        has_new_name = old is None or old.name != new.name
        if has_new_name and _exists(connection, bindings.c.number, bindings.c.name == new.name):
            raise AlreadyExists(f"binding object with name: {new.name} already exists")

    def _invalidation(self, known: values.SubjectBinding) -> Invalidation:
        return Invalidation(BINDING, (_login_of(known),))

    def _row(self, of: values.SubjectBinding) -> dict[str, object]:
        return {**_same(values.SubjectBinding, of, but=("last_auth", *_FIXED_COLUMNS)), "login": _login_of(of)}

    def _read_rows(self, connection: sa.Connection, rows: Sequence[sa.Row[Any]]) -> list[values.SubjectBinding]:
        return [values.SubjectBinding(**_same(values.SubjectBinding, row)) for row in rows]


def _login_of(binding: values.SubjectBinding) -> str:
    return _login(binding.service_uuid, binding.host, binding.auth_type, binding.auth_identifier)


def _login(*shown: str) -> str:
    return hashlib.sha256(msgspec.json.encode(shown)).hexdigest()
