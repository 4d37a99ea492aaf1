"""Requests to issuers: URLs of their keys (OpenID Connect Discovery 1.0, 4), and token introspection (RFC 7662).

Introspection is the only way to check opaque tokens, and shows a revocation at once. Answers are JSON objects, parsed
strictly: every fault is one error.
"""

import asyncio
import base64
import contextlib
import hashlib
import ssl
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec
import structlog

from ams.core.cache import LruCache
from ams.core.clock import Clock
from ams.core.coalescing import SingleFlight
from ams.core.errors import TokenRefused
from ams.core.issuer import Issuer
from ams.core.names import IssuerName
from ams.core.urls import is_http_url
from ams.identity.tokens import quote_claim
from ams.outgoing.address_guard import Guard
from ams.outgoing.client import HttpClient, RequestFailed
from ams.storage.document_cache import DocumentCache, Edition

logger = structlog.get_logger("ams.identity")

PATH = "/.well-known/openid-configuration"
DESCRIPTION_TTL_MS = 3_600_000  # milliseconds until a description is fetched again
REQUEST_SECONDS = 5.0
MAX_ANSWER_BYTES = 1024 * 1024
TOKEN_URLS, LOGIN_URLS = ("jwks_uri", "introspection_endpoint"), ("authorization_endpoint", "token_endpoint")
ACCEPT = {"Accept": "application/json"}
MAX_CONCURRENT_REQUESTS = 100
"""Concurrent introspection requests to one issuer: made-up tokens must not cause unlimited requests."""
MAX_CACHED_ACTIVE = 10_000  # remembered tokens that have been active
LOG_INTERVAL_MS = 30_000  # milliseconds between two log lines that an issuer cannot be reached

Description = Mapping[str, str]  # URLs by name; empty if the issuer does not have it
Claims = Mapping[str, Any] | None  # an issuer's answer about a token; None: inactive
_TokenKey = tuple[IssuerName, bytes]  # an issuer, and the SHA-256 of a token

_decoder = msgspec.json.Decoder(dict[str, Any])


class IssuerFailed(Exception):
    """An issuer gave no usable answer. The text is for administrators and logs, not for clients."""


def issuer_client(guard: Guard, tls: ssl.SSLContext | None = None) -> HttpClient:
    """Return an HTTP client for issuers: through `guard`, by https that `tls` or the system's CAs verify."""
    return HttpClient(guard, tls, seconds=REQUEST_SECONDS, most_bytes=MAX_ANSWER_BYTES)


def read_object(data: bytes, what: str) -> dict[str, Any]:
    """Parse a JSON object. Raises `IssuerFailed`, which names `what`. The last of duplicate names counts."""
    try:
        return _decoder.decode(data)
    except (ValueError, RecursionError):  # msgspec raises ValueError; too deep nesting raises RecursionError
        raise IssuerFailed(f"{what} is no JSON object") from None


class Discovery(DocumentCache[str, Issuer, Description]):
    """Caches descriptions of issuers. URLs in an issuer's settings take precedence and need no description."""

    retry_ms = 0  # keys have their own retry delay

    def __init__(self, client: HttpClient, clock: Clock) -> None:
        super().__init__(clock.monotonic)
        self._client = client

    async def url(self, issuer: Issuer, name: str) -> str:
        """Return one of `TOKEN_URLS` or `LOGIN_URLS`. Raises `IssuerFailed`."""
        configured = {"jwks_uri": issuer.jwks_url, "introspection_endpoint": issuer.introspection_url}
        if not (found := configured.get(name) or (await self.document(issuer)).get(name)):
            raise IssuerFailed(f"its description has no {name}")
        return found

    def _key_of(self, issuer: Issuer) -> str:
        return issuer.url

    async def _fetch(self, issuer: Issuer, before: Description | None) -> Edition[Description]:
        url = issuer.url
        try:
            data = await self._client.get(url.rstrip("/") + PATH, ACCEPT)
        except RequestFailed as error:
            raise IssuerFailed(f"its description cannot be had: {error}") from error
        said = read_object(data, "its description")
        if said.get("issuer") != url:  # otherwise an issuer could serve its keys as another's (4.3)
            raise IssuerFailed(f"its description is of another issuer: {quote_claim(str(said.get('issuer')))}")
        found = {name: _url(said, name, url) for name in TOKEN_URLS}
        for name in LOGIN_URLS:  # a mistake here is no reason to refuse tokens
            with contextlib.suppress(IssuerFailed):
                found[name] = _url(said, name, url)
        ends_at = self._now() + DESCRIPTION_TTL_MS
        return Edition(found, ends_at, ends_at)


