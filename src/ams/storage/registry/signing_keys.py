"""Keys that the installation signs with, in the registry, so that all nodes sign with the same one.

A private key is sealed as tokens are. When the key that seals them is changed it is forgotten, as both may have become
known together, and a new one is made at its next use.
"""

from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select

from ams.core.clock import Clock
from ams.storage.database.database import Database
from ams.storage.registry.tables import signing_keys
from ams.storage.secrets import Secrets

PUSH = "push"
"""Signs the tokens of deliveries in Google's form."""


class SigningKey(NamedTuple):
    """A private key."""

    id: str
    """At most 40 characters."""
    pem: str


class SigningKeyRecords:
    """Signing keys by what they are for, one for each."""

    def __init__(self, database: Database, secrets: Secrets, clock: Clock) -> None:
        self._database = database
        self._secrets = secrets
        self._clock = clock

    async def find(self, purpose: str) -> SigningKey | None:
        """Return the key, None before there is one. Raises `Damaged` for one that cannot be read."""
        return await self._database.read(lambda connection: self._find(connection, purpose))

    async def add(self, purpose: str, key: SigningKey) -> SigningKey:
        """Keep a key; return the one that is kept, another one where another node was first."""
        sealed = self._secrets.seal(key.pem, _bound(purpose))
        values = {"purpose": purpose, "id": key.id, "sealed": sealed, "created_on": self._clock.wall()}

        def work(connection: Connection) -> SigningKey:
            known = self._find(connection, purpose)
            if known is None:  # where another node is first just now, this is run again
                connection.execute(insert(signing_keys).values(**values))
            return known or key

        return await self._database.write(work, grows=False)

    def _find(self, connection: Connection, purpose: str) -> SigningKey | None:
        query = select(signing_keys.c.id, signing_keys.c.sealed).where(signing_keys.c.purpose == purpose)
        row = connection.execute(query).first()
        return None if row is None else SigningKey(row.id, self._secrets.open(row.sealed, _bound(purpose)))


def forget_all(connection: Connection) -> None:
    """Remove all keys, in the connection's transaction."""
    connection.execute(delete(signing_keys))


def _bound(purpose: str) -> str:
    """Return what a key is sealed for; no identity of anything else looks so."""
    return f"signing key {purpose}"
