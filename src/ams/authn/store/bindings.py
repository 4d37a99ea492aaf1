"""Bindings in the store.

A login finds its binding by one short hash, so that 100,000 of them are no slower than 100, and a name of any length
can be in a unique index.
"""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, delete, insert, or_, select, update

from ams.authn.store import service_types
from ams.authn.store.auth_methods import Types
from ams.authn.store.forgetting import BINDING
from ams.authn.store.paging import Page, PageRequest, read_page
from ams.authn.store.tables import bindings
from ams.authn.values import BINDING_GONE, Binding, BindingId
from ams.core.clock import Milliseconds
from ams.core.errors import AlreadyExists, NotFound
from ams.storage.database.cache import Cache
from ams.storage.database.database import Database
from ams.storage.database.invalidation import Forget

Change = Callable[[Binding, Types], Binding]
"""Makes the new state of the present one; what it raises leaves everything as it was."""


class BindingRecords:
    """Bindings by name, and by what a login shows."""

    def __init__(self, database: Database, cache_size: int) -> None:
        self._database = database
        self._by_login: Cache[str, Binding] = database.invalidations.new_cache(cache_size)
        database.invalidations.on(BINDING, self._by_login.forget)

    async def find(self, name: str) -> Binding | None:
        """Return a binding, None when there is none."""
        return await self._database.read(lambda connection: _one(connection, bindings.c.name == name))

    async def for_login(self, identifier: str, service_uuid: str, host: str, auth_type: str) -> Binding | None:
        """Return the binding of a subject, None when there is none; cached, else one look into an index.

        `last_auth` may be that of an earlier login.
        """
        login = _login(service_uuid, host, auth_type, identifier)
        return await self._by_login.find(
            login, lambda: self._database.read(lambda connection: _one(connection, bindings.c.login == login))
        )

    async def page(self, page: PageRequest, service_uuid: str = "", host: str = "") -> Page[Binding]:
        """Return bindings, oldest first; with `service_uuid`, those of one host. Raises `BadRequest`."""
        query = select(bindings)
        if service_uuid:
            query = query.where(bindings.c.service_uuid == service_uuid, bindings.c.host == host)
        return await self._database.read(
            lambda connection: read_page(connection, query, bindings.c.number, page).map(_binding)
        )

    async def create(self, made: Binding) -> None:
        """Add a binding; raise `AlreadyExists` for its identifier, then for its name; `NotFound` without its host."""
        row = insert(bindings).values(uuid=made.uuid, created_on=made.created_on, **_row(made))

        def work(connection: Connection) -> None:
            _require_free_identifier(connection, made)
            _require_free_name(connection, made)
            connection.execute(row)

        await self._database.write(work)

    async def change(self, name: str, now: Milliseconds, change: Change) -> Binding:
        """Change a binding in one step. Raises `NotFound`, as `create`, and what `change` raises."""
        while True:
            known = await self.find(name)
            if known is None:
                raise NotFound(BINDING_GONE)
            changed = await self._database.write(_changing(known, now, change), _forget(known))
            if changed is not None:
                return changed

    async def delete(self, name: str) -> bool:
        """Remove a binding; False when there is none."""
        while True:
            known = await self.find(name)
            if known is None:
                return False
            gone = delete(bindings).where(bindings.c.uuid == known.uuid, bindings.c.login == _login_of(known))
            if await self._database.write(_rows(gone), _forget(known)):
                return True

    async def note_login(self, binding: BindingId, at: Milliseconds, subject_sha256: str | None = None) -> bool:
        """Note a login, and with `subject_sha256` the whole subject, if none was noted before.

        Returns False, and notes nothing, when another subject was noted before, or the binding is gone.
        """
        own = bindings.c.uuid == binding
        if subject_sha256 is None:
            return await self._database.put(_rows(update(bindings).where(own).values(last_auth=at))) > 0
        known = await self._database.read(lambda connection: _one(connection, own))
        if known is None:
            return False
        noted = update(bindings).where(own, or_(*(bindings.c.subject_sha256 == each for each in ("", subject_sha256))))
        noted = noted.values(last_auth=at, subject_sha256=subject_sha256)
        return await self._database.write(_rows(noted), _forget(known)) > 0


def _rows(statement: Any) -> Callable[[Connection], int]:
    return lambda connection: int(connection.execute(statement).rowcount)


def _changing(known: Binding, now: Milliseconds, change: Change) -> Callable[[Connection], Binding | None]:
    """Return the work that changes a binding; it returns None if what caches call it is another by now."""

    def work(connection: Connection) -> Binding | None:
        present = _one(connection, bindings.c.uuid == known.uuid)
        if present is None or _login_of(present) != _login_of(known) or present.name != known.name:
            return None
        changed = change(present, lambda service: service_types.by_uuid(connection, service))
        changed = replace(changed, updated_on=now)
        # Whatever of the four has changed: a binding that moves may meet another there (15, A4).
        if _login_of(changed) != _login_of(present):
            _require_free_identifier(connection, changed)
        if changed.name != present.name:
            _require_free_name(connection, changed)
        connection.execute(
            update(bindings).where(bindings.c.uuid == known.uuid).values(updated_on=now, **_row(changed))
        )
        return changed

    return work


def _one(connection: Connection, condition: ColumnElement[bool]) -> Binding | None:
    row = connection.execute(select(bindings).where(condition)).first()
    return _binding(row) if row else None


def _binding(row: Row[Any]) -> Binding:
    return Binding(
        uuid=row.uuid,
        name=row.name,
        service_uuid=row.service_uuid,
        host=row.host,
        auth_identifier=row.auth_identifier,
        unique_key=row.unique_key,
        auth_type=row.auth_type,
        issuer=row.issuer,
        subject_sha256=row.subject_sha256,
        created_on=row.created_on,
        updated_on=row.updated_on,
        last_auth=row.last_auth,
    )


def _row(of: Binding) -> dict[str, object]:
    return {
        "name": of.name,
        "service_uuid": of.service_uuid,
        "host": of.host,
        "auth_identifier": of.auth_identifier,
        "unique_key": of.unique_key,
        "auth_type": of.auth_type,
        "login": _login_of(of),
        "issuer": of.issuer,
        "subject_sha256": of.subject_sha256,
    }


def _login_of(binding: Binding) -> str:
    return _login(binding.service_uuid, binding.host, binding.auth_type, binding.auth_identifier)


def _login(*shown: str) -> str:
    return hashlib.sha256(msgspec.json.encode(shown)).hexdigest()


def _forget(known: Binding) -> Forget:
    return Forget(BINDING, (_login_of(known),))


def _require_free_identifier(connection: Connection, wanted: Binding) -> None:
    if connection.scalar(select(bindings.c.number).where(bindings.c.login == _login_of(wanted))) is not None:
        raise AlreadyExists(f"binding object with auth_identifier: {wanted.auth_identifier} already exists")


def _require_free_name(connection: Connection, wanted: Binding) -> None:
    if connection.scalar(select(bindings.c.number).where(bindings.c.name == wanted.name)) is not None:
        raise AlreadyExists(f"binding object with name: {wanted.name} already exists")