def _url(said: dict[str, Any], name: str, issuer_url: str) -> str:
    found = said.get(name, "")
    if found == "":
        return ""
    if not isinstance(found, str) or not is_http_url(found):
        raise IssuerFailed(f"its description has a {name} that is no http or https URL without credentials")
    if urlsplit(issuer_url).scheme == "https" and urlsplit(found).scheme != "https":
        raise IssuerFailed(f"its description has a {name} that is not https, as it is itself")
    return found


class Introspection:
    """Asks issuers about tokens. Answers are not cached; concurrent requests about one token share one answer."""

    def __init__(self, client: HttpClient, discovery: Discovery, clock: Clock) -> None:
        """Create an introspection. `discovery` is closed by the keys, which own it."""
        self._client, self._discovery, self._clock = client, discovery, clock
        self._going_on: SingleFlight[_TokenKey, Claims] = SingleFlight()
        self._active: LruCache[_TokenKey, bool] = LruCache(MAX_CACHED_ACTIVE)
        self._asked: Counter[IssuerName] = Counter()
        self._log_at: dict[IssuerName, int] = {}

    async def ask(self, issuer: Issuer, token: str) -> Claims:
        """Return the issuer's answer about a token; None: inactive. Raises `TokenRefused` (`later`)."""
        key = (issuer.name, hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest())
        if key in self._going_on or self._active.peek(key):
            answer = await self._going_on.result(key, lambda: self._answer(issuer, token))
        else:
            if self._asked[issuer.name] >= MAX_CONCURRENT_REQUESTS:
                raise _cannot_be_asked(issuer)
            self._asked[issuer.name] += 1
            task = self._going_on.start(key, lambda: self._answer(issuer, token))
            task.add_done_callback(lambda _: self._asked.subtract([issuer.name]))
            answer = await asyncio.shield(task)
        if answer is None:
            self._active.discard(key)
        else:
            self._active.put(key, True)
        return answer

    async def close(self) -> None:
        """Stop sending requests."""
        await self._going_on.close()

    async def _answer(self, issuer: Issuer, token: str) -> Claims:
        try:
            said = read_object(await self._post(issuer, token), "its answer about a token")
            if not isinstance(said.get("active"), bool):  # RFC 7662, 2.2
                raise IssuerFailed("its answer about a token does not say whether it is active")
        except IssuerFailed as error:
            now = self._clock.monotonic()
            if now >= self._log_at.get(issuer.name, now):
                self._log_at[issuer.name] = now + LOG_INTERVAL_MS
                logger.warning("issuer.not_asked", issuer=issuer.name, reason=str(error))
            raise _cannot_be_asked(issuer) from error
        return said if said["active"] else None

    async def _post(self, issuer: Issuer, token: str) -> bytes:
        url = await self._discovery.url(issuer, "introspection_endpoint")
        form = urlencode({"token": token, "token_type_hint": "access_token"}, errors="replace").encode()
        # Each part is form-encoded (RFC 6749, 2.3.1).
        ours = f"{quote_plus(issuer.client_id)}:{quote_plus(issuer.client_secret)}"
        headers = {**ACCEPT, "Authorization": f"Basic {base64.b64encode(ours.encode()).decode()}"}
        try:
            return await self._client.post(url, form, "application/x-www-form-urlencoded", headers)
        except RequestFailed as error:
            raise IssuerFailed(f"it does not answer about tokens: {error}") from error


def _cannot_be_asked(issuer: Issuer) -> TokenRefused:
    return TokenRefused(f"Issuer {issuer.name} cannot be asked about the token now", later=True)
