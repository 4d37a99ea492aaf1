"""Auth methods in the store: what they log in with is encrypted, and bound to the one it belongs to (15, A16)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, delete, insert, select, update

from ams.authn.store import service_types
from ams.authn.store.forgetting import FORGET_METHODS, METHODS
from ams.authn.store.paging import Page, PageRequest, read_page
from ams.authn.store.tables import auth_methods
from ams.authn.values import AUTH_METHOD_GONE, SERVICE_TYPE_GONE, AuthMethod, ServiceType
from ams.core.clock import Milliseconds
from ams.core.errors import AlreadyExists, Conflict, NotFound
from ams.storage.database.cache import Cache
from ams.storage.database.database import Database
from ams.storage.secrets import Secrets

Types = Callable[[str], ServiceType | None]
"""Finds a service type by its uuid, in the transaction that something is changed in."""
Change = Callable[[AuthMethod, Types], AuthMethod]
"""Makes the new state of the present one; what it raises leaves everything as it was."""


class _Kept(msgspec.Struct, omit_defaults=True):
    """What is encrypted."""

    access_key: str = ""
    headers: dict[str, str] = {}


class AuthMethodRecords:
    """Auth methods by service type and host."""

    def __init__(self, database: Database, secrets: Secrets, cache_size: int) -> None:
        self._database = database
        self._secrets = secrets
        self._by_host: Cache[tuple[str, str], AuthMethod] = database.invalidations.new_cache(cache_size)
        database.invalidations.on(METHODS, lambda: self._by_host.forget_where(lambda _key, _value: True))

    async def find(self, service_uuid: str, host: str) -> AuthMethod | None:
        """Return the auth method of a host, None when there is none; cached. Raises `Damaged`."""

        def work(connection: Connection) -> AuthMethod | None:
            own = select(auth_methods).where(auth_methods.c.service_uuid == service_uuid, auth_methods.c.host == host)
            row = connection.execute(own).first()
            return self._auth_method(row) if row else None

        return await self._by_host.find((service_uuid, host), lambda: self._database.read(work))

    async def page(self, page: PageRequest) -> Page[AuthMethod]:
        """Return auth methods, oldest first. Raises `BadRequest` for a bad token, `Damaged`."""
        return await self._database.read(
            lambda connection: read_page(connection, select(auth_methods), auth_methods.c.number, page).map(
                self._auth_method
            )
        )

    async def create(self, made: AuthMethod) -> None:
        """Add an auth method.

        Raises `AlreadyExists` when its host has one, `NotFound` when the host is gone, `Conflict` when the service
        type wants another kind by now.
        """
        row = insert(auth_methods).values(uuid=made.uuid, created_on=made.created_on, **self._row(made))

        def work(connection: Connection) -> None:
            _require_kind(connection, made)
            _require_free(connection, made)
            connection.execute(row)

        await self._database.write(work, FORGET_METHODS)

    async def change(self, uuid: str, now: Milliseconds, change: Change) -> AuthMethod:
        """Change an auth method in one step. Raises as `create`, and what `change` raises."""
        own = auth_methods.c.uuid == uuid

        def work(connection: Connection) -> AuthMethod:
            row = connection.execute(select(auth_methods).where(own)).first()
            if row is None:
                raise NotFound(AUTH_METHOD_GONE)
            present = self._auth_method(row)
            changed = change(present, lambda service: service_types.by_uuid(connection, service))
            changed = replace(changed, updated_on=now)
            _require_kind(connection, changed)
            if (changed.service_uuid, changed.host) != (present.service_uuid, present.host):
                _require_free(connection, changed)
            connection.execute(update(auth_methods).where(own).values(updated_on=now, **self._row(changed)))
            return changed

        return await self._database.write(work, FORGET_METHODS)

    async def delete(self, uuid: str) -> bool:
        """Remove an auth method; False when there is none."""
        gone = delete(auth_methods).where(auth_methods.c.uuid == uuid)
        return await self._database.write(lambda connection: connection.execute(gone).rowcount, FORGET_METHODS) > 0

    def _row(self, of: AuthMethod) -> dict[str, object]:
        kept = msgspec.json.encode(_Kept(of.access_key, dict(of.headers))).decode()
        return {
            "service_uuid": of.service_uuid,
            "host": of.host,
            "port": of.port,
            "type": of.type,
            "sealed": self._secrets.seal(kept, _owner(of.uuid)),
        }

    def _auth_method(self, row: Row[Any]) -> AuthMethod:
        kept = msgspec.json.decode(self._secrets.open(row.sealed, _owner(row.uuid)), type=_Kept)
        return AuthMethod(
            uuid=row.uuid,
            service_uuid=row.service_uuid,
            host=row.host,
            port=row.port,
            type=row.type,
            access_key=kept.access_key,
            headers=kept.headers,
            created_on=row.created_on,
            updated_on=row.updated_on,
        )


def _owner(uuid: str) -> str:
    return f"auth method {uuid}"


def _require_kind(connection: Connection, wanted: AuthMethod) -> None:
    """An auth method of another kind than its service type's would never be found right."""
    service_type = service_types.by_uuid(connection, wanted.service_uuid)
    if service_type is None:
        raise NotFound(SERVICE_TYPE_GONE)
    if service_type.auth_method != wanted.type:
        raise Conflict(f"service-type {service_type.name} has auth_method: {service_type.auth_method}")


def _require_free(connection: Connection, wanted: AuthMethod) -> None:
    same = (auth_methods.c.service_uuid == wanted.service_uuid, auth_methods.c.host == wanted.host)
    if connection.scalar(select(auth_methods.c.number).where(*same)) is not None:
        raise AlreadyExists(f"Auth method object with host: {wanted.host} already exists")
