"""Identity, assembled: which issuers are trusted, how they are asked, and who logs in by their tokens."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
import structlog

from ams.access.logins import KeyLogins, Logins
from ams.app.wiring.engines import Engines
from ams.core.errors import AmsError
from ams.core.issuer import Issuer, read_issuers
from ams.core.observing import SCOPE
from ams.core.settings import Pairs, Settings
from ams.http.asgi import client_address
from ams.http.console import ConsoleLogin
from ams.identity.issuers import Discovery, Introspection, IssuerFailed, issuer_client
from ams.identity.keys import Keys
from ams.identity.verifier import CachedToken, Verifier
from ams.outgoing.client import HttpClient
from ams.outgoing.guard import Guard, Network, networks, trust
from ams.service.issuers import Issuers
from ams.storage.audit.trail import Trail
from ams.storage.database.invalidation import ISSUERS, Cache

logger = structlog.get_logger("ams.identity")

TOKENS = 50_000  # tokens that are remembered as verified


@dataclass(frozen=True, slots=True)
class Trusted:
    """Parts of identity that are made before anything is opened, so that bad settings stop a start at once."""

    issuers: tuple[Issuer, ...]  # those of the settings
    client: HttpClient


@dataclass(frozen=True, slots=True)
class Identity:
    """Parts of identity."""

    issuers: Issuers
    logins: Logins
    introspection: Introspection
    keys: Keys
    discovery: Discovery

    async def console_logins(self, clients: Pairs) -> Sequence[ConsoleLogin]:
        """Return where people log in to the console; `clients` are its client ids by the names of issuers."""
        by_name = {str(each.name): each for each in await self.issuers.all()}
        return [await self._console_login(by_name[name], client) for name, client in clients if name in by_name]

    async def _console_login(self, issuer: Issuer, client: str) -> ConsoleLogin:
        login = ConsoleLogin(issuer.name, issuer.url, client)
        try:
            authorization, token = await self.discovery.login_urls(issuer)
        except IssuerFailed as error:
            await logger.awarning("console.issuer_away", issuer=issuer.name, reason=str(error))
            return msgspec.structs.replace(login, error="The issuer does not say now where to log in")
        return msgspec.structs.replace(login, authorization_endpoint=authorization, token_endpoint=token)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Say which issuers count and which do not, and let go of what is asked of others when the block ends."""
        with contextlib.suppress(AmsError):  # a registry that does not answer now has others say so
            believed = {each.issuer.name: each.source for each in await self.issuers.list()}
            if believed:
                await logger.ainfo("issuers", believed=believed)
            await self.issuers.warn_of_shadowed()
        try:
            yield
        finally:
            for each in (self.logins, self.introspection, self.keys):
                await each.close()


def trusted_by(settings: Settings) -> Trusted:
    """Return whom the settings trust; raise `Unusable` with one line for what cannot be."""
    guard = Guard(networks(settings.issuers_allow, "issuers_allow"))
    tls = trust(settings.issuers_ca_file, "issuers_ca_file") if settings.issuers_ca_file else None
    issuers = read_issuers(settings.issuers_file) if settings.issuers_file else ()
    return Trusted(issuers, issuer_client(guard, tls))


def identity_of(
    settings: Settings, trusted: Trusted, engines: Engines, trail: Trail, proxies: Sequence[Network]
) -> Identity:
    """Assemble identity. Keys of issuers are in the data folder; a change of issuers forgets verified tokens."""
    registry, clock, client = engines.registry, engines.clock, trusted.client
    discovery = Discovery(client, clock)
    keys = Keys(client, engines.folder.issuers, clock, discovery)
    introspection = Introspection(client, discovery, clock)
    issuers = Issuers(registry, trusted.issuers, keys)
    remembered: Cache[bytes, CachedToken] = registry.invalidations.new_cache(TOKENS)
    verifier = Verifier(issuers, keys, introspection, clock, settings.issuers_leeway, remembered)
    registry.invalidations.on(ISSUERS, verifier.forget)
    registry.invalidations.on(ISSUERS, keys.look_again)
    keys_of_tokens = KeyLogins(registry, clock, settings.issuers_leeway)
    logins = Logins(registry, issuers, verifier, keys_of_tokens, trail, clock, partial(_address, proxies))
    return Identity(issuers, logins, introspection, keys, discovery)


def _address(proxies: Sequence[Network]) -> str:
    scope = SCOPE.get()
    return client_address(scope, proxies) if scope is not None else ""
