"""Users with memberships and own tokens, and registrations of applicants."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import sqlalchemy as sa

from ams.core.errors import AlreadyExists, Damaged
from ams.core.names import ProjectId, RegistrationId, UserId, UserName, new_uuid
from ams.core.public_keys import PublicKey
from ams.core.quotas import MEMBERS
from ams.core.versions import ANY_VERSION, Precondition
from ams.storage.database.database import first
from ams.storage.database.invalidation import PRINCIPAL, Cache, Invalidation
from ams.storage.database.schema import Work, logger
from ams.storage.registry import records, tables
from ams.storage.registry.projects import QuotaRecords
from ams.storage.registry.records import KeyHolder, Login, Membership, Page, PageRequest, Principal, User, UserDetails
from ams.storage.registry.statements import Records, RegistryContext, existing, read_page, record, with_creator
from ams.storage.registry.tables import bindings, memberships, named_tokens, projects, registrations, users
from ams.storage.secrets import Secrets, new_token, token_hash

T = TypeVar("T")

Roles = Mapping[ProjectId, Sequence[str]]  # roles in each project; each is a membership

_TEXTS = ("name", "email", "first_name", "last_name", "organization", "description")


class UserRecords(Records):
    """Users by name, identity and token."""

    def __init__(self, shared: RegistryContext) -> None:
        super().__init__(shared)
        # Keyed by the token's text: hashes of a dictionary are randomised per process, so the time of a miss reveals
        # nothing about valid tokens.
        self._principals: Cache[str, Principal] = shared.database.invalidations.new_cache()
        self.known_principal = self._principals.find_cached  # by token, cache only; on None ask `principal`
        shared.database.invalidations.on(PRINCIPAL, self._forget)

    async def principal(self, token: str) -> Principal | None:
        """Return the user of an own or named token, also an expired one (see `login`); None if unknown. Cached."""
        own, named = self._secrets.digest(token), self._secrets.digest(token_hash(token))

        def read(connection: sa.Connection) -> Principal | None:
            row = connection.execute(_BEARERS.where(users.c.token_digest == own)).first()
            if row is not None:
                return _with_roles(connection, row)
            row = connection.execute(_BY_NAMED_TOKEN.where(named_tokens.c.digest == named)).first()
            return None if row is None else _with_roles(connection, row, _login(row))

        return await self._principals.find(token, lambda: self._database.read(read))

    async def by_name(self, name: UserName) -> User | None:
        """Return a user with its token and memberships, or None."""
        return await self._one(users.c.name == name)

    async def by_id(self, user: UserId) -> User | None:
        """Return a user by identity, or None."""
        return await self._one(users.c.id == user)

    async def by_token(self, token: str) -> User | None:
        """Return the user of an own token, or None. Ignores named tokens."""
        return await self._one(users.c.token_digest == self._secrets.digest(token))

    async def page(self, page: PageRequest, *, project: ProjectId | None = None, details: bool = False) -> Page[User]:
        """Return a page of all users or of a project's members, newest first; memberships only with `details`."""

        def work(connection: sa.Connection) -> Page[User]:
            query, total = _USERS, None
            if project is not None:
                total = connection.scalar(sa.select(sa.func.count()).where(memberships.c.project_id == project)) or 0
                query = _USERS.where(_is_member(project, of_many=total > _MANY))
            rows = read_page(connection, query, users.c.number, page, total)
            found = _memberships(connection, [row.id for row in rows.items] if details else [])
            return rows.map(lambda row: _user(row, self._secrets, found[row.id]))

        return await self._database.read(work)

    async def hold(self, service_role: str) -> bool:
        """Return whether any user has a service role."""
        has_role = sa.type_coerce(users.c.service_roles, sa.Text).contains(json.dumps(service_role), autoescape=True)
        return await self._database.value(sa.select(users.c.number).where(has_role).limit(1)) is not None

    async def exist(self) -> bool:
        """Return whether there is any user."""
        return await self._database.value(sa.select(users.c.number).limit(1)) is not None

    async def create(self, creation: Work[User], *, grows: bool = True) -> User:
        """Store a user of `creation`. Raises `AlreadyExists`, `QuotaExceeded`, `NotFound` for a project."""
        return await self._database.write(creation, grows=grows)

    def creation(
        self,
        name: UserName,
        details: UserDetails,
        roles: Roles,
        created_by: UserId | None,
        *,
        made_in: ProjectId | None = None,
        token: str = "",
    ) -> Work[User]:
        """Return the work that makes a user with `token`, or a new one. Ignores `details.name` and `.grants`.

        A user `made_in` a project counts for its quota of members while it is a member of no other project.
        """
        identity, now = UserId(new_uuid()), self._clock.wall()
        texts = {column: getattr(details, column) for column in _TEXTS} | {"name": name}
        row = sa.insert(users).values(
            id=identity, service_roles=details.service_roles or (),
            created_on=now, modified_on=now,
            created_by=existing(created_by), made_in=made_in,
            **texts, **token_columns(self._secrets, token or new_token(), identity),
        )  # fmt: skip

        def work(connection: sa.Connection) -> User:
            connection.execute(row)
            add_memberships(connection, identity, roles, self._quotas)
            user = self._find(connection, identity)
            assert user is not None
            return user

        return work

    async def update(
        self, user: UserId, details: UserDetails, roles: Roles | None, expected: Precondition = ANY_VERSION
    ) -> User | None:
        """Change the given details; `roles`, if given, replaces all memberships. Returns None if it does not exist.

        Raises `AlreadyExists` for a taken name, `QuotaExceeded`, `NotFound` for a deleted project.
        """
        values: dict[str, Any] = {column: text for column in _TEXTS if (text := getattr(details, column))}
        if details.service_roles is not None:
            values["service_roles"] = details.service_roles

        def work(connection: sa.Connection) -> User | None:
            expected.check(lambda: self._find(connection, user))
            self._touch(connection, user, values)
            if roles is not None:
                connection.execute(sa.delete(memberships).where(memberships.c.user_id == user))
                add_memberships(connection, user, roles, self._quotas)
            return self._find(connection, user)

        return await self._write(user, work)

    async def delete(self, user: UserId, expected: Precondition = ANY_VERSION) -> bool:
        """Delete a user with its memberships and access list entries; return whether it existed."""
        removal = sa.delete(users).where(users.c.id == user)

        # Cached access lists may still hold the identity, which is never used again.
        # Large: the creator is removed from everything that the user created.
        return await self._write(user, self._checked_removal(user, expected, removal), large=True, grows=False)

    async def refresh_token(
        self, user: UserId, token: str = "", *, check: Callable[[User], None] = lambda _: None
    ) -> User | None:
        """Replace the token of a user; the old one is invalid on return. `check` may raise. None: no such user."""
        columns = token_columns(self._secrets, token or new_token(), user)
        change = sa.update(users).where(users.c.id == user).values(**columns)

        def work(connection: sa.Connection) -> User | None:
            before = self._find(connection, user)
            if before is None:
                return None
            check(before)
            connection.execute(change)
            return self._find(connection, user)

        return await self._write(user, work, grows=False)  # also on a full disk: the old token must become invalid

    async def add_member(self, user: UserId, project: ProjectId, roles: Sequence[str]) -> User | None:
        """Add a member and return the user. Raises `AlreadyExists`, `QuotaExceeded`, `NotFound`."""

        def work(connection: sa.Connection) -> User | None:
            add_memberships(connection, user, {project: roles}, self._quotas)
            return self._find(connection, user)

        return await self._write(user, work)

    async def set_roles(
        self, user: UserId, project: ProjectId, roles: Sequence[str], expected: Precondition = ANY_VERSION
    ) -> User | None:
        """Replace a member's roles; return the user, or None if it is not a member."""
        change = sa.update(memberships).where(_membership_of(user, project)).values(roles=roles)

        def work(connection: sa.Connection) -> User | None:
            expected.check(lambda: self._find(connection, user))
            if not connection.execute(change).rowcount:
                return None
            self._touch(connection, user, {})
            return self._find(connection, user)

        return await self._write(user, work, grows=False)

    async def remove_member(self, user: UserId, project: ProjectId, expected: Precondition = ANY_VERSION) -> bool:
        """Remove a member; return whether it was one."""
        removal = sa.delete(memberships).where(_membership_of(user, project))
        return await self._write(user, self._checked_removal(user, expected, removal), grows=False)

    async def _one(self, condition: sa.ColumnElement[bool]) -> User | None:
        return await self._database.read(lambda connection: self._find_where(connection, condition))

    async def _write(self, user: UserId, work: Work[T], *, large: bool = False, grows: bool = True) -> T:
        """Run work that changes a user, and invalidate the cache of its tokens before any caller sees the outcome."""
        return await self._database.write(work, Invalidation(PRINCIPAL, (user,)), large=large, grows=grows)

    def _checked_removal(self, user: UserId, expected: Precondition, removal: sa.Delete) -> Work[bool]:
        def work(connection: sa.Connection) -> bool:
            expected.check(lambda: self._find(connection, user))
            return connection.execute(removal).rowcount > 0

        return work

    def _find(self, connection: sa.Connection, user: UserId) -> User | None:
        return self._find_where(connection, users.c.id == user)

    def _find_where(self, connection: sa.Connection, condition: sa.ColumnElement[bool]) -> User | None:
        row = connection.execute(_USERS.where(condition)).first()
        return _user(row, self._secrets, _memberships(connection, [row.id])[row.id]) if row else None

    def _forget(self, user: str) -> None:
        self._principals.forget_where(lambda _, principal: principal.id == user)

    def _touch(self, connection: sa.Connection, user: UserId, values: Mapping[str, Any]) -> None:
        change = sa.update(users).where(users.c.id == user)
        connection.execute(change.values(modified_on=self._clock.wall(), **values))


