"""Discovery: where an issuer has its keys, and answers about tokens (OpenID Connect Discovery 1.0, 4).

What issuers answer is JSON objects that are read with care, and there is one error for all that is wrong with them.
"""

import contextlib
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ams.core.cache import ExpiringCache
from ams.core.clock import Clock
from ams.core.issuer import Issuer
from ams.core.urls import is_http_url
from ams.identity.tokens import shown
from ams.outgoing.client import HttpClient, RequestFailed
from ams.outgoing.guard import Guard
from ams.outgoing.sharing import Shared

PATH = "/.well-known/openid-configuration"
KEPT = 3_600_000
"""Milliseconds that a description is used again."""
MOST_KEPT = 1000
"""Descriptions."""
SECONDS = 5.0
"""For one answer of an issuer."""
MOST_BYTES = 1024 * 1024
"""Of one answer."""
FOR_TOKENS, FOR_PEOPLE = ("jwks_uri", "introspection_endpoint"), ("authorization_endpoint", "token_endpoint")
ACCEPT = {"Accept": "application/json"}

Description = Mapping[str, str]
"""URLs by their names; one that the issuer does not name is empty."""

_decoder = msgspec.json.Decoder(dict[str, Any])


class IssuerFailed(Exception):
    """An issuer does not do its part; the text says how, for administrators and a log, not for who logs in."""


def issuer_client(guard: Guard, tls: ssl.SSLContext | None = None) -> HttpClient:
    """Return what issuers are asked with: through `guard`, by https that is trusted by `tls` or the system's CAs."""
    return HttpClient(guard, tls, seconds=SECONDS, most_bytes=MOST_BYTES)


def read_object(data: bytes, what: str) -> dict[str, Any]:
    """Read a JSON object; raise `IssuerFailed`, which says that `what` is none. Of a name that is there twice, the last
    counts.
    """
    try:
        return _decoder.decode(data)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors; the latter is for one that is too deep
        raise IssuerFailed(f"{what} is no JSON object") from None


class Discovery:
    """Asks issuers for their descriptions. What an issuer's settings say wins, and needs no description."""

    def __init__(self, client: HttpClient, clock: Clock) -> None:
        self._client = client
        self._known: ExpiringCache[str, Description] = ExpiringCache(MOST_KEPT, KEPT, clock.monotonic)
        self._going_on: Shared[str, Description] = Shared()

    async def jwks_url(self, issuer: Issuer) -> str:
        """Return where the keys are; raise `IssuerFailed`."""
        return issuer.jwks_url or await self._described(issuer, "jwks_uri")

    async def introspection_url(self, issuer: Issuer) -> str:
        """Return where to ask about tokens; raise `IssuerFailed`."""
        return issuer.introspection_url or await self._described(issuer, "introspection_endpoint")

    async def login_urls(self, issuer: Issuer) -> tuple[str, str]:
        """Return where people log in, and where the code they bring is exchanged for a token; raise `IssuerFailed`."""
        return await self._described(issuer, "authorization_endpoint"), await self._described(issuer, "token_endpoint")

    def forget(self, issuer: Issuer) -> None:
        """Ask for the description again the next time: what it led to was not there."""
        self._known.discard(issuer.url)

    async def close(self) -> None:
        """Stop asking."""
        await self._going_on.close()

    async def _described(self, issuer: Issuer, name: str) -> str:
        known = self._known.get(issuer.url)
        if known is None:
            known = await self._going_on.result(issuer.url, lambda: self._asked(issuer.url))
        if not known.get(name):
            raise IssuerFailed(f"its description has no {name}")
        return known[name]

    async def _asked(self, url: str) -> Description:
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
        self._known.put(url, found)
        return found


def _url(said: dict[str, Any], name: str, issuer_url: str) -> str:
    """Return a URL of a description, empty if it has none of that name; an https issuer has only such."""
    found = said.get(name, "")
    if found == "":
        return ""
    if not isinstance(found, str) or not is_http_url(found):
        raise IssuerFailed(f"its description has a {name} that is no http or https URL without credentials")
    if urlsplit(issuer_url).scheme == "https" and urlsplit(found).scheme != "https":
        raise IssuerFailed(f"its description has a {name} that is not https, as it is itself")
    return found
