"""The store of the certificate service: tables on SQLite or PostgreSQL, and the records in them."""

import asyncio
from collections.abc import Sequence
from typing import Any, Self

from sqlalchemy import Connection, Row, delete, insert, select

from ams.authn.store.records import AuthMethodRecords, BindingRecords, ServiceTypeRecords
from ams.authn.store.tables import AUTHN, audit, keys, sealing
from ams.authn.values import ManagementKey
from ams.core.clock import Clock, SystemClock
from ams.core.errors import AlreadyExists, NotFound, RegistryUnavailable
from ams.storage.audit.records import AuditRecords
from ams.storage.database.database import Database, open_database
from ams.storage.free_space import UNLIMITED, FreeSpace
from ams.storage.secrets import Secrets


class KeyRecords:
    """Keys by name and by secret. Not cached: a revoked key is refused at once."""

    def __init__(self, database: Database, secrets: Secrets) -> None:
        self._database, self._secrets = database, secrets

    async def find(self, secret: str) -> ManagementKey | None:
        """Return the key with this secret, or None."""
        return await self._database.row(select(keys).where(keys.c.digest == self._secrets.digest(secret)), _key_of)

    async def all(self) -> Sequence[ManagementKey]:
        """Return all keys, oldest first."""
        return await self._database.rows(select(keys).order_by(keys.c.number), _key_of)

    async def create(self, made: ManagementKey, secret: str) -> None:
        """Add a key. Raises `AlreadyExists` if the name is taken."""
        row = insert(keys).values(
            name=made.name, scope=made.scope, digest=self._secrets.digest(secret), created_on=made.created_on
        )

        def work(connection: Connection) -> None:
            if connection.scalar(select(keys.c.number).where(keys.c.name == made.name)) is not None:
                raise AlreadyExists(f"key object with name: {made.name} already exists")
            connection.execute(row)

        await self._database.write(work)

    async def delete(self, name: str) -> None:
        """Delete a key, which is refused at once. Raises `NotFound`."""
        gone = delete(keys).where(keys.c.name == name)
        if not await self._database.change(gone, grows=False):
            raise NotFound("Key was not found")


def _key_of(row: Row[Any]) -> ManagementKey:
    return ManagementKey(name=row.name, scope=row.scope, created_on=row.created_on)


class Store:
    """All records of the service. Methods raise `RegistryUnavailable` if the database does not answer."""

    def __init__(self, database: Database, secrets: Secrets, clock: Clock, space: FreeSpace) -> None:
        self.database, self.clock, self._space = database, clock, space
        self.refusal: str | None = None  # why writes are refused, as of the last look at the disk
        self.service_types = ServiceTypeRecords(database)
        self.auth_methods = AuthMethodRecords(database, secrets)
        self.bindings = BindingRecords(database)
        self.keys = KeyRecords(database, secrets)
        self.events = AuditRecords(database, audit)

    @classmethod
    async def open(
        cls, url: str, key: bytes, *, password: str = "", clock: Clock | None = None, space: FreeSpace = UNLIMITED
    ) -> Self:
        """Open the database at `url` and create or migrate its tables; `key` (32 bytes) encrypts secrets.

        Raises `Unusable` for a wrong database or key, `RegistryUnavailable` if PostgreSQL does not answer now.
        """
        secrets = Secrets(key)
        await asyncio.to_thread(space.keep_reserve)  # a start on a full disk needs it for its own commits
        database = await open_database(url, AUTHN, secrets.fingerprint, password=password, space=space)
        return cls(database, secrets, clock or SystemClock(), space)

    async def check(self) -> None:
        """Raise `RegistryUnavailable` unless the database answers."""
        await self.database.value(select(sealing.c.fingerprint))

    async def look_at_space(self) -> None:
        """Restore the reserve, and note whether the disk has too little space for new records."""
        await asyncio.to_thread(self._space.keep_reserve)
        try:
            await self.database.require_room()
        except RegistryUnavailable as error:
            reason = await asyncio.to_thread(self._space.growth_refusal)
            self.refusal = f"changes are refused: {reason or error.message}"
        else:
            self.refusal = None

    async def close(self) -> None:
        """Finish accepted work and close the database."""
        await self.database.close()
