"""Named keys of the management interface in the store: found by a keyed hash, never read back (15, A15)."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select

from ams.authn.store.tables import keys
from ams.authn.values import Key
from ams.core.errors import AlreadyExists
from ams.storage.database.database import Database
from ams.storage.secrets import Secrets


class KeyRecords:
    """Keys by name and by secret. Not cached: a key that was revoked opens nothing from then on."""

    def __init__(self, database: Database, secrets: Secrets) -> None:
        self._database = database
        self._secrets = secrets

    async def find(self, secret: str) -> Key | None:
        """Return the key with this secret, None when there is none."""
        query = select(keys).where(keys.c.digest == self._secrets.digest(secret))
        row = await self._database.read(lambda connection: connection.execute(query).first())
        return _key(row) if row else None

    async def all(self) -> Sequence[Key]:
        """Return all keys, oldest first."""
        query = select(keys).order_by(keys.c.number)
        return [_key(row) for row in await self._database.read(lambda connection: connection.execute(query).all())]

    async def create(self, made: Key, secret: str) -> None:
        """Add a key; raise `AlreadyExists` when the name is taken."""
        row = insert(keys).values(
            name=made.name, scope=made.scope, digest=self._secrets.digest(secret), created_on=made.created_on
        )

        def work(connection: Connection) -> None:
            if connection.scalar(select(keys.c.number).where(keys.c.name == made.name)) is not None:
                raise AlreadyExists(f"key object with name: {made.name} already exists")
            connection.execute(row)

        await self._database.write(work)

    async def delete(self, name: str) -> bool:
        """Remove a key; False when there is none."""
        gone = delete(keys).where(keys.c.name == name)
        return await self._database.write(lambda connection: connection.execute(gone).rowcount) > 0


def _key(row: Row[Any]) -> Key:
    return Key(name=row.name, scope=row.scope, created_on=row.created_on)