def token_columns(secrets: Secrets, token: str, owner: UserId) -> dict[str, Any]:
    """Return the columns of an own token."""
    return {"token_digest": secrets.digest(token), "token_sealed": secrets.encrypt(token, owner)}


def _membership_of(user: UserId, project: ProjectId) -> sa.ColumnElement[bool]:
    return (memberships.c.user_id == user) & (memberships.c.project_id == project)


_USERS_PER_STATEMENT = 500  # databases limit the number of bound values

_MANY = 1000  # members from which on a page is searched among all users

_USERS = with_creator(users)

_IDS: sa.BindParameter[Any] = sa.bindparam("ids", expanding=True)
# Built once, as building these takes longer than running them.
_MEMBERS: sa.Select[Any] = sa.select(
    memberships.c.user_id, memberships.c.project_id, memberships.c.roles, projects.c.name
)
_MEMBERS = _MEMBERS.join(projects).where(memberships.c.user_id.in_(_IDS)).order_by(memberships.c.number)

_BEARERS: sa.Select[Any] = sa.select(users.c.id, users.c.name, users.c.service_roles)
_BY_NAMED_TOKEN: sa.Select[Any] = _BEARERS.join(named_tokens, named_tokens.c.user_id == users.c.id).add_columns(
    named_tokens.c.id.label("token_id"), named_tokens.c.name.label("token_name"),
    named_tokens.c.expires_on, named_tokens.c.rights, named_tokens.c.public_key,
)  # fmt: skip
_BOUND: sa.Select[Any] = _BEARERS.join(bindings, bindings.c.user_id == users.c.id).add_columns(bindings.c.by_login)


