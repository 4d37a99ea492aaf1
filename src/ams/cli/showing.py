"""How users look: with their token only where showing it is the purpose."""

import msgspec

from ams.cli.command import Session
from ams.cli.output import columns, fields
from ams.client import wire


def show_user(session: Session, user: wire.User, *, token: bool = False) -> None:
    """Write one user; the token only if asked for."""
    shown = user if token else without_token(user)
    values = {
        "user": shown.name,
        "uuid": shown.uuid,
        "token": shown.token,
        "email": shown.email,
        "name": f"{shown.first_name} {shown.last_name}".strip(),
        "organization": shown.organization,
        "description": shown.description,
        "service roles": ", ".join(shown.service_roles),
        "projects": _projects(shown),
        "created": shown.created_on,
        "modified": shown.modified_on,
        "created by": shown.created_by,
    }
    session.show(shown, fields(values))


def show_users(session: Session, found: wire.Users) -> None:
    """Write a list of users, never with tokens."""
    users = [without_token(each) for each in found.users]
    rows = [(each.name, each.email, ", ".join(each.service_roles), _projects(each), each.created_on) for each in users]
    table = columns(("USER", "EMAIL", "SERVICE ROLES", "PROJECTS", "CREATED"), rows)
    session.show(msgspec.structs.replace(found, users=users), table)


def without_token(user: wire.User) -> wire.User:
    """Return the user as it may be printed."""
    return msgspec.structs.replace(user, token="")


def _projects(user: wire.User) -> str:
    return "; ".join(f"{each.project}: {', '.join(each.roles) or 'no role'}" for each in user.projects)
