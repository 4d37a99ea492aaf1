"""Access lists of topics and subscriptions (HTTP contract 3.5): users in the order they were given."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, delete, func, insert, select

from ams.core.errors import NotFound
from ams.core.names import ProjectId, UserId, UserName
from ams.storage.registry.tables import memberships, users


def authorized(connection: Connection, access: Table, resource: str) -> frozenset[UserId]:
    """Return who is on a resource's list, for deciding."""
    return frozenset(connection.scalars(select(access.c.user_id).where(access.c.resource_id == resource)))


def names(connection: Connection, access: Table, resource: ColumnElement[bool]) -> Sequence[UserName]:
    """Return the names on the list of the resource that meets a condition, in stored order."""
    owner = next(iter(access.c.resource_id.foreign_keys)).column
    query = (
        select(users.c.name)
        .join(access, access.c.user_id == users.c.id)
        .join(owner.table, owner == access.c.resource_id)
        .where(resource)
        .order_by(access.c.position)
    )
    return connection.scalars(query).all()


def members(connection: Connection, project: ProjectId, wanted: Sequence[str]) -> Sequence[UserId]:
    """Return the identities of members of a project, in order and each once.

    Raises `NotFound` "User(s): A, B do not exist" naming all who are no members.
    """
    query = (
        select(users.c.name, users.c.id)
        .join(memberships, memberships.c.user_id == users.c.id)
        .where(memberships.c.project_id == project)
    )
    known = {row.name: row.id for row in connection.execute(query)}
    unique = list(dict.fromkeys(wanted))
    missing = [name for name in unique if name not in known]
    if missing:
        raise NotFound(f"User(s): {', '.join(missing)} do not exist")
    return [known[name] for name in unique]


def replace(connection: Connection, access: Table, resource: str, listed: Sequence[UserId]) -> None:
    """Put `listed` in the place of a resource's list."""
    connection.execute(delete(access).where(access.c.resource_id == resource))
    rows = [{"resource_id": resource, "position": position, "user_id": user} for position, user in enumerate(listed)]
    if rows:
        connection.execute(insert(access), rows)


def holding(resources: Table, access: Table, user: UserId) -> Select[Any]:
    """Return the query for the numbers of the resources whose access lists hold a user.

    By number, as these are few of many: a page then begins with them instead of going through all of a project.
    """
    listed = resources.alias("listed")
    on_list = access.c.resource_id == listed.c.id
    return select(listed.c.number).join(access, on_list).where(access.c.user_id == user)


def add(connection: Connection, access: Table, resource: str, user: UserId) -> None:
    """Put a user at the end of a resource's list, if it is not on it."""
    of_resource = access.c.resource_id == resource
    if connection.scalar(select(access.c.user_id).where(of_resource, access.c.user_id == user)) is not None:
        return
    last = connection.scalar(select(func.max(access.c.position)).where(of_resource))
    position = 0 if last is None else last + 1
    connection.execute(insert(access).values(resource_id=resource, position=position, user_id=user))


def remove(connection: Connection, access: Table, resource: str, user: UserId) -> None:
    """Take a user off a resource's list, if it is on it."""
    connection.execute(delete(access).where(access.c.resource_id == resource, access.c.user_id == user))
