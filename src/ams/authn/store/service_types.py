"""Service types and their hosts in the store."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, delete, insert, select, update

from ams.authn.store.forgetting import FORGET_TYPES, TYPES
from ams.authn.store.paging import Page, PageRequest, read_page
from ams.authn.store.tables import auth_methods, bindings, hosts, service_types
from ams.authn.values import SERVICE_TYPE_GONE, ServiceType, ServiceTypeId
from ams.core.clock import Milliseconds
from ams.core.errors import AlreadyExists, Conflict, NotFound
from ams.storage.database.cache import Cache
from ams.storage.database.database import Database

Change = Callable[[ServiceType], ServiceType]
"""Makes the new state of the present one; what it raises leaves everything as it was."""


class ServiceTypeRecords:
    """Service types by name and by uuid."""

    def __init__(self, database: Database, cache_size: int) -> None:
        self._database = database
        self._by_name: Cache[str, ServiceType] = database.invalidations.new_cache(cache_size)
        database.invalidations.on(TYPES, database.invalidations.forget_all)

    async def find(self, name: str) -> ServiceType | None:
        """Return a service type, None when there is none; cached."""
        return await self._by_name.find(
            name, lambda: self._database.read(lambda connection: _one(connection, service_types.c.name == name))
        )

    async def find_by_uuid(self, uuid: str) -> ServiceType | None:
        """Return a service type, None when there is none."""
        return await self._database.read(lambda connection: by_uuid(connection, uuid))

    async def page(self, page: PageRequest) -> Page[ServiceType]:
        """Return service types, oldest first. Raises `BadRequest` for a bad token."""

        def work(connection: Connection) -> Page[ServiceType]:
            found = read_page(connection, select(service_types), service_types.c.number, page)
            return Page(_with_hosts(connection, found.items), found.next_token)

        return await self._database.read(work)

    async def create(self, made: ServiceType) -> None:
        """Add a service type; raise `AlreadyExists` when the name is taken."""

        def work(connection: Connection) -> None:
            _require_free(connection, made)
            connection.execute(insert(service_types).values(uuid=made.uuid, created_on=made.created_on, **_row(made)))
            _put_hosts(connection, made)

        await self._database.write(work)

    async def change(self, uuid: ServiceTypeId, now: Milliseconds, change: Change) -> ServiceType:
        """Change a service type in one step. Raises `NotFound`, `AlreadyExists`, what `change` raises.

        Raises `Conflict` rather than leave bindings or auth methods behind that nothing can reach (15, A6).
        """

        def work(connection: Connection) -> ServiceType:
            present = by_uuid(connection, uuid)
            if present is None:
                raise NotFound(SERVICE_TYPE_GONE)
            changed = replace(change(present), updated_on=now)
            if changed.name != present.name:
                _require_free(connection, changed)
            _require_reachable(connection, present, changed)
            row = update(service_types).where(service_types.c.uuid == uuid)
            connection.execute(row.values(updated_on=now, **_row(changed)))
            _put_hosts(connection, changed)
            return changed

        return await self._database.write(work, FORGET_TYPES)

    async def delete(self, uuid: ServiceTypeId) -> bool:
        """Remove a service type with all its auth methods and bindings (15, A3); False when there is none."""
        gone = delete(service_types).where(service_types.c.uuid == uuid)
        rows = await self._database.write(
            lambda connection: connection.execute(gone).rowcount, FORGET_TYPES, large=True
        )
        return rows > 0


def by_uuid(connection: Connection, uuid: str) -> ServiceType | None:
    """Return a service type, in the connection's transaction."""
    return _one(connection, service_types.c.uuid == uuid)


def _one(connection: Connection, condition: ColumnElement[bool]) -> ServiceType | None:
    rows = connection.execute(select(service_types).where(condition)).all()
    return next(iter(_with_hosts(connection, rows)), None)


def _with_hosts(connection: Connection, rows: Sequence[Row[Any]]) -> list[ServiceType]:
    query = select(hosts).order_by(hosts.c.service_uuid, hosts.c.position)
    if len(rows) == 1:
        query = query.where(hosts.c.service_uuid == rows[0].uuid)
    found: defaultdict[str, list[str]] = defaultdict(list)
    for row in connection.execute(query) if rows else ():
        found[row.service_uuid].append(row.host)
    return [_service_type(row, found[row.uuid]) for row in rows]


def _service_type(row: Row[Any], its_hosts: Sequence[str]) -> ServiceType:
    return ServiceType(
        uuid=row.uuid,
        name=row.name,
        hosts=tuple(its_hosts),
        auth_types=tuple(msgspec.json.decode(row.auth_types, type=list[str])),
        auth_method=row.auth_method,
        type=row.type,
        verify_client_host=row.verify_client_host,
        created_on=row.created_on,
        updated_on=row.updated_on,
    )


def _row(of: ServiceType) -> dict[str, object]:
    return {
        "name": of.name,
        "auth_types": msgspec.json.encode(of.auth_types).decode(),
        "auth_method": of.auth_method,
        "type": of.type,
        "verify_client_host": of.verify_client_host,
    }


def _require_free(connection: Connection, wanted: ServiceType) -> None:
    if connection.scalar(select(service_types.c.number).where(service_types.c.name == wanted.name)) is not None:
        raise AlreadyExists(f"service-type object with name: {wanted.name} already exists")


def _require_reachable(connection: Connection, present: ServiceType, changed: ServiceType) -> None:
    if changed.auth_method != present.auth_method:
        row = select(auth_methods.c.number).where(auth_methods.c.service_uuid == present.uuid).limit(1)
        if connection.scalar(row) is not None:
            raise Conflict(f"auth_method of service-type {present.name} is in use: delete its auth methods first")
    for host in present.hosts:
        if host not in changed.hosts and _is_used(connection, present.uuid, host):
            raise Conflict(
                f"host {host} of service-type {present.name} is in use: delete its auth method and bindings first"
            )


def _is_used(connection: Connection, service_uuid: str, host: str) -> bool:
    return any(
        connection.scalar(
            select(table.c.number).where(table.c.service_uuid == service_uuid, table.c.host == host).limit(1)
        )
        is not None
        for table in (auth_methods, bindings)
    )


def _put_hosts(connection: Connection, of: ServiceType) -> None:
    """Store the list of hosts; those that stay are not taken away for a moment, as others refer to them."""
    own = hosts.c.service_uuid == of.uuid
    known = set(connection.scalars(select(hosts.c.host).where(own)))
    for host in known - set(of.hosts):
        connection.execute(delete(hosts).where(own, hosts.c.host == host))
    for position, host in enumerate(of.hosts):
        if host in known:
            connection.execute(update(hosts).where(own, hosts.c.host == host).values(position=position))
        else:
            connection.execute(insert(hosts).values(service_uuid=of.uuid, host=host, position=position))
