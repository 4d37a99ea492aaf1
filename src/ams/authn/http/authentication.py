"""Authentication of management requests: management key, named keys, service administrators of AMS (15, A15)."""

import asyncio
import hashlib
import hmac
import time
from collections.abc import Sequence
from typing import NamedTuple

from ams.authn.store import Store
from ams.authn.values import READ
from ams.client import AsyncClient, errors, wire
from ams.core.cache import ExpiringCache
from ams.core.errors import NotAuthenticated, RateLimited, ServiceFailed, ServiceTimeout
from ams.core.rate import LoginLimit
from ams.http.asgi import Header, query_value

WRONG_CREDENTIALS = "Wrong Credentials"
CACHE_SECONDS = 10.0  # how long an answer of AMS about a token is cached
MAX_CACHED_TOKENS = 1_000  # cached tokens
REQUEST_SECONDS = 5.0
MAX_KEY_CHARACTERS = 1_024  # characters; a longer key is refused without asking AMS
SERVICE_ADMIN = "service_admin"
MANAGEMENT_KEY = "management key"  # actor of the management key in the audit log


class Caller(NamedTuple):
    """A caller and its rights: to read, to write, and to manage keys (which includes reading the audit log)."""

    name: str
    looks: bool = True
    changes: bool = False
    keys: bool = False


class AmsUsers:
    """Asks AMS for the user of a token, and caches the answer."""

    def __init__(self, endpoint: str, ca: str | None = None) -> None:
        self._endpoint, self._ca = endpoint, ca
        self._known: ExpiringCache[bytes, tuple[tuple[str, bool] | None]] = ExpiringCache(
            MAX_CACHED_TOKENS, CACHE_SECONDS, lambda: time.monotonic()
        )

    async def find_user(self, token: str) -> tuple[str, bool] | None:
        """Return the user's name and whether it is a service administrator; None for an unknown token."""
        digest = hashlib.sha256(token.encode()).digest()
        if (known := self._known.get(digest)) is not None:
            return known[0]
        found = await self._ask(token)
        self._known.put(digest, (found,))
        return found

    async def _ask(self, token: str) -> tuple[str, bool] | None:
        try:
            client = AsyncClient(self._endpoint, token, ca=self._ca, retry=None)
            async with asyncio.timeout(REQUEST_SECONDS), client:
                user = await client.call(wire.get_profile())
        except TimeoutError:
            raise ServiceTimeout("AMS did not say in time whose key this is") from None
        except errors.Unavailable as error:
            raise ServiceFailed("AMS cannot say now whose key this is") from error
        except errors.Refused:
            return None
        except errors.ClientError as error:
            raise ServiceFailed("AMS cannot be asked whose key this is") from error
        return user.name, SERVICE_ADMIN in user.service_roles


class ManagementGate:
    """Admits management requests. Blocks addresses with many failures for a while, except for the management key."""

    def __init__(self, store: Store, management_key: str, attempts: LoginLimit, users: AmsUsers | None = None) -> None:
        self._store, self._attempts, self._users = store, attempts, users
        self._management_key = _digest(management_key)

    async def admit(self, headers: Sequence[Header], query: bytes, address: str) -> Caller:
        """Return the caller, possibly without rights. Raises `RateLimited`, `NotAuthenticated`, `ServiceFailed`."""
        given = key_of(headers, query)
        if hmac.compare_digest(_digest(given), self._management_key):
            return Caller(MANAGEMENT_KEY, changes=True, keys=True)  # valid even if this address is blocked
        self._attempts.check(address)
        if not given:
            raise NotAuthenticated(WRONG_CREDENTIALS)
        if (caller := await self._caller(given)) is None:
            self._attempts.count_failure(address)
            raise NotAuthenticated(WRONG_CREDENTIALS)
        return caller

    async def knows(self, headers: Sequence[Header], query: bytes, address: str) -> bool:
        """Return whether a request has a valid key. A wrong one counts as a failure, without an error (contract 3)."""
        if not key_of(headers, query):
            return False
        try:
            return (await self.admit(headers, query, address)).looks
        except (NotAuthenticated, RateLimited, ServiceFailed):
            return False

    async def _caller(self, given: str) -> Caller | None:
        if len(given) > MAX_KEY_CHARACTERS or not given.isascii() or not given.isprintable():
            return None
        if (key := await self._store.keys.find(given)) is not None:
            return Caller(f"key {key.name}", changes=key.scope != READ)
        user = await self._users.find_user(given) if self._users is not None else None
        if user is None:
            return None
        name, administers = user
        return Caller(name, looks=administers, changes=administers, keys=administers)


def key_of(headers: Sequence[Header], query: bytes) -> str:
    """Return the key of a request: `x-api-key`, else `Authorization: Bearer`, else `?key=`; empty without any."""
    for name, value in headers:
        if name == b"x-api-key" and value:
            return value.decode("latin-1")
    for name, value in headers:
        scheme, _, token = value.partition(b" ")
        if name == b"authorization" and scheme.lower() == b"bearer" and token.strip():
            return token.strip().decode("latin-1")
    return query_value(query, "key") or ""


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
