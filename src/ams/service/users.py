"""Administration of users, of registrations, and of the named tokens of users (HTTP contract 5 and 6)."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import structlog

from ams.access import permissions
from ams.access.admission import Caller
from ams.core import rights
from ams.core.clock import Clock, Milliseconds
from ams.core.errors import AlreadyExists, Conflict, InvalidInput, NotAllowed, NotFound, UnknownToken, refuse_if
from ams.core.names import ProjectId, RegistrationId, TokenId, TokenName, UserId, UserName, checked_name
from ams.core.public_keys import PublicKey
from ams.core.supervisor import Ticker
from ams.service.leftovers import finish_or_leave
from ams.service.lookup import NO_USER, find_managed_user, find_user, require_found
from ams.service.push.configurations import FIRST_WORKER
from ams.storage.registry import records
from ams.storage.registry.logins import NamedTokenRecords
from ams.storage.registry.registry import Registry
from ams.storage.secrets import new_token

MAX_TOKENS = 100
MAX_EXPIRY = Milliseconds(253_402_300_799_000)  # the last second that can be written as a date
TOKEN_ACTIONS = frozenset(action for action in permissions.PERMISSIONS if not permissions.needs_all_rights(action))
STORE_USES_SECONDS = 60.0
UNKNOWN_NAME = "Token doesn't exist"
T = TypeVar("T")
logger = structlog.get_logger("ams.users")


@dataclass(frozen=True, slots=True)
class Users:
    """Administration of users."""

    registry: Registry
    roles: frozenset[str] = permissions.ROLES

    async def project_filter(self, name: str) -> ProjectId | None:
        """Return the project of a list's filter (contract 5.2); empty: None. Raises `NotFound`."""
        if not name:
            return None
        return require_found(await self.registry.projects.find(name), NotFound("ProjectUUID doesn't exist")).id

    async def list(
        self, caller: Caller, page: records.PageRequest, *, project: ProjectId | None = None, details: bool = False
    ) -> records.Page[records.User]:
        """Return a page of all users or the members of `project`, newest first; memberships only with `details`."""
        return (await self.registry.users.page(page, project=project, details=details)).map(caller.view)

    async def show(self, caller: Caller, name: UserName) -> records.User:
        """Return a user, as far as the caller may see it. Raises `NotFound`."""
        return caller.view(await find_user(self.registry, name))

    async def by_token(self, caller: Caller, token: str) -> records.User:
        """Return the user with this token, in full view. Raises `NotFound`."""
        user = require_found(await self.registry.users.by_token(token), NotFound(NO_USER))
        return caller.view_whole(user, again=False)

    async def by_uuid(self, caller: Caller, user: UserId) -> records.User:
        """Return a user by identity, full view, with the token for the certificate service (authn contract 8)."""
        found = require_found(await self.registry.users.by_id(user), NotFound(NO_USER))
        return caller.view_whole(found, again=permissions.ARGO_API_AUTHN in caller.roles)

    async def profile(self, caller: Caller) -> records.User:
        """Return the caller's own user, without roles if its rights are reduced. Raises `UnknownToken`."""
        assert caller.user is not None
        user = require_found(await self.registry.users.by_id(caller.user), UnknownToken)
        if caller.is_reduced:  # other services authorise by roles
            places = tuple(replace(each, roles=()) for each in user.memberships)
            return replace(user, token=None, service_roles=(), memberships=places)
        return caller.view_whole(user, again=False)

    async def create(self, caller: Caller, name: UserName, details: records.UserDetails) -> records.User:
        """Make a user with a new token; raise `AlreadyExists`, `InvalidInput` for a project or role (contract 5.4)."""
        if await self.registry.users.by_name(name) is not None:
            raise AlreadyExists("User already exists")
        roles = await self._checked_roles(caller, details)
        creation = self.registry.users.creation(name, details, roles or {}, caller.user)
        return caller.view_made(await self.registry.users.create(creation))

    async def update(self, caller: Caller, name: UserName, details: records.UserDetails) -> records.User:
        """Change a user (U6). Raises `NotFound`, `NotAllowed` for a user above the caller, `InvalidInput`."""
        user = await find_managed_user(self.registry, caller, name)
        roles = await self._checked_roles(caller, details)
        if details.name:
            checked_name("user", details.name)
        try:
            changed = await self.registry.users.update(user.id, details, roles, caller.expected.seen_by(caller.view))
        except AlreadyExists:
            raise InvalidInput("invalid user name change, name already exists") from None
        found = require_found(changed, NotFound(NO_USER))
        await finish_or_leave(self._warn_if_last(user, found.service_roles), "users")
        return caller.view(found)

    async def delete(self, caller: Caller, name: UserName) -> None:
        """Delete a user; its token is invalid at once. Raises `NotFound`, `NotAllowed`."""
        user = await find_managed_user(self.registry, caller, name)
        is_deleted = await self.registry.users.delete(user.id, caller.expected.seen_by(caller.view))
        require_found(is_deleted, NotFound(NO_USER))
        await finish_or_leave(self._warn_if_last(user), "users")

    async def refresh_token(self, caller: Caller, name: UserName) -> records.User:
        """Replace a user's token, invalid at once, and show the new one. Raises `NotFound`, `NotAllowed`."""
        user = await find_managed_user(self.registry, caller, name)
        if caller.is_weaker_than_own(user):
            raise NotAllowed
        return require_found(await self.registry.users.refresh_token(user.id), NotFound(NO_USER))

    async def _warn_if_last(self, before: records.User, roles_now: Sequence[str] = ()) -> None:
        """Warn the operator when the last service_admin is gone: only the service token can make another one."""
        was_admin, is_admin = permissions.SERVICE_ADMIN in before.service_roles, permissions.SERVICE_ADMIN in roles_now
        if was_admin and not is_admin and not await self.registry.users.hold(permissions.SERVICE_ADMIN):
            logger.warning("users.no_service_admin", last=before.name)

    async def _checked_roles(
        self, caller: Caller, details: records.UserDetails
    ) -> dict[ProjectId, tuple[str, ...]] | None:
        """Return the requested memberships, None if absent; check them, then the service roles (5.4, U3)."""
        named = [grant for grant in details.grants or () if grant.project]
        seen: set[str] = set()
        for grant in named:
            refuse_if(grant.project in seen, f"duplicate reference of project {grant.project}")
            seen.add(grant.project)
        roles = {}
        for grant in named:
            project = await self.registry.projects.find(grant.project)
            roles[require_found(project, InvalidInput(f"invalid project: {grant.project}")).id] = grant.roles
        for grant in named:
            permissions.check_roles(grant.roles, permissions.PROJECT_ROLES)
        permissions.check_roles(details.service_roles or (), self.roles if caller.full_view else frozenset())
        return None if details.grants is None else roles


