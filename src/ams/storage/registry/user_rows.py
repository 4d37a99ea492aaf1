"""Reading users from their tables: rows to values, a few statements for a whole users_page."""

import functools
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from sqlalchemy import BindParameter, ColumnElement, Connection, Row, Select, Table, bindparam, exists, func, select

from ams.core.errors import Damaged
from ams.core.names import ProjectId, UserId
from ams.storage.registry.named_tokens import rights_read
from ams.storage.registry.paging import Page, PageRequest, read_page
from ams.storage.registry.records import Login, Membership, Principal, User
from ams.storage.registry.tables import (
    bindings,
    memberships,
    named_tokens,
    projects,
    subscription_access,
    subscriptions,
    topic_access,
    topics,
    users,
)
from ams.storage.secrets import Secrets

logger = structlog.get_logger("ams.registry")

_Place = tuple[UserId, ProjectId]

_CHUNK = 500
"""Users asked about in user_where statement: databases limit how many values user_where may hold."""

_MANY = 1000
"""A project with more members has some among any few users."""

_CREATOR = users.alias("creator")
_USERS: Select[Any] = select(users, _CREATOR.c.name.label("creator")).outerjoin(
    _CREATOR, _CREATOR.c.id == users.c.created_by
)

_IDS: BindParameter[Any] = bindparam("ids", expanding=True)
# Built once: a login by certificate asks for user_where user, and to build these takes longer than to ask them.
_MEMBERS: Select[Any] = (
    select(memberships.c.user_id, memberships.c.project_id, memberships.c.roles, projects.c.name)
    .join(projects, projects.c.id == memberships.c.project_id)
    .where(memberships.c.user_id.in_(_IDS))
    .order_by(memberships.c.number)
)

_BEARERS: Select[Any] = select(users.c.id, users.c.name, users.c.service_roles)
_BY_NAMED_TOKEN: Select[Any] = _BEARERS.join(named_tokens, named_tokens.c.user_id == users.c.id).add_columns(
    named_tokens.c.id.label("token_id"), named_tokens.c.name.label("token_name"),
    named_tokens.c.expires_on, named_tokens.c.rights,
)  # fmt: skip
_BOUND: Select[Any] = _BEARERS.join(bindings, bindings.c.user_id == users.c.id).add_columns(bindings.c.by_login)


def _on_lists(resources: Table, access: Table) -> Select[Any]:
    return (
        select(access.c.user_id, resources.c.project_id, resources.c.name, resources.c.number)
        .join(resources, resources.c.id == access.c.resource_id)
        .where(access.c.user_id.in_(_IDS))
    )


_OF_TOPICS = _on_lists(topics, topic_access)
_OF_SUBSCRIPTIONS = _on_lists(subscriptions, subscription_access)


def user_where(connection: Connection, secrets: Secrets, condition: ColumnElement[bool]) -> User | None:
    """Return the user that meets a condition, with its memberships."""
    row = connection.execute(_USERS.where(condition)).first()
    return _user(row, secrets, _memberships(connection, [row.id])[row.id]) if row else None


def users_page(
    connection: Connection,
    secrets: Secrets,
    project: ProjectId | None,
    request: PageRequest,
    *,
    details: bool,
) -> Page[User]:
    """Return a users_page of all users, or of a project's members, with memberships if `details`. Raises `InvalidInput`."""
    query, total = _USERS, None
    if project is not None:
        total = _count_members(connection, project)
        query = _USERS.where(_is_one_of_many(project) if total > _MANY else _is_one_of_few(project))
    rows = read_page(connection, query, users.c.number, request, total=total)
    found = _memberships(connection, [row.id for row in rows.items] if details else [])
    return rows.map(lambda row: _user(row, secrets, found[row.id]))


def bearer_of(connection: Connection, own: str, named: str) -> Principal | None:
    """Return whom a token stands for: by the digest as a user's own, then by the user_where as a named token."""
    row = connection.execute(_BEARERS.where(users.c.token_digest == own)).first()
    if row is not None:
        return _with_roles(connection, row)
    row = connection.execute(_BY_NAMED_TOKEN.where(named_tokens.c.digest == named)).first()
    return _with_roles(connection, row, _login(row)) if row is not None else None


