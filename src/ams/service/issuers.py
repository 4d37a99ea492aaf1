"""Administration of OpenID Connect issuers: those of the settings and those that were set."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import structlog

from ams.access.admission import Caller
from ams.core.errors import AlreadyExists, Conflict, InvalidInput, NotAllowed, NotFound
from ams.core.issuer import Issuer, checked
from ams.core.names import BindingName, IssuerName, UserName, checked_name
from ams.identity.keys import Keys, KeysState
from ams.service.lookup import find_managed_user, find_user, required
from ams.storage.registry.records import Binding
from ams.storage.registry.registry import Registry

KEPT = "***"  # stands for a secret in answers; in a body it means the one that is there
LONGEST_SUBJECT = 255
_ISSUER = re.compile(r"https?://[!-~]{1,2000}")

T = TypeVar("T")

logger = structlog.get_logger("ams.issuers")


class ListedIssuer(NamedTuple):
    """An issuer as it is shown."""

    issuer: Issuer
    source: str
    keys: KeysState


class Issuers:
    """Accepted token issuers. An issuer from the settings overrides one with the same name or URL."""

    def __init__(self, registry: Registry, given: Sequence[Issuer], keys: Keys) -> None:
        """`given` are those of the settings."""
        self._registry, self._keys = registry, keys
        self._given = tuple(given)

    async def all(self) -> Sequence[Issuer]:
        """Return every issuer that counts, those of the settings first."""
        names, urls = {each.name for each in self._given}, {each.url for each in self._given}
        stored = await self._registry.issuers.all()
        return [*self._given, *(each for each in stored if each.name not in names and each.url not in urls)]

    async def by_url(self, url: str) -> Issuer | None:
        """Return the issuer whose tokens say this URL; None when no issuer has it."""
        return next((each for each in await self.all() if each.url == url), None)

    async def of_opaque(self) -> Issuer | None:
        """Return the issuer that is asked about tokens which do not say whose they are; None when there is none."""
        return next((each for each in await self.all() if each.takes_opaque), None)

    async def list(self) -> Sequence[ListedIssuer]:
        """Return all issuers and how it stands with their keys."""
        return [self._listed(each) for each in await self.all()]

    async def away(self) -> Sequence[ListedIssuer]:
        """Return those that did not give their keys the last time they were asked."""
        return [self._listed(each) for each in await self.all() if self._keys.away(each)]

    async def show(self, name: IssuerName) -> ListedIssuer:
        """Return an issuer; raise `NotFound` when there is none of this name."""
        return self._listed(_found(next((each for each in await self.all() if each.name == name), None)))

    async def create(self, caller: Caller, issuer: Issuer) -> ListedIssuer:
        """Accept the tokens of another issuer; raise `NotAllowed`, `InvalidInput`, `AlreadyExists`, `Conflict`."""
        _require_full(caller)
        checked_name("issuer", issuer.name)
        issuer = checked(issuer)
        if issuer.client_secret == KEPT:
            raise InvalidInput("client_secret must be the secret itself: there is none to keep")
        _check_taken(issuer, others=await self.all())
        await self._registry.issuers.create(issuer, caller.user)
        return self._listed(issuer)

    async def update(self, caller: Caller, issuer: Issuer) -> ListedIssuer:
        """Replace an issuer, its secret unless that is `***`. Raises as `create`, `NotFound`, and `Conflict`."""
        _require_full(caller)
        before = await self._own(issuer.name)
        if issuer.client_secret == KEPT:
            issuer = replace(issuer, client_secret=before.client_secret)
        issuer = checked(issuer)
        _check_taken(issuer, others=[each for each in await self.all() if each.name != issuer.name])
        _found(await self._registry.issuers.update(issuer.name, issuer, caller.expected.seen_by(without_secret)))
        self._keys.forget(before)
        return self._listed(issuer)

    async def delete(self, caller: Caller, name: IssuerName) -> None:
        """Refuse the tokens of an issuer from now on; bindings stay. Raises `NotFound`; `Conflict` as `update`."""
        _require_full(caller)
        before = await self._own(name)
        _found(await self._registry.issuers.delete(name, caller.expected.seen_by(without_secret)))
        self._keys.forget(before)

    async def warn_of_shadowed(self) -> None:
        """Log the issuers that do not count, because one of the settings has their name or URL."""
        counting = {each.name for each in await self.all()} - {each.name for each in self._given}
        for each in await self._registry.issuers.all():
            if each.name not in counting:
                await logger.awarning("issuer.shadowed", issuer=each.name, by="issuers_file")

    def _listed(self, issuer: Issuer) -> ListedIssuer:
        source = "settings" if any(each.name == issuer.name for each in self._given) else "registry"
        return ListedIssuer(issuer, source, self._keys.state(issuer))

    async def _own(self, name: IssuerName) -> Issuer:
        if any(each.name == name for each in self._given):
            raise Conflict(f"Issuer {name} is one of the service's settings (issuers_file), and is changed there")
        return _found(next((each for each in await self._registry.issuers.all() if each.name == name), None))


def without_secret(issuer: Issuer) -> Issuer:
    """Return the part of an issuer that its version is made of: so nobody can guess at its secret."""
    return replace(issuer, client_secret="")


def _check_taken(issuer: Issuer, others: Collection[Issuer]) -> None:
    if any(each.name == issuer.name or each.url == issuer.url for each in others):
        raise AlreadyExists("Issuer already exists")
    asked = next((each for each in others if each.takes_opaque), None)
    if issuer.takes_opaque and asked is not None:
        raise Conflict(f"Issuer {asked.name} is asked about tokens already, and there can be one that is")


def _require_full(caller: Caller) -> None:
    """Raise `NotAllowed` unless the caller is a service_admin: an issuer decides who its users are (17.3, U3)."""
    if not caller.full_view:
        raise NotAllowed


def _found(result: T | None) -> T:
    return required(result, NotFound("Issuer doesn't exist"))


@dataclass(frozen=True, slots=True)
class Bindings:
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
        if not _ISSUER.fullmatch(issuer):
            raise InvalidInput("issuer must be the URL of an issuer, as its tokens say it")
        if not subject or len(subject) > LONGEST_SUBJECT or not subject.isprintable():
            raise InvalidInput(f"subject must have 1 to {LONGEST_SUBJECT} printable characters")
        return await self.registry.bindings.create(bound.id, name, issuer, subject, created_by=caller.user)

    async def delete(self, caller: Caller, user: UserName, name: BindingName) -> None:
        """Let an identity log in no more, at once; raise `NotFound` or `NotAllowed`."""
        bound = await find_managed_user(self.registry, caller, user)
        required(await self.registry.bindings.delete(bound.id, name), NotFound("Binding doesn't exist"))
