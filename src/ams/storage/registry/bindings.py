"""Bindings in the registry: which identity at an issuer logs in as which user (docs/reference/openid-connect.md).

An identity is the issuer's URL and a subject there (OpenID Connect Core 1.0, 2), so a binding outlives the issuer.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, insert, select, update

from ams.core.clock import Clock
from ams.core.errors import AlreadyExists
from ams.core.names import BindingName, UserId, UserName
from ams.storage.database.cache import Cache
from ams.storage.database.database import Database
from ams.storage.database.invalidation import PRINCIPAL, Forget
from ams.storage.registry.member_rows import add_memberships, roles_to_change, put_memberships, roles_written
from ams.storage.registry.user_rows import user_where, users_page, bearer_of, bound_principal
from ams.storage.registry.member_rows import Roles
from ams.storage.registry.records import Binding, Principal, User, UserDetails
from ams.storage.registry.tables import TAKEN, bindings, users
from ams.storage.registry.users import UserRecords

FIRST_LOGIN = BindingName("first-login")
"""What the binding is called that is made with its user."""

_BOUND = TAKEN["bindings_issuer_unique"]
_Identity = tuple[str, str]


class BindingRecords:
    """Bindings by user and name, and by identity."""

    def __init__(self, database: Database, clock: Clock, cache_size: int, made_users: UserRecords) -> None:
        self._database = database
        self._clock = clock
        self._users = made_users
        self._principals: Cache[_Identity, tuple[Principal, bool]] = database.invalidations.new_cache(cache_size)
        database.invalidations.on(PRINCIPAL, self._forget)

    def known_principal(self, issuer: str, subject: str) -> Principal | None:
        """Return who is bound to an identity if that is in memory; None says nothing: `principal` does."""
        bound = self._principals.known((issuer, subject))
        return None if bound is None else bound[0]

    async def principal(self, issuer: str, subject: str) -> tuple[Principal, bool] | None:
        """Return who is bound to an identity, and whether its binding was made at the first login.

        None when nobody is; cached, unknown identities are not.
        """
        return await self._principals.find((issuer, subject), lambda: self._read_principal(issuer, subject))

    async def of(self, user: UserId) -> Sequence[Binding]:
        """Return the bindings of a user, oldest first."""
        query = _BINDINGS.where(bindings.c.user_id == user)
        return await self._database.read(lambda connection: [_binding(row) for row in connection.execute(query)])

    async def create(
        self, user: UserId, name: BindingName, issuer: str, subject: str, *, created_by: UserId | None
    ) -> Binding:
        """Bind a user to an identity.

        Raises `AlreadyExists` when the user has a binding of this name, or anybody one to the identity; `NotFound`
        when the user is gone.
        """

        def work(connection: Connection) -> Binding:
            _bind(connection, user, name, (issuer, subject), now=self._clock.wall(), created_by=created_by)
            query = _BINDINGS.where(bindings.c.user_id == user, bindings.c.name == name)
            return _binding(connection.execute(query).one())

        return await self._database.write(work)

    async def delete(self, user: UserId, name: BindingName) -> bool:
        """Remove a binding: nobody logs in by it when this returns. False when it is gone already."""
        removal = delete(bindings).where(bindings.c.user_id == user, bindings.c.name == name)
        forget = Forget(PRINCIPAL, (user,))
        return await self._database.write(lambda connection: connection.execute(removal).rowcount, forget) > 0

    async def first_login(self, name: UserName, details: UserDetails, roles: Roles, issuer: str, subject: str) -> User:
        """Make a user with memberships and bind it to an identity, all or nothing; nobody is its maker.

        Raises `AlreadyExists` "Identity is already bound to a user", also when another login was faster, or "User
        already exists" when the name is anybody else's; `NotFound` when a project is gone.
        """
        creation = self._users.creation(name, details, roles, None)

        def work(connection: Connection) -> User:
            user = creation(connection)
            now = self._clock.wall()
            _bind(connection, user.id, FIRST_LOGIN, (issuer, subject), now=now, created_by=None, by_login=True)
            return user

        try:
            return await self._database.write(work)
        except AlreadyExists as taken:
            if await self._read_principal(issuer, subject) is None:
                raise
            raise AlreadyExists(_BOUND) from taken  # who was faster has the name too, and that is met first

    async def follow(self, user: UserId, roles: Roles) -> bool:
        """Let a user have these roles in these projects, none of them being no membership; others are left alone.

        Returns whether anything changed: nothing is written else. Raises `NotFound` when user or project are gone.
        """
        if not await self._database.read(lambda connection: roles_to_change(connection, user, roles)):
            return False
        now = self._clock.wall()

        def work(connection: Connection) -> bool:
            changed = roles_to_change(connection, user, roles)
            put_memberships(connection, user, changed)
            if changed:
                connection.execute(update(users).where(users.c.id == user).values(modified_on=now))
            return bool(changed)

        return await self._database.write(work, Forget(PRINCIPAL, (user,)))

    async def _read_principal(self, issuer: str, subject: str) -> tuple[Principal, bool] | None:
        if not _can_be_stored(issuer + subject):
            return None
        return await self._database.read(lambda connection: bound_principal(connection, issuer, subject))

    def _forget(self, user: str) -> None:
        self._principals.forget_where(lambda _, bound: bound[0].id == user)


_CREATOR = users.alias("creator")
_BINDINGS: Select[Any] = (
    select(bindings, users.c.name.label("user"), _CREATOR.c.name.label("creator"))
    .join(users, users.c.id == bindings.c.user_id)
    .outerjoin(_CREATOR, _CREATOR.c.id == bindings.c.created_by)
    .order_by(bindings.c.number)
)


def _bind(
    connection: Connection,
    user: UserId,
    name: BindingName,
    identity: _Identity,
    *,
    now: int,
    created_by: UserId | None,
    by_login: bool = False,
) -> None:
    maker = select(users.c.id).where(users.c.id == created_by).scalar_subquery()
    row = insert(bindings).values(
        user_id=user, name=name, issuer=identity[0], subject=identity[1], by_login=by_login, created_on=now,
        created_by=maker,
    )  # fmt: skip
    connection.execute(row)


def _binding(row: Row[Any]) -> Binding:
    return Binding(
        user=row.user, name=row.name, issuer=row.issuer, subject=row.subject, created_on=row.created_on,
        created_by=row.creator, by_login=row.by_login,
    )  # fmt: skip


def _can_be_stored(text: str) -> bool:
    """Whether a text has a form in UTF-8: what JSON says may hold halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