async def create_first_admin(registry: Registry, keep: Callable[[str], None], forget: Callable[[], None]) -> bool:
    """Create the user `admin` with role service_admin if there are no users; return whether it was created.

    `keep` stores the token durably before the user exists: a crash in between must not leave an administrator without
    a known token. `forget` removes it if another service with the same registry was quicker.
    """
    if await registry.users.exist():
        return False
    token = new_token()
    await asyncio.to_thread(keep, token)
    details = records.UserDetails(service_roles=(permissions.SERVICE_ADMIN,))
    try:
        admin = registry.users.creation(UserName("admin"), details, {}, None, token=token)
        await registry.users.create(admin, grows=False)
    except AlreadyExists:
        await asyncio.to_thread(forget)
        return False
    return True


async def push_worker(registry: Registry, token: str = "") -> bool:
    """Create the user `push_worker_0`, with `token` or a new one, unless `token` has a user; return whether it exists.

    An existing worker gets this token, as the setting decides. A user of that name without the role is no worker.
    """
    if token and await registry.users.principal(token) is not None:
        return True
    details = records.UserDetails(service_roles=(permissions.PUSH_WORKER,))
    try:
        worker = registry.users.creation(FIRST_WORKER, details, {}, None, token=token)
        await registry.users.create(worker, grows=False)
    except AlreadyExists:
        user = await registry.users.by_name(FIRST_WORKER)
        if user is None or permissions.PUSH_WORKER not in user.service_roles:
            return False
        if token:
            await registry.users.refresh_token(user.id, token)
            logger.warning("push.worker_token_changed", user=user.name)
    return True


@dataclass(frozen=True, slots=True)
class Registrations:
    """Registrations of applicants, and decisions on them."""

    registry: Registry

    async def register(self, applicant: records.Applicant) -> records.Registration:
        """Store the registration of an applicant; raise `InvalidInput` for its name (17.3, U4, U5), `AlreadyExists`."""
        refuse_if(not applicant.name, "Invalid User Arguments")
        checked_name("user", applicant.name)
        return await self.registry.registrations.create(applicant)

    async def list(self, filters: Mapping[str, str]) -> Sequence[records.Registration]:
        """Return registrations, oldest first; `filters` are exact values that all must match, an empty one is none."""
        return await self.registry.registrations.all({name: value for name, value in filters.items() if value})

    async def show(self, registration: RegistrationId) -> records.Registration:
        """Return a registration, decided or not; raise `NotFound` when there is none."""
        return _registration(await self.registry.registrations.find(registration))

    async def require_pending(self, registration: RegistrationId) -> None:
        """Raise `NotFound` unless it is pending; called before the body of `:decline` is read (contract 6)."""
        _registration((await self.show(registration)).status == "pending")

    async def accept(self, caller: Caller, registration: RegistrationId) -> records.User:
        """Make the user of a pending registration, with a token and no role; raise `NotFound`, `AlreadyExists`."""
        return caller.view_made(_registration(await self.registry.registrations.accept(registration, caller.user)))

    async def decline(self, caller: Caller, registration: RegistrationId, comment: str = "") -> None:
        """Refuse a registration; raise `NotFound` when no such registration is pending."""
        _registration(await self.registry.registrations.decline(registration, caller.user, comment))

    async def delete(self, registration: RegistrationId) -> None:
        """Forget a registration, decided or not; raise `NotFound` when there is none."""
        _registration(await self.registry.registrations.delete(registration))


