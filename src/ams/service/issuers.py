"""Administration of OpenID Connect issuers, from the settings and the registry, and of bindings."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import structlog

from ams.access.admission import Caller
from ams.core.errors import AlreadyExists, Conflict, InvalidInput, NotAllowed, NotFound, refuse_if
from ams.core.issuer import Issuer, validate
from ams.core.names import BindingName, IssuerName, UserName, checked_name
from ams.identity.issuer_keys import IssuerKeyCache, KeysState
from ams.service.lookup import find_managed_user, find_user, require_found
from ams.storage.registry.records import Binding
from ams.storage.registry.registry import Registry

KEPT = "***"  # replaces a secret in answers; in a request it keeps the present secret
MAX_SUBJECT_LENGTH = 255
_ISSUER = re.compile(r"https?://[!-~]{1,2000}")
T = TypeVar("T")
logger = structlog.get_logger("ams.issuers")


class ListedIssuer(NamedTuple):
    """An issuer with its source, `settings` or `registry`."""

    issuer: Issuer
    source: str
    keys: KeysState


class Issuers:
    """Accepted token issuers. An issuer from the settings overrides one with the same name or URL."""

    def __init__(self, registry: Registry, given: Sequence[Issuer], keys: IssuerKeyCache) -> None:
        self._registry, self._given, self._keys = registry, given, keys  # `given` are those of the settings

    async def all(self) -> Sequence[Issuer]:
        """Return all accepted issuers, those of the settings first."""
        names, urls = {each.name for each in self._given}, {each.url for each in self._given}
        stored = await self._registry.issuers.all()
        return [*self._given, *(each for each in stored if each.name not in names and each.url not in urls)]

    async def by_url(self, url: str) -> Issuer | None:
        """Return the issuer with this URL; None: unknown."""
        return next((each for each in await self.all() if each.url == url), None)

    async def for_opaque_tokens(self) -> Issuer | None:
        """Return the issuer for token introspection of opaque tokens; None: there is none."""
        return next((each for each in await self.all() if each.takes_opaque), None)

    async def list(self) -> Sequence[ListedIssuer]:
        """Return all issuers with the state of their keys."""
        return [self._to_listed(each) for each in await self.all()]

    async def away(self) -> Sequence[ListedIssuer]:
        """Return issuers whose keys could not be fetched the last time."""
        return [self._to_listed(each) for each in await self.all() if self._keys.away(each)]

    async def show(self, name: IssuerName) -> ListedIssuer:
        """Return an issuer; raise `NotFound` when there is none of this name."""
        return self._to_listed(_require(next((each for each in await self.all() if each.name == name), None)))

    async def create(self, caller: Caller, issuer: Issuer) -> ListedIssuer:
        """Accept the tokens of another issuer; raise `NotAllowed`, `InvalidInput`, `AlreadyExists`, `Conflict`."""
        _require_full(caller)
        checked_name("issuer", issuer.name)
        issuer = validate(issuer)
        refuse_if(issuer.client_secret == KEPT, "client_secret must be the secret itself: there is none to keep")
        _check_taken(issuer, others=await self.all())
        await self._registry.issuers.create(issuer, caller.user)
        return self._to_listed(issuer)

    async def update(self, caller: Caller, issuer: Issuer) -> ListedIssuer:
        """Replace an issuer, its secret unless that is `***`. Raises as `create`, `NotFound`, and `Conflict`."""
        _require_full(caller)
        before = await self._own(issuer.name)
        if issuer.client_secret == KEPT:
            issuer = replace(issuer, client_secret=before.client_secret)
        issuer = validate(issuer)
        _check_taken(issuer, others=[each for each in await self.all() if each.name != issuer.name])
        _require(await self._registry.issuers.update(issuer.name, issuer, caller.expected.seen_by(without_secret)))
        self._keys.forget(before)
        return self._to_listed(issuer)

    async def delete(self, caller: Caller, name: IssuerName) -> None:
        """Refuse the tokens of an issuer from now on; bindings stay. Raises `NotFound`; `Conflict` as `update`."""
        _require_full(caller)
        before = await self._own(name)
        _require(await self._registry.issuers.delete(name, caller.expected.seen_by(without_secret)))
        self._keys.forget(before)

    async def warn_of_shadowed(self) -> None:
        """Log issuers that are overridden by one of the settings with the same name or URL."""
        counting = {each.name for each in await self.all()} - {each.name for each in self._given}
        for each in await self._registry.issuers.all():
            if each.name not in counting:
                await logger.awarning("issuer.shadowed", issuer=each.name, by="issuers_file")

    def _to_listed(self, issuer: Issuer) -> ListedIssuer:
        source = "settings" if any(each.name == issuer.name for each in self._given) else "registry"
        return ListedIssuer(issuer, source, self._keys.state(issuer))

    async def _own(self, name: IssuerName) -> Issuer:
        if any(each.name == name for each in self._given):
            raise Conflict(f"Issuer {name} is one of the service's settings (issuers_file), and is changed there")
        return _require(next((each for each in await self._registry.issuers.all() if each.name == name), None))


def without_secret(issuer: Issuer) -> Issuer:
    """Return an issuer without its secret, to make its version: the version must not reveal the secret."""
    return replace(issuer, client_secret="")


def _check_taken(issuer: Issuer, others: Collection[Issuer]) -> None:
    if any(each.name == issuer.name or each.url == issuer.url for each in others):
        raise AlreadyExists("Issuer already exists")
    asked = next((each for each in others if each.takes_opaque), None)
    if issuer.takes_opaque and asked is not None:
        raise Conflict(f"Issuer {asked.name} is asked about tokens already, and there can be one that is")


def _require_full(caller: Caller) -> None:
    if not caller.full_view:  # not a service_admin: an issuer decides who its users are (17.3, U3)
        raise NotAllowed


def _require(result: T | None) -> T:
    return require_found(result, NotFound("Issuer doesn't exist"))


@dataclass(frozen=True, slots=True)
class IdentityBindings:
    """Bindings of identities to users."""

    registry: Registry

    async def list(self, caller: Caller, user: UserName) -> Sequence[Binding]:
        """Return the bindings of a user, oldest first; raise `NotFound` when there is no such user."""
        bound = await find_user(self.registry, user, caller)
        return await self.registry.bindings.of(bound.id)

    async def create(self, caller: Caller, user: UserName, name: BindingName, issuer: str, subject: str) -> Binding:
        """Let an identity log in as a user. The issuer is named by its URL, and need not be known yet.

        Raises `NotFound`, `NotAllowed` for a user above the caller, `InvalidInput`, `AlreadyExists`.
        """
        bound = await find_managed_user(self.registry, caller, user)
        checked_name("binding", name)
        refuse_if(not _ISSUER.fullmatch(issuer), "issuer must be the URL of an issuer, as its tokens say it")
        if not subject or len(subject) > MAX_SUBJECT_LENGTH or not subject.isprintable():
            raise InvalidInput(f"subject must have 1 to {MAX_SUBJECT_LENGTH} printable characters")
        return await self.registry.bindings.create(bound.id, name, issuer, subject, created_by=caller.user)

    async def delete(self, caller: Caller, user: UserName, name: BindingName) -> None:
        """Let an identity log in no more, at once; raise `NotFound` or `NotAllowed`."""
        bound = await find_managed_user(self.registry, caller, user)
        require_found(await self.registry.bindings.delete(bound.id, name), NotFound("Binding doesn't exist"))