def _on_lists(resources: sa.Table, access: sa.Table) -> sa.Select[Any]:
    columns = sa.select(access.c.user_id, resources.c.project_id, resources.c.name, resources.c.number)
    return columns.join(resources).where(access.c.user_id.in_(_IDS))


_OF_TOPICS = _on_lists(tables.topics, tables.topic_access)
_OF_SUBSCRIPTIONS = _on_lists(tables.subscriptions, tables.subscription_access)


def key_holder(connection: sa.Connection, key: str) -> KeyHolder | None:
    """Return the holder of a key, by its id."""
    row = connection.execute(_BY_NAMED_TOKEN.where(named_tokens.c.key_id == key)).first()
    return None if row is None else KeyHolder(_with_roles(connection, row, _login(row)), PublicKey(row.public_key, key))


def bound_principal(connection: sa.Connection, issuer: str, subject: str) -> tuple[Principal, bool] | None:
    """Return the user bound to an identity, and whether the binding was created at the first login."""
    row = connection.execute(_BOUND.where(bindings.c.issuer == issuer, bindings.c.subject == subject)).first()
    return (_with_roles(connection, row), row.by_login) if row is not None else None


def _with_roles(connection: sa.Connection, row: sa.Row[Any], login: Login | None = None) -> Principal:
    query = sa.select(memberships.c.project_id, memberships.c.roles).where(memberships.c.user_id == row.id)
    roles = {ProjectId(place.project_id): frozenset(place.roles) for place in connection.execute(query)}
    return Principal(row.id, row.name, frozenset(row.service_roles), roles, login)


