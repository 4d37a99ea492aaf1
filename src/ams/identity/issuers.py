"""Requests to issuers: where their keys are (OpenID Connect Discovery 1.0, 4), and about tokens (RFC 7662).

Introspection is the only way for opaque tokens, and shows at once that a token was withdrawn. Answers of issuers are
JSON objects that are read with care, and there is one error for all that is wrong with them.
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
from ams.core.coalescing import Shared
from ams.core.errors import TokenRefused
from ams.core.issuer import Issuer
from ams.core.names import IssuerName
from ams.core.urls import is_http_url
from ams.identity.tokens import shown
from ams.outgoing.client import HttpClient, RequestFailed
from ams.outgoing.guard import Guard
from ams.storage.document_cache import DocumentCache, Edition

logger = structlog.get_logger("ams.identity")

PATH = "/.well-known/openid-configuration"
KEPT = 3_600_000  # milliseconds that a description is used again
SECONDS = 5.0
MOST_BYTES = 1024 * 1024
FOR_TOKENS, FOR_PEOPLE = ("jwks_uri", "introspection_endpoint"), ("authorization_endpoint", "token_endpoint")
ACCEPT = {"Accept": "application/json"}
MOST_AT_ONCE = 100
"""Requests about unknown tokens to one issuer at a time: made-up ones must not cause a request each without limit."""
MOST_ACTIVE = 10_000  # tokens that are known to have been active
LOGGED_AGAIN = 30_000  # milliseconds before it is logged again that an issuer cannot be asked

Description = Mapping[str, str]  # URLs by their names; one that the issuer does not name is empty
Claims = Mapping[str, Any] | None  # an issuer's answer about a token; None: it is not active
_TokenKey = tuple[IssuerName, bytes]  # an issuer, and the SHA-256 of a token

_decoder = msgspec.json.Decoder(dict[str, Any])


class IssuerFailed(Exception):
    """An issuer does not do its part; the text says how, for administrators and a log, not for who logs in."""


def issuer_client(guard: Guard, tls: ssl.SSLContext | None = None) -> HttpClient:
    """Return a client for issuers: through `guard`, by https that `tls` or the system's CAs check."""
    return HttpClient(guard, tls, seconds=SECONDS, most_bytes=MOST_BYTES)


def read_object(data: bytes, what: str) -> dict[str, Any]:
    """Read a JSON object; raise `IssuerFailed`, which names `what`. Of a name that is there twice, the last counts."""
    try:
        return _decoder.decode(data)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors; the latter is for one that is too deep
        raise IssuerFailed(f"{what} is no JSON object") from None


class Discovery(DocumentCache[str, Issuer, Description]):
    """Asks issuers for their descriptions. URLs of an issuer's settings win, and need no description."""

    retry_ms = 0  # keys have a pause of their own

    def __init__(self, client: HttpClient, clock: Clock) -> None:
        super().__init__(clock.monotonic)
        self._client = client

    async def jwks_url(self, issuer: Issuer) -> str:
        """Return where the keys are; raise `IssuerFailed`."""
        return issuer.jwks_url or await self._described(issuer, "jwks_uri")

    async def introspection_url(self, issuer: Issuer) -> str:
        """Return where to ask about tokens; raise `IssuerFailed`."""
        return issuer.introspection_url or await self._described(issuer, "introspection_endpoint")

    async def login_urls(self, issuer: Issuer) -> tuple[str, str]:
        """Return where people log in, and where their code is exchanged for a token; raise `IssuerFailed`."""
        return await self._described(issuer, "authorization_endpoint"), await self._described(issuer, "token_endpoint")

    async def _described(self, issuer: Issuer, name: str) -> str:
        description = await self.document(issuer)
        if not description.get(name):
            raise IssuerFailed(f"its description has no {name}")
        return description[name]

    def _key_of(self, issuer: Issuer) -> str:
        return issuer.url

    async def _fetch(self, issuer: Issuer, before: Description | None) -> Edition[Description]:
        url = issuer.url
        try:
            data = await self._client.get(url.rstrip("/") + PATH, ACCEPT)
        except RequestFailed as error:
            raise IssuerFailed(f"its description cannot be had: {error}") from error
        said = read_object(data, "its description")
        if said.get("issuer") != url:  # else one issuer could pass its keys off as another's (4.3)
            raise IssuerFailed(f"its description is of another issuer: {shown(str(said.get('issuer')))}")
        found = {name: _url(said, name, url) for name in FOR_TOKENS}
        for name in FOR_PEOPLE:  # a mistake there is no reason to refuse tokens
            with contextlib.suppress(IssuerFailed):
                found[name] = _url(said, name, url)
        ends_at = self._now() + KEPT
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
    """Asks issuers about tokens. No answer is remembered, but all who ask about one token wait for one."""

    def __init__(self, client: HttpClient, discovery: Discovery, clock: Clock) -> None:
        """`discovery` belongs to the keys, which close it."""
        self._client, self._discovery, self._clock = client, discovery, clock
        self._going_on: Shared[_TokenKey, Claims] = Shared()
        self._active: LruCache[_TokenKey, bool] = LruCache(MOST_ACTIVE)
        self._asked: Counter[IssuerName] = Counter()
        self._log_at: dict[IssuerName, int] = {}

    async def ask(self, issuer: Issuer, token: str) -> Claims:
        """Return the issuer's response about a token; None when it is not active. Raises `TokenRefused` (`later`)."""
        key = (issuer.name, hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest())
        if key in self._going_on or self._active.peek(key):
            answer = await self._going_on.result(key, lambda: self._answer(issuer, token))
        else:
            if self._asked[issuer.name] >= MOST_AT_ONCE:
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
        """Stop asking."""
        await self._going_on.close()

    async def _answer(self, issuer: Issuer, token: str) -> Claims:
        try:
            said = read_object(await self._posted(issuer, token), "its answer about a token")
            if not isinstance(said.get("active"), bool):  # RFC 7662, 2.2
                raise IssuerFailed("its answer about a token does not say whether it is active")
        except IssuerFailed as error:
            now = self._clock.monotonic()
            if now >= self._log_at.get(issuer.name, now):
                self._log_at[issuer.name] = now + LOGGED_AGAIN
                logger.warning("issuer.not_asked", issuer=issuer.name, reason=str(error))
            raise _cannot_be_asked(issuer) from error
        return said if said["active"] else None

    async def _posted(self, issuer: Issuer, token: str) -> bytes:
        url = await self._discovery.introspection_url(issuer)
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