def _registration(result: T | None) -> T:
    return require_found(result, NotFound("User registration doesn't exist"))


@dataclass(frozen=True, slots=True)
class Tokens:
    """Named tokens of a user (docs/reference/tokens.md). All calls raise `NotFound`, and `NotAllowed`."""

    registry: Registry
    clock: Clock

    async def list(self, caller: Caller, user: UserName) -> Sequence[records.NamedToken]:
        """Return the tokens of a user, oldest first."""
        owner = await find_managed_user(self.registry, caller, user, or_itself=True)
        return await self.registry.named_tokens.of(owner.id)

    async def show(self, caller: Caller, user: UserName, name: TokenName) -> records.NamedToken:
        """Return a token of a user, without its text."""
        owner = await find_managed_user(self.registry, caller, user, or_itself=True)
        return require_found(await self.registry.named_tokens.find(owner.id, name), NotFound(UNKNOWN_NAME))

    async def create(
        self, caller: Caller, user: UserName, name: TokenName, *, expires_on: Milliseconds | None = None,
        lifetime: Milliseconds | None = None, wanted: Sequence[tuple[str, str]] | None = None,
        key: PublicKey | None = None,
    ) -> tuple[records.NamedToken, str]:  # fmt: skip
        """Make a token of a user that is good until `expires_on` or for `lifetime`, and for the rights in `wanted`.

        Without the first two it never expires; without rights it is good for all that the user may do. Returns it with
        its text, which is never shown again. With a key there is no text: programs sign with the other half of the key.
        Raises `InvalidInput` for a time or rights that cannot be, `Conflict` when the user has too many,
        `AlreadyExists`.
        """
        owner = await find_managed_user(self.registry, caller, user, or_itself=True)
        until = self._until(caller, expires_on, lifetime)
        given = None if wanted is None else rights.validate(wanted, TOKEN_ACTIONS)
        if len(await self.registry.named_tokens.of(owner.id)) >= MAX_TOKENS:
            raise Conflict(f"A user has at most {MAX_TOKENS} named tokens: revoke one that is not used any more")
        return await self.registry.named_tokens.create(
            owner.id, name, expires_on=until, rights=given, created_by=caller.user, key=key
        )

    async def revoke(self, caller: Caller, user: UserName, name: TokenName) -> None:
        """Revoke a token: it is invalid when this returns."""
        owner = await find_managed_user(self.registry, caller, user, or_itself=True)
        require_found(await self.registry.named_tokens.revoke(owner.id, name), NotFound(UNKNOWN_NAME))

    def _until(
        self, caller: Caller, expires_on: Milliseconds | None, lifetime: Milliseconds | None
    ) -> Milliseconds | None:
        now, login = self.clock.wall(), caller.login
        refuse_if(expires_on is not None and lifetime is not None, "Give expires_on or expires_in, not both")
        until = Milliseconds(now + lifetime) if lifetime is not None else expires_on
        if until is not None:
            refuse_if(until <= now, "The token would have expired already")
            refuse_if(until > MAX_EXPIRY, "The token would expire after the year 9999: leave the time out for none")
        if login is not None and login.token is not None and login.expires_on is not None:
            is_later = until is None or until > login.expires_on
            refuse_if(is_later, "The token would outlive the one it is made with: it must expire no later")
        return until


class TokenUses:
    """Stores the last use of each named token."""

    def __init__(self, tokens: NamedTokenRecords) -> None:
        self._tokens = tokens
        self._noted: dict[TokenId, Milliseconds] = {}
        put_off = partial(structlog.get_logger("ams.token_uses").warning, "token_uses.put_off")
        self.rounds = Ticker("uses of tokens", STORE_USES_SECONDS, self.flush, put_off, has_last=True)

    def note(self, token: TokenId, now: Milliseconds) -> None:
        """Record a use. Hot path of every request: nothing else here."""
        self._noted[token] = now

    async def flush(self) -> None:
        """Write the uses. Raises what the registry raises; the next call retries."""
        noted, self._noted = self._noted, {}
        try:
            await self._tokens.note_uses(noted)
        except BaseException:
            self._noted = {**noted, **self._noted}
            raise