def _login(row: sa.Row[Any]) -> Login:
    return Login(row.token_name, row.token_id, row.expires_on, row.rights)


def _is_member(project: ProjectId, *, of_many: bool) -> sa.ColumnElement[bool]:
    """Return the condition: few members are looked up and sorted; for many members the sorted users are scanned."""
    if of_many:
        return sa.exists().where(memberships.c.project_id == project, memberships.c.user_id == users.c.id)
    return users.c.id.in_(sa.select(memberships.c.user_id).where(memberships.c.project_id == project))


def _memberships(connection: sa.Connection, ids: Sequence[UserId]) -> Mapping[UserId, Sequence[Membership]]:
    found: defaultdict[UserId, list[Membership]] = defaultdict(list)
    for start in range(0, len(ids), _USERS_PER_STATEMENT):
        chunk = {"ids": ids[start : start + _USERS_PER_STATEMENT]}
        of_topics = _access_lists(connection, _OF_TOPICS, chunk)
        of_subscriptions = _access_lists(connection, _OF_SUBSCRIPTIONS, chunk)
        for row in connection.execute(_MEMBERS, chunk).all():
            place = (row.user_id, row.project_id)
            lists = tuple(of_topics[place]), tuple(of_subscriptions[place])
            found[row.user_id].append(Membership(row.name, row.roles, *lists))
    return found


def _access_lists(
    connection: sa.Connection, query: sa.Select[Any], chunk: Mapping[str, Sequence[UserId]]
) -> defaultdict[tuple[UserId, ProjectId], list[Any]]:
    """Return the short names of the resources with these users on their access lists, oldest first."""
    # Sorted here: with ORDER BY, SQLite scans all resources instead of the few on the lists.
    rows = sorted(connection.execute(query, chunk).all(), key=lambda row: row.number)
    found: defaultdict[tuple[UserId, ProjectId], list[Any]] = defaultdict(list)
    for row in rows:
        found[row.user_id, row.project_id].append(row.name)
    return found


def _user(row: sa.Row[Any], secrets: Secrets, entries: Sequence[Membership]) -> User:
    token: str | None = None
    try:
        token = secrets.decrypt(row.token_sealed, row.id)
    except Damaged as error:  # a damaged token must not hide its user or a whole list
        logger.error("user.token_damaged", user=row.name, reason=error.message)
    return record(User, row, memberships=tuple(entries), created_by=row.creator, token=token)


def add_memberships(connection: sa.Connection, user: UserId, roles: Roles, quotas: QuotaRecords | None = None) -> None:
    """Add memberships in projects where the user has none. Raises `QuotaExceeded` if `quotas` are given."""
    rows = [{"user_id": user, "project_id": project, "roles": given} for project, given in roles.items()]
    if rows:
        connection.execute(sa.insert(memberships), rows)
    if quotas is not None:
        for project in roles:
            quotas.require(connection, project, MEMBERS)


