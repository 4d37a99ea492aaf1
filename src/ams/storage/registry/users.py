"""Users, their memberships and their tokens in the registry."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from ams.core.clock import Clock
from ams.core.names import ProjectId, UserId, UserName, new_uuid
from ams.storage.database.cache import Cache
from ams.storage.database.database import Database, Work
from ams.storage.database.invalidation import PRINCIPAL, Forget
from ams.storage.registry.member_rows import add_memberships, roles_to_change, put_memberships, roles_written
from ams.storage.registry.user_rows import user_where, users_page, bearer_of, bound_principal
from ams.storage.registry.member_rows import Roles
from ams.storage.registry.paging import Page, PageRequest
from ams.storage.registry.records import Principal, User, UserDetails
from ams.storage.registry.tables import memberships, users
from ams.storage.secrets import Secrets, new_token, token_hash

T = TypeVar("T")

_TEXTS = ("name", "email", "first_name", "last_name", "organization", "description")


class UserRecords:
    """Users by name, identity and token."""

    def __init__(self, database: Database, secrets: Secrets, clock: Clock, cache_size: int) -> None:
        self._database = database
        self._secrets = secrets
        self._clock = clock
        # Keyed by the token's text: a dictionary compares hashes that differ in every process, so how long a miss
        # takes tells nothing about the tokens that are there.
        self._principals: Cache[str, Principal] = database.invalidations.new_cache(cache_size)
        self.known_principal = self._principals.known
        """Return whom a token stands for if that is in memory; None says nothing: `principal` does."""
        database.invalidations.on(PRINCIPAL, self._forget)

    async def principal(self, token: str) -> Principal | None:
        """Return whom a token stands for, None when it is nobody's; cached, unknown tokens are not.

        It may be a named token, also one that has expired: `login` says so.
        """
        return await self._principals.find(token, lambda: self._read_principal(token))

    async def by_name(self, name: UserName) -> User | None:
        """Return a user with its token and memberships, None when there is none."""
        return await self._one(users.c.name == name)

    async def by_id(self, user: UserId) -> User | None:
        """Return a user by identity, None when there is none."""
        return await self._one(users.c.id == user)

    async def by_token(self, token: str) -> User | None:
        """Return the user whose own token this is, None when there is none; named tokens are not looked at."""
        return await self._one(users.c.token_digest == self._secrets.digest(token))

    async def page(self, page: PageRequest, *, project: ProjectId | None = None, details: bool = False) -> Page[User]:
        """Return a page of all users or of a project's members, newest users first; memberships only with `details`.

        Raises `InvalidInput` "Invalid page token".
        """
        return await self._database.read(
            lambda connection: users_page(connection, self._secrets, project, page, details=details)
        )

    async def hold(self, service_role: str) -> bool:
        """Whether any user has a service role."""
        query = (
            select(users.c.number)
            .where(users.c.service_roles.contains(json.dumps(service_role), autoescape=True))
            .limit(1)
        )
        return await self._database.read(lambda connection: connection.scalar(query)) is not None

    async def exist(self) -> bool:
        """Whether there is any user."""
        query = select(users.c.number).limit(1)
        return await self._database.read(lambda connection: connection.scalar(query)) is not None

    async def create(
        self, name: UserName, details: UserDetails, roles: Roles, created_by: UserId | None, *, token: str = ""
    ) -> User:
        """Make a user with `token`, or a new one, and memberships; `details.name` and `.grants` are not looked at.

        Raises `AlreadyExists` when the name is taken, `NotFound` when a project is gone.
        """
        return await self._database.write(self.creation(name, details, roles, created_by, token=token))

    def creation(
        self, name: UserName, details: UserDetails, roles: Roles, created_by: UserId | None, *, token: str = ""
    ) -> Work[User]:
        """Return the work of `create`, for those who do more in the same transaction."""
        identity, now = UserId(new_uuid()), self._clock.wall()
        texts = {column: getattr(details, column) for column in _TEXTS} | {"name": name}
        row = insert(users).values(
            id=identity, service_roles=roles_written(details.service_roles or ()),
            created_on=now, modified_on=now,
            created_by=select(users.c.id).where(users.c.id == created_by).scalar_subquery(),
            **texts, **self._sealed(token or new_token(), identity),
        )  # fmt: skip

        def work(connection: Connection) -> User:
            connection.execute(row)
            add_memberships(connection, identity, roles)
            user = user_where(connection, self._secrets, users.c.id == identity)
            assert user is not None
            return user

        return work

    async def update(self, user: UserId, details: UserDetails, roles: Roles | None) -> User | None:
        """Change what is said and nothing else; `roles`, if given, replaces all memberships. None when it is gone.

        Raises `AlreadyExists` when the new name is another user's, `NotFound` when a project is gone.
        """
        values: dict[str, str] = {column: text for column in _TEXTS if (text := getattr(details, column))}
        if details.service_roles is not None:
            values["service_roles"] = roles_written(details.service_roles)

        def work(connection: Connection) -> User | None:
            self._touch(connection, user, values)
            if roles is not None:
                connection.execute(delete(memberships).where(memberships.c.user_id == user))
                add_memberships(connection, user, roles)
            return user_where(connection, self._secrets, users.c.id == user)

        return await self._write(user, work)

    async def delete(self, user: UserId) -> bool:
        """Remove a user, its memberships and its places on access lists; False when it is gone already."""
        removal = delete(users).where(users.c.id == user)
        # Cached access lists may still hold the identity; nobody can bear it any more.
        # Large: all that it made forgets who made it.
        forget = Forget(PRINCIPAL, (user,))
        return await self._database.write(lambda each: each.execute(removal).rowcount, forget, large=True) > 0

    async def refresh_token(self, user: UserId, token: str = "") -> User | None:
        """Give a user `token`, or a new one; the old one is dead when this returns. None when the user is gone."""
        change = update(users).where(users.c.id == user).values(**self._sealed(token or new_token(), user))

        def work(connection: Connection) -> User | None:
            connection.execute(change)
            return user_where(connection, self._secrets, users.c.id == user)

        return await self._write(user, work)

    async def add_member(self, user: UserId, project: ProjectId, roles: Sequence[str]) -> None:
        """Make a user a member; raise `AlreadyExists` when it is one, `NotFound` when user or project are gone."""
        await self._write(user, lambda connection: add_memberships(connection, user, {project: roles}))

    async def set_roles(self, user: UserId, project: ProjectId, roles: Sequence[str]) -> bool:
        """Replace a member's roles; False when it is no member."""
        change = update(memberships).where(_membership_of(user, project)).values(roles=roles_written(roles))

        def work(connection: Connection) -> bool:
            if not connection.execute(change).rowcount:
                return False
            self._touch(connection, user, {})
            return True

        return await self._write(user, work)

    async def remove_member(self, user: UserId, project: ProjectId) -> bool:
        """End a membership; False when there was none."""
        removal = delete(memberships).where(_membership_of(user, project))
        return await self._write(user, lambda connection: connection.execute(removal).rowcount) > 0

    async def _one(self, condition: ColumnElement[bool]) -> User | None:
        return await self._database.read(lambda connection: user_where(connection, self._secrets, condition))

    async def _read_principal(self, token: str) -> Principal | None:
        own, named = self._secrets.digest(token), self._secrets.digest(token_hash(token))
        return await self._database.read(lambda connection: bearer_of(connection, own, named))

    async def _write(self, user: UserId, work: Work[T]) -> T:
        """Run work that changes a user: whatever its token stood for is forgotten before anyone sees the outcome."""
        return await self._database.write(work, Forget(PRINCIPAL, (user,)))

    def _forget(self, user: str) -> None:
        self._principals.forget_where(lambda _, principal: principal.id == user)

    def _touch(self, connection: Connection, user: UserId, values: Mapping[str, str]) -> None:
        change = update(users).where(users.c.id == user)
        connection.execute(change.values(modified_on=self._clock.wall(), **values))

    def _sealed(self, token: str, owner: UserId) -> dict[str, Any]:
        return {"token_digest": self._secrets.digest(token), "token_sealed": self._secrets.encrypt(token, owner)}


def _membership_of(user: UserId, project: ProjectId) -> ColumnElement[bool]:
    return (memberships.c.user_id == user) & (memberships.c.project_id == project)
