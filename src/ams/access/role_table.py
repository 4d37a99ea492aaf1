"""The table of permissions as a deployment has it: the default one, with the rows that its role file names replaced.

A role file is JSON in the form of the reference's collection, `[{"resource": "topics:publish", "roles": [...]}]`, or
a map from actions to lists of roles, in JSON or (named `*.toml`) in TOML (HTTP contract 3.3 and 3.4).
"""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ams.access.permissions import OPEN, PERMISSIONS
from ams.access.roles import ROLES, SELF
from ams.core.errors import BadSettings
from ams.core.names import is_name

NOT_SUPPORTED = "_admin_"
"""A role that passed every check of the reference (17.3, U9)."""

Rows = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class RoleTable:
    """Which roles may do what, and which roles there are."""

    permissions: Rows = field(default_factory=lambda: PERMISSIONS)

    @property
    def roles(self) -> frozenset[str]:
        """Every valid name: those valid from the start, and those that occur only in the table."""
        return ROLES.union(*self.permissions.values()) - {SELF}


def role_table(path: str) -> RoleTable:
    """Return the table with the rows of the role file at `path`, the default one when that is empty.

    Raises `BadSettings` with one line for a file that cannot be read, another shape, an action that does not exist or
    is open to everybody, one named twice, and a name that can be no role.
    """
    if not path:
        return RoleTable()
    try:
        return RoleTable({**PERMISSIONS, **_rows(_content(path))})
    except (OSError, ValueError, RecursionError) as error:
        raise BadSettings(f"roles file {path}: {error}") from error


def _content(path: str) -> Any:
    with open(path, "rb") as file:
        return tomllib.load(file) if path.endswith(".toml") else json.load(file, object_pairs_hook=_object)


def _object(members: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in members:
        if name in found:
            raise ValueError(f"{name!r} is there twice")
        found[name] = value
    return found


def _rows(content: Any) -> dict[str, frozenset[str]]:
    pairs = content.items() if isinstance(content, dict) else _collection(content)
    rows: dict[str, frozenset[str]] = {}
    for named, roles in pairs:
        action = _action(named)
        if action in rows:
            raise ValueError(f"action {action!r} is there twice")
        rows[action] = _roles(action, roles)
    return rows


def _collection(content: Any) -> list[tuple[Any, Any]]:
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise ValueError('must map actions to lists of roles, or be a list of {"resource": ..., "roles": [...]}')
    return [(row.get("resource"), row.get("roles")) for row in content]


def _action(action: Any) -> str:
    if not isinstance(action, str) or action not in PERMISSIONS:
        raise ValueError(f"there is no action {action!r}")
    if PERMISSIONS[action] == OPEN:
        raise ValueError(f"action {action!r} is open and has no roles")
    return action


def _roles(action: str, roles: Any) -> frozenset[str]:
    if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
        raise ValueError(f"the roles of {action!r} must be a list of names")
    for role in roles:
        if role != SELF and (role == NOT_SUPPORTED or not is_name(role)):
            raise ValueError(f"{role!r} cannot be a role of {action!r}")
    return frozenset(roles)
