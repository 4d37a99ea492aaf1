"""Identity, assembled: trusted issuers, their clients, and logins by their tokens."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

import msgspec
import structlog

from ams.access.logins import KeyLogins, Logins
from ams.app.wiring.engines import Engines
from ams.core.errors import AmsError
from ams.core.issuer import Issuer, read_issuers
from ams.core.settings import Pairs, Settings
from ams.core.telemetry import SCOPE
from ams.http.asgi import client_address
from ams.http.console import ConsoleLogin
from ams.identity.issuer_keys import IssuerKeyCache
from ams.identity.issuers import LOGIN_URLS, Discovery, Introspection, IssuerFailed, issuer_client
from ams.identity.verifier import CachedToken, Verifier
from ams.outgoing.address_guard import Guard, Network, networks, trust
from ams.outgoing.client import HttpClient
from ams.service.issuers import Issuers
from ams.storage.audit.trail import Trail
from ams.storage.database.invalidation import ISSUERS, Cache

logger = structlog.get_logger("ams.identity")

MAX_CACHED_TOKENS = 50_000  # cached verified tokens


class Trusted(NamedTuple):
    """Parts of identity created before anything is opened, so that bad settings stop a start at once."""

    issuers: tuple[Issuer, ...]  # from the settings
    client: HttpClient


class Identity:
    """Parts of identity. Issuers' keys are stored in the data folder; a change of issuers drops verified tokens."""

    def __init__(
        self, settings: Settings, trusted: Trusted, engines: Engines, trail: Trail, proxies: Sequence[Network]
    ) -> None:
        registry, clock, client = engines.registry, engines.clock, trusted.client
        self._discovery = Discovery(client, clock)
        self._keys = IssuerKeyCache(client, engines.folder.issuers, clock, self._discovery)
        self._introspection = Introspection(client, self._discovery, clock)
        self.issuers = Issuers(registry, trusted.issuers, self._keys)
        remembered: Cache[bytes, CachedToken] = registry.invalidations.new_cache(MAX_CACHED_TOKENS)
        leeway = settings.issuers_leeway
        verifier = Verifier(self.issuers, self._keys, self._introspection, clock, leeway, remembered)
        registry.invalidations.on(ISSUERS, verifier.forget)
        registry.invalidations.on(ISSUERS, self._keys.refetch_all)
        keys_of_tokens = KeyLogins(registry, clock, leeway)

        def address() -> str:
            scope = SCOPE.get()
            return client_address(scope, proxies) if scope is not None else ""

        self.logins = Logins(registry, self.issuers, verifier, keys_of_tokens, trail, clock, address)

    async def console_logins(self, clients: Pairs) -> Sequence[ConsoleLogin]:
        """Return the login pages of the console; `clients` has its client ids by issuer name."""
        by_name = {str(each.name): each for each in await self.issuers.all()}
        return [await self._console_login(by_name[name], client) for name, client in clients if name in by_name]

    async def _console_login(self, issuer: Issuer, client: str) -> ConsoleLogin:
        login = ConsoleLogin(issuer.name, issuer.url, client)
        try:
            authorization, token = [await self._discovery.url(issuer, name) for name in LOGIN_URLS]
        except IssuerFailed as error:
            await logger.awarning("console.issuer_away", issuer=issuer.name, reason=str(error))
            return msgspec.structs.replace(login, error="The issuer does not say now where to log in")
        return msgspec.structs.replace(login, authorization_endpoint=authorization, token_endpoint=token)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Log which issuers are accepted and which are not; close the clients when the block ends."""
        with contextlib.suppress(AmsError):  # an unreachable registry is reported elsewhere
            if believed := {each.issuer.name: each.source for each in await self.issuers.list()}:
                await logger.ainfo("issuers", believed=believed)
            await self.issuers.warn_of_shadowed()
        try:
            yield
        finally:
            for each in (self.logins, self._introspection, self._keys):
                await each.close()


def trusted_by(settings: Settings) -> Trusted:
    """Return the issuers and keys trusted by the settings. Raises `Unusable` with one line."""
    guard = Guard(networks(settings.issuers_allow, "issuers_allow"))
    tls = trust(settings.issuers_ca_file, "issuers_ca_file") if settings.issuers_ca_file else None
    issuers = read_issuers(settings.issuers_file) if settings.issuers_file else ()
    return Trusted(issuers, issuer_client(guard, tls))
