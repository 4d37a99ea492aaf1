"""Changing the key that encrypts the tokens and all other secrets. The tokens themselves stay the same.

With the key in a file, three steps, each of them whole or not at all:

1. the new key is written beside the old one, under the old one's name with `.next` behind it;
2. one transaction encrypts all of them anew and notes the new key's fingerprint;
3. the new key's file takes the place of the old one.

A crash leaves both files or one of them; `settle` finds out by the fingerprint which key is right.
"""

import os

from sqlalchemy import Connection, bindparam, select, update

from ams.core.errors import RegistryUnavailable, Unusable
from ams.storage.database.database import Database
from ams.storage.database.schema import reason
from ams.storage.files import Disk
from ams.storage.registry.logins import hash_of, secret_of
from ams.storage.registry.signing_keys import forget_all
from ams.storage.registry.tables import REGISTRY, issuers, keys, named_tokens, push_secrets, users
from ams.storage.secrets import Secrets, key_file

NEXT = ".next"
"""Ending of the file of a key that is going to be used."""


def encrypt_anew(connection: Connection, old: Secrets, new: Secrets) -> int:
    """Encrypt all tokens and secrets with another key, in the connection's transaction; return how many tokens.

    What the installation signs with is forgotten: another one is made at its next use.

    Raises `Damaged` for a token or secret that cannot be read.
    """
    rows = connection.execute(select(users.c.id, users.c.token_sealed)).all()
    tokens = [(row.id, old.decrypt(row.token_sealed, row.id)) for row in rows]
    changed = [
        {"owner": owner, "digest": new.digest(token), "sealed": new.encrypt(token, owner)} for owner, token in tokens
    ]
    if changed:
        change = update(users).where(users.c.id == bindparam("owner"))
        change = change.values(token_digest=bindparam("digest"), token_sealed=bindparam("sealed"))
        connection.execute(change, changed)
    named = _encrypt_named_anew(connection, old, new)
    _encrypt_push_anew(connection, old, new)
    _encrypt_issuers_anew(connection, old, new)
    forget_all(connection)
    connection.execute(update(keys).values(fingerprint=new.fingerprint))
    return len(changed) + named


def _encrypt_named_anew(connection: Connection, old: Secrets, new: Secrets) -> int:
    of_users = select(named_tokens, users.c.name.label("user")).join(users, users.c.id == named_tokens.c.user_id)
    hashes = [(row.id, hash_of(old, row)) for row in connection.execute(of_users).all()]
    changed = [
        {"token": token, "known_by": new.digest(hashed), "anew": new.seal(hashed, token)} for token, hashed in hashes
    ]
    if changed:
        change = update(named_tokens).where(named_tokens.c.id == bindparam("token"))
        connection.execute(change.values(digest=bindparam("known_by"), sealed=bindparam("anew")), changed)
    return len(changed)


def _encrypt_issuers_anew(connection: Connection, old: Secrets, new: Secrets) -> None:
    rows = connection.execute(select(issuers).where(issuers.c.secret.is_not(None))).all()
    changed = [{"issuer": row.id, "anew": new.seal(secret_of(row, old), row.id)} for row in rows]
    if changed:
        change = update(issuers).where(issuers.c.id == bindparam("issuer"))
        connection.execute(change.values(secret=bindparam("anew")), changed)


def _encrypt_push_anew(connection: Connection, old: Secrets, new: Secrets) -> None:
    changed = [
        {
            "place": row.number,
            "anew": new.seal_push(old.open_push(row.sealed, row.subscription_id), row.subscription_id),
        }
        for row in connection.execute(select(push_secrets)).all()
    ]
    if changed:
        change = update(push_secrets).where(push_secrets.c.number == bindparam("place"))
        connection.execute(change.values(sealed=bindparam("anew")), changed)


async def settle(url: str, path: str, files: Disk | None = None) -> None:
    """Bring a change of the key at `path` to its end, or undo it, when a crash cut it short.

    To be called before the key is read, when there is a registry at `url`. Raises `Unusable`.
    """
    files = files or Disk()
    draft = path + NEXT
    if not files.exists(draft):
        return
    known = await _fingerprint(url)
    if known == Secrets(key_file(draft, create=False, files=files)).fingerprint:
        files.rename(draft, path)
    elif files.exists(path) and known == Secrets(key_file(path, create=False, files=files)).fingerprint:
        files.unlink(draft)
    files.sync_folder(os.path.dirname(path) or ".")


async def _fingerprint(url: str) -> str | None:
    database = Database(url, REGISTRY)
    try:
        return await database.read(lambda connection: connection.scalar(select(keys.c.fingerprint)))
    except RegistryUnavailable as error:
        raise Unusable(f"the registry's database is not usable: {reason(error.__cause__)}") from error
    finally:
        await database.close()
