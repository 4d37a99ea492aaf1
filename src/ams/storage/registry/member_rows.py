"""Writing memberships to their table, in a connection's transaction."""

import json
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, delete, insert, select, update

from ams.core.names import ProjectId, UserId
from ams.storage.registry.tables import memberships

Roles = Mapping[ProjectId, Sequence[str]]
"""Memberships: the roles in each project."""


def roles_written(roles: Sequence[str]) -> str:
    """Write a column of roles: each once, in the order in which they were given."""
    return json.dumps(list(dict.fromkeys(roles)))


def add_memberships(connection: Connection, user: UserId, roles: Roles) -> None:
    """Make a user a member of projects it is no member of."""
    rows = [{"user_id": user, "project_id": project, "roles": roles_written(given)} for project, given in roles.items()]
    if rows:
        connection.execute(insert(memberships), rows)


def roles_to_change(connection: Connection, user: UserId, roles: Roles) -> Roles:
    """Return those of the roles that a user does not have just so, in whatever order; no roles are no membership."""
    query = select(memberships.c.project_id, memberships.c.roles).where(memberships.c.user_id == user)
    held = {row.project_id: row.roles for row in connection.execute(query)}
    return {project: given for project, given in roles.items() if not _are_held(held.get(project), given)}


def put_memberships(connection: Connection, user: UserId, roles: Roles) -> None:
    """Give a user these roles in these projects; a membership without roles is ended."""
    for project, given in roles.items():
        place = (memberships.c.user_id == user) & (memberships.c.project_id == project)
        if not given:
            connection.execute(delete(memberships).where(place))
        elif not connection.execute(update(memberships).where(place).values(roles=roles_written(given))).rowcount:
            add_memberships(connection, user, {project: given})


def _are_held(column: str | None, given: Sequence[str]) -> bool:
    if column is None:
        return not given
    return bool(given) and set(json.loads(column)) == set(given)
