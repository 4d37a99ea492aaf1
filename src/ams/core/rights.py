"""Rights restrict a token to some of its user's permissions.

A right is an action of the API (`topics:publish`) on a resource (`projects/P/topics/T`). Rights only restrict: the user
still needs the role for the action and a place on the access list. Resources are matched by name, so a right also holds
for a topic created again under the same name.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ams.core.errors import refuse_if
from ams.core.names import is_name, is_resource_name

ANY = "*"  # any action; any resource
MAX_RIGHTS = 100  # rights of one token

PUBLISH = ("topics:publish", "topics:show")
CONSUME = (
    "subscriptions:pull",
    "subscriptions:acknowledge",
    "subscriptions:nack",
    "subscriptions:modifyAckDeadline",
    "subscriptions:show",
    "subscriptions:offsets",
)
"""Actions for publishing and consuming; `:show`, as the official library looks the resource up first."""

_KINDS = {
    "topics": "topic",
    "subscriptions": "subscription",
    "snapshots": "snapshot",
    "schemas": "schema",
    "members": "user",
}
"""Route variables by the part of a resource's path."""


class Right(NamedTuple):
    """One action on one resource, with its children."""

    action: str  # `KIND:VERB` as in the table of permissions, or `*`
    resource: str  # `projects/P`, which includes all that is in it, `projects/P/topics/T` and so on, or `*`


Rights = tuple[Right, ...]


def validate(rights: Iterable[tuple[str, str]], actions: Iterable[str]) -> Rights:
    """Return the rights without duplicates. Raises `InvalidInput` for an unknown action or a malformed resource."""
    found = tuple(dict.fromkeys(Right(action, resource) for action, resource in rights))
    refuse_if(not found, "A token is good for something: give it a right, or leave rights out for all of the user's")
    refuse_if(len(found) > MAX_RIGHTS, f"A token has at most {MAX_RIGHTS} rights")
    known = {ANY, *actions}
    for each in found:
        refuse_if(each.action not in known, f"invalid action: {each.action}")
        refuse_if(not is_resource(each.resource), f"invalid resource: {each.resource}")
    return found


def is_resource(text: str) -> bool:
    """Return whether this is `*`, a project, or a resource in a project."""
    parts = text.split("/")
    if text == ANY:
        return True
    if len(parts) not in (2, 4) or parts[0] != "projects" or not is_name(parts[1]):
        return False
    is_one = is_name if parts[2:3] == ["members"] else is_resource_name
    return len(parts) == 2 or (parts[2] in _KINDS and is_one(parts[3]))


def allow(rights: Rights, action: str, names: Mapping[str, str]) -> bool:
    """Return whether a right covers `action` on the resource of a request; `names` are its path variables."""
    # Empty outside projects: then only `*` matches.
    project, resource = names.get("project"), ""
    if project is not None:
        kinds = [f"/{kind}/{names[variable]}" for kind, variable in _KINDS.items() if variable in names]
        resource = f"projects/{project}" + (kinds[0] if kinds else "")
    return any(
        each.action in (ANY, action) and (each.resource in (ANY, resource) or resource.startswith(each.resource + "/"))
        for each in rights
    )
