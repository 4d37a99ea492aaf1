"""Introspection: asking an issuer whether a token is good, and whose it is (RFC 7662).

It is the only way for tokens that say nothing by themselves, and shows at once that a token was withdrawn.
"""

import asyncio
import base64
import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus, urlencode

import structlog

from ams.core.cache import LruCache
from ams.core.clock import Clock
from ams.core.errors import TokenRefused
from ams.core.issuer import Issuer
from ams.core.names import IssuerName
from ams.identity.discovery import ACCEPT, Discovery, IssuerFailed, read_object
from ams.outgoing.client import HttpClient, RequestFailed
from ams.outgoing.sharing import Shared

logger = structlog.get_logger("ams.identity")

MOST_AT_ONCE = 100
"""Requests to one issuer at the same time: made-up tokens must not cause a request each without limit.

Those that were active the last time are not counted: no valid token is refused because of made-up ones.
"""
MOST_ACTIVE = 10_000
"""Tokens that are known to have been active."""
LOGGED_AGAIN = 30_000
"""Milliseconds before it is logged again that an issuer cannot be asked."""
_FORM = "application/x-www-form-urlencoded"

_Key = tuple[IssuerName, bytes]
"""An issuer, and the SHA-256 of a token."""
Claims = Mapping[str, Any] | None
"""What an issuer says of a token; None: it is good for nothing."""


class Introspection:
    """Asks issuers about tokens. No answer is remembered, but all who ask about one token wait for one."""

    def __init__(self, client: HttpClient, discovery: Discovery, clock: Clock) -> None:
        """`discovery` belongs to the keys, which close it."""
        self._client = client
        self._discovery = discovery
        self._clock = clock
        self._going_on: Shared[_Key, Claims] = Shared()
        self._active: LruCache[_Key, bool] = LruCache(MOST_ACTIVE)
        self._asked: Counter[IssuerName] = Counter()
        self._log_at: dict[IssuerName, int] = {}

    async def ask(self, issuer: Issuer, token: str) -> Claims:
        """Return the issuer's response about a token, with all its members; None when the token is not active.

        Raises `TokenRefused` (`later`) when the issuer does not answer, or not as it should.
        """
        key = (issuer.name, hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest())
        if key in self._going_on or self._active.peek(key):
            answer = await self._going_on.result(key, lambda: self._answer(issuer, token))
        else:
            answer = await self._ask_of_unknown(issuer, token, key)
        self._note(key, is_active=answer is not None)
        return answer

    async def close(self) -> None:
        """Stop asking."""
        await self._going_on.close()

    async def _ask_of_unknown(self, issuer: Issuer, token: str, key: _Key) -> Claims:
        if self._asked[issuer.name] >= MOST_AT_ONCE:
            raise _cannot_be_asked(issuer)
        self._asked[issuer.name] += 1
        task = self._going_on.start(key, lambda: self._answer(issuer, token))
        task.add_done_callback(lambda _: self._asked.subtract([issuer.name]))
        return await asyncio.shield(task)

    async def _answer(self, issuer: Issuer, token: str) -> Claims:
        try:
            return _read(await self._posted(issuer, token))
        except IssuerFailed as error:
            self._log(issuer, str(error))
            raise _cannot_be_asked(issuer) from error

    def _note(self, key: _Key, *, is_active: bool) -> None:
        if is_active:
            self._active.put(key, True)
        else:
            self._active.discard(key)

    async def _posted(self, issuer: Issuer, token: str) -> bytes:
        url = await self._discovery.introspection_url(issuer)
        form = urlencode({"token": token, "token_type_hint": "access_token"}, errors="replace").encode()
        try:
            return await self._client.post(url, form, _FORM, {**ACCEPT, "Authorization": _basic(issuer)})
        except RequestFailed as error:
            raise IssuerFailed(f"it does not answer about tokens: {error}") from error

    def _log(self, issuer: Issuer, reason: str) -> None:
        now = self._clock.monotonic()
        if now >= self._log_at.get(issuer.name, now):
            self._log_at[issuer.name] = now + LOGGED_AGAIN
            logger.warning("issuer.not_asked", issuer=issuer.name, reason=reason)


def _read(data: bytes) -> Claims:
    """Read an answer (RFC 7662, 2.2)."""
    said = read_object(data, "its answer about a token")
    if not isinstance(said.get("active"), bool):
        raise IssuerFailed("its answer about a token does not say whether it is active")
    return said if said["active"] else None


def _basic(issuer: Issuer) -> str:
    """Return our credentials, each part form-encoded (RFC 6749, 2.3.1)."""
    text = f"{quote_plus(issuer.client_id)}:{quote_plus(issuer.client_secret)}"
    return f"Basic {base64.b64encode(text.encode()).decode()}"


def _cannot_be_asked(issuer: Issuer) -> TokenRefused:
    return TokenRefused(f"Issuer {issuer.name} cannot be asked about the token now", later=True)
