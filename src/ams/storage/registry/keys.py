"""Keys in the registry: those that the installation signs with, and changing the key that encrypts all secrets.

All nodes sign with the same key. A private key is sealed as tokens are. When the key that seals them is changed it is
forgotten, as both may have become known together, and a new one is made at its next use.

A change of the key that encrypts leaves the tokens themselves as they are. With the key in a file it has three steps,
each of them whole or not at all:

1. the new key is written beside the old one, under the old one's name with `.next` behind it;
2. one transaction encrypts all secrets anew and notes the new key's fingerprint;
3. the new key's file takes the place of the old one.

A crash leaves both files or one of them; `settle` finds out by the fingerprint which key is right.
"""

import os
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from ams.core.errors import RegistryUnavailable, Unusable
from ams.storage.database.database import Database
from ams.storage.database.schema import reason
from ams.storage.files import Disk
from ams.storage.registry.logins import hash_of, secret_of
from ams.storage.registry.statements import Records, with_user_and_creator
from ams.storage.registry.tables import REGISTRY, issuers, keys, named_tokens, push_secrets, signing_keys, users
from ams.storage.secrets import Secrets, key_file

PUSH = "push"  # signs the tokens of deliveries in Google's form


class SigningKey(NamedTuple):
    """A private key."""

    id: str  # at most 40 characters
    pem: str


class SigningKeyRecords(Records):
    """Signing keys by what they are for, one for each."""

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
        row = connection.execute(select(signing_keys).where(signing_keys.c.purpose == purpose)).first()
        return None if row is None else SigningKey(row.id, self._secrets.open(row.sealed, _bound(purpose)))


def _bound(purpose: str) -> str:
    """Return the owner that a key is sealed for; no identity of anything else looks so."""
    return f"signing key {purpose}"


NEXT = ".next"  # ending of the file of a key that is going to be used


def encrypt_anew(connection: Connection, old: Secrets, new: Secrets) -> int:
    """Encrypt all secrets with another key and forget signing keys; return how many tokens. Raises `Damaged`."""
    tokens, owners = [], connection.execute(select(users.c.id, users.c.token_sealed)).all()
    for row in owners:
        token = old.decrypt(row.token_sealed, row.id)
        tokens.append({"row": row.id, "digest": new.digest(token), "sealed": new.encrypt(token, row.id)})
    if tokens:
        change = update(users).where(users.c.id == bindparam("row"))
        change = change.values(token_digest=bindparam("digest"), token_sealed=bindparam("sealed"))
        connection.execute(change, tokens)
    named = []
    for each in connection.execute(with_user_and_creator(named_tokens)).all():
        hashed = hash_of(old, each)
        named.append({"row": each.id, "known_by": new.digest(hashed), "anew": new.seal(hashed, each.id)})
    if named:
        change = update(named_tokens).where(named_tokens.c.id == bindparam("row"))
        connection.execute(change.values(digest=bindparam("known_by"), sealed=bindparam("anew")), named)
    for each in connection.execute(select(push_secrets)).all():
        sealed = new.seal_push(old.open_push(each.sealed, each.subscription_id), each.subscription_id)
        connection.execute(update(push_secrets).where(push_secrets.c.number == each.number).values(sealed=sealed))
    for each in connection.execute(select(issuers).where(issuers.c.secret.is_not(None))).all():
        sealed = new.seal(secret_of(each, old), each.id)
        connection.execute(update(issuers).where(issuers.c.id == each.id).values(secret=sealed))
    connection.execute(delete(signing_keys))
    connection.execute(update(keys).values(fingerprint=new.fingerprint))
    return len(tokens) + len(named)


async def settle(url: str, path: str, files: Disk | None = None) -> None:
    """End or undo a change of the key at `path` that a crash cut short, before the key is read. Raises `Unusable`."""
    files = files or Disk()
    draft = path + NEXT
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