def bound_principal(connection: Connection, issuer: str, subject: str) -> tuple[Principal, bool] | None:
    """Return who is bound_principal to an identity at an issuer, and whether user and binding were made at the first login."""
    row = connection.execute(_BOUND.where(bindings.c.issuer == issuer, bindings.c.subject == subject)).first()
    return (_with_roles(connection, row), row.by_login) if row is not None else None


def _with_roles(connection: Connection, row: Row[Any], login: Login | None = None) -> Principal:
    places = connection.execute(
        select(memberships.c.project_id, memberships.c.roles).where(memberships.c.user_id == row.id)
    )
    roles = {ProjectId(place.project_id): frozenset(_roles(place.roles)) for place in places}
    return Principal(row.id, row.name, frozenset(_roles(row.service_roles)), roles, login)


def _login(row: Row[Any]) -> Login:
    return Login(row.token_name, row.token_id, row.expires_on, rights_read(row.rights))


def _count_members(connection: Connection, project: ProjectId) -> int:
    count = select(func.count()).select_from(memberships).where(memberships.c.project_id == project)
    return connection.scalar(count) or 0


def _is_one_of_few(project: ProjectId) -> ColumnElement[bool]:
    """Find the members and put them in order: best when they are few."""
    return users.c.id.in_(select(memberships.c.user_id).where(memberships.c.project_id == project))


def _is_one_of_many(project: ProjectId) -> ColumnElement[bool]:
    """Go through the users in order until there are enough members: best when many are."""
    return exists().where(memberships.c.project_id == project, memberships.c.user_id == users.c.id)


def _memberships(connection: Connection, ids: Sequence[UserId]) -> Mapping[UserId, Sequence[Membership]]:
    found: defaultdict[UserId, list[Membership]] = defaultdict(list)
    for start in range(0, len(ids), _CHUNK):
        chunk = {"ids": ids[start : start + _CHUNK]}
        of_topics = _listed(connection, _OF_TOPICS, chunk)
        of_subscriptions = _listed(connection, _OF_SUBSCRIPTIONS, chunk)
        for row in connection.execute(_MEMBERS, chunk).all():
            place = (row.user_id, row.project_id)
            lists = tuple(of_topics[place]), tuple(of_subscriptions[place])
            found[row.user_id].append(Membership(row.name, _roles(row.roles), *lists))
    return found


def _listed(
    connection: Connection, query: Select[Any], chunk: Mapping[str, Sequence[UserId]]
) -> defaultdict[_Place, list[Any]]:
    """Return the short names of the resources whose access lists hold these users, oldest first."""
    # Put in order here: asked for the order, SQLite goes through all resources rather than the few on the lists.
    rows = sorted(connection.execute(query, chunk).all(), key=lambda row: row.number)
    found: defaultdict[_Place, list[Any]] = defaultdict(list)
    for row in rows:
        found[row.user_id, row.project_id].append(row.name)
    return found


def _user(row: Row[Any], secrets: Secrets, entries: Sequence[Membership]) -> User:
    return User(
        id=row.id,
        name=row.name,
        email=row.email,
        first_name=row.first_name,
        last_name=row.last_name,
        organization=row.organization,
        description=row.description,
        service_roles=_roles(row.service_roles),
        memberships=tuple(entries),
        created_on=row.created_on,
        modified_on=row.modified_on,
        created_by=row.creator,
        token=_token(row, secrets),
    )


def _token(row: Row[Any], secrets: Secrets) -> str | None:
    """Return the token; None when it is damaged, which must not hide its user, nor the others of a list."""
    try:
        return secrets.decrypt(row.token_sealed, row.id)
    except Damaged as error:
        logger.error("user.token_damaged", user=row.name, reason=error.message)
        return None


@functools.lru_cache(1024)
def _roles(text: str) -> tuple[str, ...]:
    """Read a column of roles; there are few different ones, and a users_page of users has hundreds."""
    return tuple(json.loads(text))
