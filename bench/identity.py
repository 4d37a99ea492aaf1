"""Many users in a registry, each with a named token and an identity at an issuer, and how fast they are found."""

import asyncio
import hashlib
import os
import random
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, create_engine, insert

from ams.core.clock import SystemClock
from ams.core.names import TokenId, UserId, new_uuid
from ams.storage.database.database import sqlite_url
from ams.storage.registry.logins import sealed
from ams.storage.registry.registry import Registry
from ams.storage.registry.tables import bindings, memberships, named_tokens, projects, users
from ams.storage.secrets import KEY_BYTES, Secrets, token_hash
from bench.processes import Failed

ISSUER = "https://issuer.example.org"
TOGETHER = 5_000
"""Users that are added at once."""

LookUp = Callable[[Registry, int], Coroutine[Any, Any, object]]
"""Finds one of the users, by number; None where it is not found."""


class Users:
    """A registry with many users."""

    def __init__(self, folder: Path, count: int) -> None:
        """Make the registry, and its users many at once: one after the other would take minutes."""
        folder.mkdir(parents=True)
        self.count = count
        self._path = folder / "registry.db"
        self._key = os.urandom(KEY_BYTES)
        asyncio.run(self._make())
        engine = create_engine(URL.create("sqlite", database=str(self._path)))
        for begin in range(0, count, TOGETHER):
            with engine.begin() as connection:
                _add(connection, Secrets(self._key), range(begin, min(count, begin + TOGETHER)))
        engine.dispose()

    def found_per_second(self, look_up: LookUp, seconds: float) -> float:
        """Return how many users a second are found, at random, one after the other, none of them in memory."""
        return asyncio.run(self._found_per_second(look_up, seconds))

    async def _found_per_second(self, look_up: LookUp, seconds: float) -> float:
        chosen, made = random.Random(self.count), 0
        registry = await self._open()
        began = time.perf_counter()
        while time.perf_counter() < began + seconds:
            if await look_up(registry, chosen.randrange(self.count)) is None:
                raise Failed("a user was not found")
            made += 1
        took = time.perf_counter() - began
        await registry.close()
        return made / took

    async def _make(self) -> None:
        registry = await self._open()
        await registry.close()

    async def _open(self) -> Registry:
        return await Registry.open(sqlite_url(str(self._path)), self._key, cache_size=1)


async def by_named_token(registry: Registry, number: int) -> object:
    """Find whom a named token stands for."""
    return await registry.users.principal(_token(number))


async def by_identity(registry: Registry, number: int) -> object:
    """Find the user of an identity."""
    return await registry.bindings.principal(ISSUER, _subject(number))


def _add(connection: Connection, secrets: Secrets, numbers: range) -> None:
    """Add users: each is a member of a project, and has a token of its own, a named one, and a binding."""
    now = SystemClock().wall()
    project = new_uuid()
    connection.execute(
        insert(projects).values(id=project, name=project, description="", created_on=now, modified_on=now)
    )
    made = [(number, UserId(new_uuid())) for number in numbers]
    connection.execute(insert(users), [_user(secrets, number, user, now) for number, user in made])
    connection.execute(
        insert(memberships), [{"user_id": user, "project_id": project, "roles": '["publisher"]'} for _, user in made]
    )
    connection.execute(insert(named_tokens), [_named_token(secrets, number, user, now) for number, user in made])
    connection.execute(
        insert(bindings),
        [
            {"user_id": user, "name": "bench", "issuer": ISSUER, "subject": _subject(number)}
            | {"by_login": False, "created_on": now}
            for number, user in made
        ],
    )


def _user(secrets: Secrets, number: int, user: UserId, now: int) -> dict[str, Any]:
    texts = dict.fromkeys(("email", "first_name", "last_name", "organization", "description"), "")
    own = _hex(f"own token {number}")
    return {
        "id": user,
        "name": f"user-{number}",
        "service_roles": "[]",
        "token_digest": secrets.digest(own),
        "token_sealed": secrets.encrypt(own, user),
        "created_on": now,
        "modified_on": now,
        **texts,
    }


def _named_token(secrets: Secrets, number: int, user: UserId, now: int) -> dict[str, Any]:
    identity = TokenId(new_uuid())
    known = sealed(secrets, token_hash(_token(number)), identity)
    return {"id": identity, "user_id": user, "name": "bench", "created_on": now, **known}


def _token(number: int) -> str:
    return _hex(f"named token {number}")


def _subject(number: int) -> str:
    return f"{_hex(f'subject {number}')}@issuer.example.org"


def _hex(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