def roles_to_change(connection: sa.Connection, user: UserId, roles: Roles) -> Roles:
    """Return the roles that differ from the user's current ones, ignoring order; no roles: no membership."""
    query = sa.select(memberships.c.project_id, memberships.c.roles).where(memberships.c.user_id == user)
    held = {row.project_id: set(row.roles) for row in connection.execute(query)}
    return {
        project: given
        for project, given in roles.items()
        if held.get(project, set()) != set(given) or (project in held and not given)
    }


def put_memberships(connection: sa.Connection, user: UserId, roles: Roles, quotas: QuotaRecords) -> None:
    """Set a user's roles in these projects; empty roles end the membership. Raises `QuotaExceeded`."""
    for project, given in roles.items():
        place = _membership_of(user, project)
        if not given:
            connection.execute(sa.delete(memberships).where(place))
        elif not connection.execute(sa.update(memberships).where(place).values(roles=given)).rowcount:
            add_memberships(connection, user, {project: given}, quotas)


class RegistrationRecords(Records):
    """Registrations by identity."""

    def __init__(self, shared: RegistryContext, users: UserRecords) -> None:
        super().__init__(shared)
        self._users = users

    async def find(self, registration: RegistrationId) -> records.Registration | None:
        """Return a registration, or None."""
        return await self._database.row(_REGISTRATIONS.where(registrations.c.id == registration), _registration)

    async def all(self, filters: Mapping[str, str]) -> Sequence[records.Registration]:
        """Return the registrations that match filters (`REGISTRATION_FILTERS`), oldest first."""
        query = _REGISTRATIONS.where(*(registrations.c[column] == value for column, value in filters.items()))
        return await self._database.rows(query.order_by(registrations.c.number), _registration)

    async def create(self, applicant: records.Applicant) -> records.Registration:
        """Store a pending registration. Raises `AlreadyExists` if a user or pending registration has the name (U5)."""
        identity, now = RegistrationId(new_uuid()), self._clock.wall()
        row = sa.insert(registrations).values(
            id=identity, status="pending", activation_token=new_token(), decline_comment="", registered_at=now,
            **asdict(applicant),
        )  # fmt: skip

        def work(connection: sa.Connection) -> records.Registration:
            if connection.scalar(sa.select(users.c.number).where(users.c.name == applicant.name)) is not None:
                raise AlreadyExists("User already exists")
            connection.execute(row)
            return _registration(connection.execute(_REGISTRATIONS.where(registrations.c.id == identity)).one())

        return await self._database.write(work)

    async def accept(self, registration: RegistrationId, decided_by: UserId | None) -> User | None:
        """Create the user of a pending registration; None if not pending. Raises `AlreadyExists` for a taken name."""

        def work(connection: sa.Connection) -> User | None:
            asked = first(connection, _REGISTRATIONS.where(_pending(registration)), _registration)
            if asked is None:
                return None
            connection.execute(self._decision(registration, decided_by, status="accepted"))
            details = UserDetails(**asdict(asked.applicant))
            return self._users.creation(UserName(details.name), details, {}, decided_by)(connection)

        return await self._database.write(work)

    async def decline(self, registration: RegistrationId, decided_by: UserId | None, comment: str) -> bool:
        """Decline a pending registration; return whether it was pending."""
        change = self._decision(registration, decided_by, status="declined", decline_comment=comment)
        return await self._database.change(change, grows=False) > 0

    async def delete(self, registration: RegistrationId) -> bool:
        """Delete a registration in any state; return whether it existed."""
        removal = sa.delete(registrations).where(registrations.c.id == registration)
        return await self._database.change(removal, grows=False) > 0

    def _decision(self, registration: RegistrationId, decided_by: UserId | None, **values: str) -> Any:
        decision = {"modified_at": self._clock.wall(), "modified_by": existing(decided_by), "activation_token": ""}
        return sa.update(registrations).where(_pending(registration)).values(**decision, **values)


_REGISTRATIONS = with_creator(registrations, "modified_by")


def _pending(registration: RegistrationId) -> sa.ColumnElement[bool]:
    return (registrations.c.id == registration) & (registrations.c.status == "pending")


def _registration(row: sa.Row[Any]) -> records.Registration:
    return record(records.Registration, row, applicant=record(records.Applicant, row), modified_by=row.creator)
