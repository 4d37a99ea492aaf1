"""Signing keys of the installation, and rotation of the key that encrypts all secrets.

All nodes sign with the same key, which is encrypted as tokens are. A rotation of the encryption key deletes the signing
keys, as both may have leaked together; a new one is made at its next use.

A rotation does not change the tokens. With the key in a file it has three atomic steps:

1. write the new key beside the old one, with the suffix `.next`;
2. encrypt all secrets again and store the new key's fingerprint, in one transaction;
3. replace the old key's file.

After a crash `settle` finds the right key by the fingerprint.
"""

import os
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from ams.core.errors import RegistryUnavailable, Unusable
from ams.storage.database.database import Database
from ams.storage.database.schema import reason
from ams.storage.files import Disk
from ams.storage.registry.logins import hash_of, sealed_columns, secret_of
from ams.storage.registry.statements import Records, with_user_and_creator
from ams.storage.registry.tables import REGISTRY, issuers, keys, named_tokens, push_secrets, signing_keys, users
from ams.storage.registry.users import token_columns
from ams.storage.secrets import Secrets, key_file

PUSH = "push"  # purpose: tokens of deliveries in Google's form


class SigningKey(NamedTuple):
    """A private key."""

    id: str  # at most 40 characters
    pem: str


class SigningKeyRecords(Records):
    """Signing keys, one per purpose."""

    async def find(self, purpose: str) -> SigningKey | None:
        """Return the key, or None. Raises `Damaged` for an unreadable key."""
        return await self._database.read(lambda connection: self._find(connection, purpose))

    async def add(self, purpose: str, key: SigningKey) -> SigningKey:
        """Store a key unless there is one; return the stored one, which may be another node's."""
        sealed = self._secrets.seal(key.pem, _owner_of(purpose))
        values = {"purpose": purpose, "id": key.id, "sealed": sealed, "created_on": self._clock.wall()}

        def work(connection: Connection) -> SigningKey:
            known = self._find(connection, purpose)
            if known is None:  # on a conflict with another node this runs again
                connection.execute(insert(signing_keys).values(**values))
            return known or key

        return await self._database.write(work, grows=False)

    def _find(self, connection: Connection, purpose: str) -> SigningKey | None:
        row = connection.execute(select(signing_keys).where(signing_keys.c.purpose == purpose)).first()
        return None if row is None else SigningKey(row.id, self._secrets.open(row.sealed, _owner_of(purpose)))


def _owner_of(purpose: str) -> str:
    """Return the owner that a key is encrypted for; no other identity has this form."""
    return f"signing key {purpose}"


NEXT_KEY_ENDING = ".next"  # suffix of the file of the next key


def encrypt_anew(connection: Connection, old: Secrets, new: Secrets) -> int:
    """Encrypt all secrets with another key and delete signing keys; return the number of tokens. Raises `Damaged`."""
    own = [
        {"row": each.id, **token_columns(new, old.decrypt(each.token_sealed, each.id), each.id)}
        for each in connection.execute(select(users.c.id, users.c.token_sealed))
    ]
    named = [
        {"row": each.id, **sealed_columns(new, hash_of(old, each), each.id)}
        for each in connection.execute(with_user_and_creator(named_tokens))
    ]
    for table, rows in ((users, own), (named_tokens, named)):
        if rows:
            connection.execute(update(table).where(table.c.id == bindparam("row")), rows)
    for each in connection.execute(select(push_secrets)).all():
        sealed = new.seal_push(old.open_push(each.sealed, each.subscription_id), each.subscription_id)
        connection.execute(update(push_secrets).where(push_secrets.c.number == each.number).values(sealed=sealed))
    for each in connection.execute(select(issuers).where(issuers.c.secret.is_not(None))).all():
        sealed = new.seal(secret_of(each, old), each.id)
        connection.execute(update(issuers).where(issuers.c.id == each.id).values(secret=sealed))
    connection.execute(delete(signing_keys))
    connection.execute(update(keys).values(fingerprint=new.fingerprint))
    return len(own) + len(named)


async def settle(url: str, path: str, files: Disk) -> None:
    """Complete or undo an interrupted rotation of the key at `path`; call before reading it. Raises `Unusable`."""
    draft = path + NEXT_KEY_ENDING
    if not files.exists(draft):
        return
    database = Database(url, REGISTRY)
    try:
        known = await database.value(select(keys.c.fingerprint))
    except RegistryUnavailable as error:
        raise Unusable(f"the registry's database is not usable: {reason(error.__cause__)}") from error
    finally:
        await database.close()
    if known == Secrets(key_file(draft, create=False, files=files)).fingerprint:
        files.rename(draft, path)
    elif files.exists(path) and known == Secrets(key_file(path, create=False, files=files)).fingerprint:
        files.unlink(draft)
    files.sync_folder(os.path.dirname(path) or ".")
