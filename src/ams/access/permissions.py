"""Permissions: role names, the permissions of the table of actions, and the overrides of a deployment.

Actions with `OPEN` are not admitted by role: their routes check the token themselves.

A role file is JSON in the form of the reference's collection, `[{"resource": "topics:publish", "roles": [...]}]`. It
may also be a map from actions to lists of roles, in JSON or (named `*.toml`) in TOML (HTTP contract 3.3 and 3.4). Its
rows replace those of the same action.
"""

import json
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from ams.core.errors import BadSettings, refuse_if
from ams.core.names import is_name
from ams.wire.actions import ACTIONS

SERVICE_ADMIN = "service_admin"
ADMIN_VIEWER = "admin_viewer"
METRICS_VIEWER = "metrics_viewer"
PUSH_WORKER = "push_worker"
ARGO_API_AUTHN = "argo_api_authn"
REGISTER_ADMIN = "register_admin"
PROJECT_ADMIN = "project_admin"
PUBLISHER = "publisher"
CONSUMER = "consumer"
SELF = "(the user itself)"  # in the table of permissions: the user named in the path, with any role

PROJECT_ROLES = frozenset({PROJECT_ADMIN, PUBLISHER, CONSUMER})  # a project_admin grants them: none is stronger (U3)
ROLES = PROJECT_ROLES | {SERVICE_ADMIN, ADMIN_VIEWER, METRICS_VIEWER, PUSH_WORKER, ARGO_API_AUTHN, REGISTER_ADMIN}
"""Built-in roles. Each may be a service role."""


def check_roles(roles: Iterable[str], valid: frozenset[str]) -> None:
    """Raise `InvalidInput` "invalid role: X" at the first name that is not valid."""
    for role in roles:
        refuse_if(role not in valid, f"invalid role: {role}")


OPEN: frozenset[str] = frozenset()  # admission opens these to no role (contract 1.5, open routes)

_ROLES = {  # by their names in the table of actions
    "SA": SERVICE_ADMIN, "PA": PROJECT_ADMIN, "PU": PUBLISHER, "CO": CONSUMER, "PW": PUSH_WORKER, "MV": METRICS_VIEWER,
    "AV": ADMIN_VIEWER, "AA": ARGO_API_AUTHN, "RA": REGISTER_ADMIN, "itself": SELF,
}  # fmt: skip

PERMISSIONS: Mapping[str, frozenset[str]] = {
    name: OPEN if action.is_open else frozenset(_ROLES[each] for each in action.roles.split())
    for name, action in ACTIONS.items()
    if not action.at_root
}


def needs_all_rights(action: str) -> bool:
    """Return whether an action needs all rights of its user, because it could yield a login with more rights."""
    is_of_logins = action.partition(":")[0] in ("tokens", "bindings", "issuers")
    return is_of_logins or action in ("users:refreshToken", "projects:refreshUserToken")


def roles_in(permissions: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the valid names of roles: the built-in ones, and those that only a table of permissions has."""
    return ROLES.union(*permissions.values()) - {SELF}


def read_permissions(path: str) -> Mapping[str, frozenset[str]]:
    """Return the permissions, overridden by the role file at `path` if any. Raises `BadSettings` for a bad file."""
    if not path:
        return PERMISSIONS
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file) if path.endswith(".toml") else json.load(file, object_pairs_hook=_object)
        return {**PERMISSIONS, **_rows(content)}
    except (OSError, ValueError, RecursionError) as error:
        raise BadSettings(f"roles file {path}: {error}") from error


def _object(members: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in members:
        if name in found:
            raise ValueError(f"{name!r} is there twice")
        found[name] = value
    return found


def _rows(content: Any) -> dict[str, frozenset[str]]:
    if isinstance(content, list) and all(isinstance(row, dict) for row in content):
        content = [(row.get("resource"), row.get("roles")) for row in content]
    elif isinstance(content, dict):
        content = content.items()
    else:
        raise ValueError('must map actions to lists of roles, or be a list of {"resource": ..., "roles": [...]}')
    rows: dict[str, frozenset[str]] = {}
    for action, roles in content:
        if not isinstance(action, str) or action not in PERMISSIONS:
            raise ValueError(f"there is no action {action!r}")
        if PERMISSIONS[action] == OPEN:
            raise ValueError(f"action {action!r} is open and has no roles")
        if action in rows:
            raise ValueError(f"action {action!r} is there twice")
        if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
            raise ValueError(f"the roles of {action!r} must be a list of names")
        for role in roles:
            if role != SELF and (role == "_admin_" or not is_name(role)):  # "_admin_": 17.3, U9
                raise ValueError(f"{role!r} cannot be a role of {action!r}")
        rows[action] = frozenset(roles)
    return rows
