"""Issuers in the registry: those that are set over the API, with their secrets sealed."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import msgspec
import structlog
from sqlalchemy import Connection, Row, delete, insert, select, update

from ams.core.clock import Clock
from ams.core.errors import Damaged
from ams.core.issuer import Issuer
from ams.core.names import IssuerName, UserId, new_uuid
from ams.storage import export_format
from ams.storage.database.cache import Cache
from ams.storage.database.database import Database
from ams.storage.database.invalidation import ISSUERS, Forget
from ams.storage.registry.tables import issuers, users
from ams.storage.secrets import Secrets

logger = structlog.get_logger("ams.registry")

_ALL = ""
_CHANGED = Forget(ISSUERS, ())
_FIELDS = tuple(each.name for each in fields(Issuer))
_COLUMNS = ("name", "url", "client_secret")
"""What of an issuer has a column of its own; the rest is one text."""


class IssuerRecords:
    """Issuers: few, asked for with every token that is not known yet, and so kept in memory all together."""

    def __init__(self, database: Database, secrets: Secrets, clock: Clock) -> None:
        self._database = database
        self._secrets = secrets
        self._clock = clock
        self._all: Cache[str, Sequence[Issuer]] = database.invalidations.new_cache(1)
        database.invalidations.on(ISSUERS, lambda: self._all.forget(_ALL))

    async def all(self) -> Sequence[Issuer]:
        """Return all issuers, oldest first; cached. One whose stored secret is damaged comes without it."""
        found = await self._all.find(_ALL, lambda: self._database.read(self._read))
        return found or ()

    async def create(self, issuer: Issuer, created_by: UserId | None) -> None:
        """Add an issuer; raise `AlreadyExists` when its name or its URL is another one's."""
        identity, now = new_uuid(), self._clock.wall()
        row = insert(issuers).values(
            id=identity, created_on=now, modified_on=now, **columns(self._secrets, issuer, identity),
            created_by=select(users.c.id).where(users.c.id == created_by).scalar_subquery(),
        )  # fmt: skip
        await self._database.write(lambda connection: connection.execute(row).rowcount, _CHANGED)

    async def update(self, name: IssuerName, issuer: Issuer) -> bool:
        """Put another issuer in the place of the one called `name`; False when there is none.

        Raises `AlreadyExists` when its name or its URL is yet another one's.
        """
        now = self._clock.wall()

        def work(connection: Connection) -> bool:
            identity = connection.scalar(select(issuers.c.id).where(issuers.c.name == name))
            if identity is None:
                return False
            change = update(issuers).where(issuers.c.id == identity)
            change = change.values(modified_on=now, **columns(self._secrets, issuer, identity))
            return connection.execute(change).rowcount > 0  # another node may have removed it meanwhile

        return await self._database.write(work, _CHANGED)

    async def delete(self, name: IssuerName) -> bool:
        """Remove an issuer; bindings to identities there stay. False when it is gone already."""
        removal = delete(issuers).where(issuers.c.name == name)
        return await self._database.write(lambda connection: connection.execute(removal).rowcount, _CHANGED) > 0

    def _read(self, connection: Connection) -> Sequence[Issuer]:
        return tuple(self._issuer(row) for row in connection.execute(select(issuers).order_by(issuers.c.number)))

    def _issuer(self, row: Row[Any]) -> Issuer:
        return msgspec.convert(fields_of(row, self._secret(row)), Issuer)

    def _secret(self, row: Row[Any]) -> str:
        """Return the secret; none when it is damaged, which must not take the other issuers away."""
        try:
            return secret_of(row, self._secrets)
        except Damaged as error:
            logger.error("issuer.secret_damaged", issuer=row.name, reason=error.message)
            return ""


def columns(secrets: Secrets, issuer: Issuer, identity: str) -> dict[str, Any]:
    """Return an issuer as its row holds it."""
    rest: Mapping[str, Any] = msgspec.to_builtins(issuer)
    secret = secrets.seal(issuer.client_secret, identity) if issuer.client_secret else None
    text = msgspec.json.encode({field: value for field, value in rest.items() if field not in _COLUMNS}).decode()
    return {"name": issuer.name, "url": issuer.url, "rest": text, "secret": secret}


def fields_of(row: Row[Any], secret: str) -> dict[str, Any]:
    """Return the fields of the issuer that a row holds, with the secret that it is given."""
    return {**msgspec.json.decode(row.rest), "name": row.name, "url": row.url, "client_secret": secret}


def issuer_on(line: export_format.Issuer) -> Issuer:
    """Return the issuer that a line of an export tells of, not yet checked."""
    said: Mapping[str, Any] = msgspec.to_builtins(line)
    return msgspec.convert({field: said[field] for field in _FIELDS if field in said}, Issuer)


def secret_of(row: Row[Any], secrets: Secrets) -> str:
    """Return the secret that a row holds, empty for none; raise `Damaged` when it cannot be read."""
    if row.secret is None:
        return ""
    try:
        return secrets.open(row.secret, row.id)
    except Damaged:
        raise Damaged(f"the stored secret of issuer {row.name} is damaged; set it anew") from None
