"""Administration of the named tokens of users (docs/reference/tokens.md)."""

from collections.abc import Sequence
from functools import partial

import structlog

from ams.access.admission import Caller
from ams.access.permissions import PERMISSIONS, needs_all_rights
from ams.core import rights
from ams.core.clock import Clock, Milliseconds
from ams.core.errors import Conflict, InvalidInput, NotAllowed, NotFound
from ams.core.names import TokenId, TokenName, UserName
from ams.core.public_keys import PublicKey
from ams.core.supervisor import Rounds
from ams.service.lookup import find_user
from ams.storage.registry.logins import NamedTokenRecords
from ams.storage.registry.records import NamedToken, User
from ams.storage.registry.registry import Registry

MOST = 100
"""Named tokens of one user, those that have expired too."""
LATEST = Milliseconds(253_402_300_799_000)
"""The last second that can be written as a date."""

ACTIONS = frozenset(action for action in PERMISSIONS if not needs_all_rights(action))
"""What a right may be for."""


class Tokens:
    """What can be done with the named tokens of a user: by the user itself, and by a service_admin."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock

    async def list(self, caller: Caller, user: UserName) -> Sequence[NamedToken]:
        """Return the tokens of a user, oldest first; raise `NotFound` or `NotAllowed`."""
        owner = await self._managed(caller, user)
        return await self._registry.named_tokens.of(owner.id)

    async def show(self, caller: Caller, user: UserName, name: TokenName) -> NamedToken:
        """Return a token of a user, without its text; raise `NotFound` or `NotAllowed`."""
        owner = await self._managed(caller, user)
        token = await self._registry.named_tokens.find(owner.id, name)
        if token is None:
            raise _unknown()
        return token

    async def create(
        self,
        caller: Caller,
        user: UserName,
        name: TokenName,
        *,
        expires_on: Milliseconds | None = None,
        lifetime: Milliseconds | None = None,
        wanted: Sequence[tuple[str, str]] | None = None,
        key: PublicKey | None = None,
    ) -> tuple[NamedToken, str]:
        """Make a token of a user that is good until `expires_on` or for `lifetime`, and for the rights in `wanted`.

        Returns it with its text, which is never shown again; with a key, programs sign what they show with the other
        half of that, and there is no text. None of the first two: it never expires; no rights: it
        is good for all that the user may do. Raises `NotFound`, `NotAllowed`; `InvalidInput` for a time or rights that
        cannot be, `Conflict` when the user has too many, `AlreadyExists`.
        """
        owner = await self._managed(caller, user)
        until = self._until(expires_on, lifetime)
        _check_not_longer(caller, until)
        given = None if wanted is None else rights.checked(wanted, ACTIONS)
        if len(await self._registry.named_tokens.of(owner.id)) >= MOST:
            raise Conflict(f"A user has at most {MOST} named tokens: revoke one that is not used any more")
        return await self._registry.named_tokens.create(
            owner.id, name, expires_on=until, rights=given, created_by=caller.user, key=key
        )

    async def revoke(self, caller: Caller, user: UserName, name: TokenName) -> None:
        """Remove a token: it is dead when this returns; raise `NotFound` or `NotAllowed`."""
        owner = await self._managed(caller, user)
        if not await self._registry.named_tokens.revoke(owner.id, name):
            raise _unknown()

    async def _managed(self, caller: Caller, name: UserName) -> User:
        """Return a user whose tokens the caller manages.

        A roles file may let others than the user and service_admins do it, but not for a user with service roles:
        otherwise a user could gain rights by it (17.3, U3).
        """
        user = await find_user(self._registry, name, caller)
        if user.id != caller.user and user.service_roles and not caller.full_view:
            raise NotAllowed
        return user

    def _until(self, expires_on: Milliseconds | None, lifetime: Milliseconds | None) -> Milliseconds | None:
        now = self._clock.wall()
        if expires_on is not None and lifetime is not None:
            raise InvalidInput("Give expires_on or expires_in, not both")
        until = Milliseconds(now + lifetime) if lifetime is not None else expires_on
        if until is not None and until <= now:
            raise InvalidInput("The token would have expired already")
        if until is not None and until > LATEST:
            raise InvalidInput("The token would expire after the year 9999: leave the time out for none")
        return until


def _check_not_longer(caller: Caller, until: Milliseconds | None) -> None:
    """Raise `InvalidInput` for a token that would outlive the named one it is made with."""
    login = caller.login
    if login is None or login.token is None or login.expires_on is None:
        return
    if until is None or until > login.expires_on:
        raise InvalidInput("The token would outlive the one it is made with: it must expire no later")


def _unknown() -> NotFound:
    return NotFound("Token doesn't exist")


logger = structlog.get_logger("ams.token_uses")

ROUND_SECONDS = 60.0


class TokenUses:
    """Keeps when each named token was last used."""

    def __init__(self, tokens: NamedTokenRecords) -> None:
        self._tokens = tokens
        self._noted: dict[TokenId, Milliseconds] = {}
        put_off = partial(logger.warning, "token_uses.put_off")
        self.rounds = Rounds("uses of tokens", ROUND_SECONDS, self.flush, put_off, has_last=True)

    def note(self, token: TokenId, now: Milliseconds) -> None:
        """Note a use; on the way of every request, so it does nothing else."""
        self._noted[token] = now

    async def flush(self) -> None:
        """Write what is noted. Raises what the registry raises; it is written the next time then."""
        noted, self._noted = self._noted, {}
        try:
            await self._tokens.note_uses(noted)
        except BaseException:
            self._noted = {**noted, **self._noted}
            raise
