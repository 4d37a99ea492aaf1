"""The face of the store: one database, a part for each kind of record."""

from collections.abc import Callable
from typing import Self

from sqlalchemy import select

from ams.authn.store.auth_methods import AuthMethodRecords
from ams.authn.store.bindings import BindingRecords
from ams.authn.store.keys import KeyRecords
from ams.authn.store.schema import AUTHN
from ams.authn.store.service_types import ServiceTypeRecords
from ams.authn.store.tables import sealing
from ams.core.clock import Clock, SystemClock
from ams.storage.database.database import Database
from ams.storage.database.opening import opened
from ams.storage.secrets import Secrets

CACHE_SIZE = 50_000
"""Entries of each kind kept in memory for logins."""
_OTHER_KEY = "the key of the secrets is not the one they were encrypted with; restore it"


class Store:
    """What the certificate service keeps. Its calls raise `RegistryUnavailable` when the database cannot answer."""

    def __init__(self, database: Database, secrets: Secrets, clock: Clock, cache_size: int) -> None:
        self.database = database
        self.clock = clock
        self.service_types = ServiceTypeRecords(database, cache_size)
        self.auth_methods = AuthMethodRecords(database, secrets, cache_size)
        self.bindings = BindingRecords(database, cache_size)
        self.keys = KeyRecords(database, secrets)

    @classmethod
    async def open(
        cls,
        url: str,
        key: bytes,
        *,
        password: str = "",
        clock: Clock | None = None,
        on_full: Callable[[], bool] = lambda: False,
        cache_size: int = CACHE_SIZE,
    ) -> Self:
        """Open the database at `url`, making or migrating its tables: see `database.sqlite_url`, or PostgreSQL's.

        `key` (32 bytes) encrypts the secrets of auth methods. Raises `Unusable` for a database that is not ours, or a
        key that is not this database's; `RegistryUnavailable`, which says why, for a PostgreSQL that does not answer
        now.
        """
        secrets = Secrets(key)
        database = await opened(
            url, AUTHN, sealing, secrets.fingerprint, other_key=_OTHER_KEY, password=password, on_full=on_full
        )
        return cls(database, secrets, clock or SystemClock(), cache_size)

    @property
    def away(self) -> str | None:
        """Why the store cannot be asked now, as far as is known; None while it can."""
        return self.database.away

    async def check(self) -> None:
        """Raise `RegistryUnavailable` unless the database answers."""
        await self.database.read(lambda connection: connection.scalar(select(sealing.c.fingerprint)))

    async def close(self) -> None:
        """Finish what was accepted and let go of the database."""
        await self.database.close()
