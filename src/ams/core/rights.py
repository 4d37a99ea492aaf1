"""Rights: what a token is good for, of what its user may do.

A right is an action of the API (`topics:publish`) and the resource it is for (`projects/P/topics/T`). Rights only take
away: the user of the token needs the role for the action besides, and a place on the access list. Resources go by
name, so a topic that is deleted and made again under the same name is the one meant.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ams.core.errors import InvalidInput
from ams.core.names import is_name, is_resource_name

ANY = "*"  # any action; any resource
MOST = 100  # rights of one token

PUBLISH = ("topics:publish", "topics:show")
CONSUME = (
    "subscriptions:pull",
    "subscriptions:acknowledge",
    "subscriptions:nack",
    "subscriptions:modifyAckDeadline",
    "subscriptions:show",
    "subscriptions:offsets",
)
"""Actions of a client of a topic, and of a subscription; the official library looks it up first."""

_KINDS = {
    "topics": "topic",
    "subscriptions": "subscription",
    "snapshots": "snapshot",
    "schemas": "schema",
    "members": "user",
}
"""Parts of a resource's path, and the variables of routes they stand for."""


class Right(NamedTuple):
    """One thing a token is good for."""

    action: str  # `KIND:VERB` as in the table of permissions, or `*`
    resource: str  # `projects/P`, which includes all that is in it, `projects/P/topics/T` and so on, or `*`


Rights = tuple[Right, ...]


def checked(rights: Iterable[tuple[str, str]], actions: Iterable[str]) -> Rights:
    """Return rights, each once; raise `InvalidInput` for an action that is none of `actions`, or for no resource."""
    found = tuple(dict.fromkeys(Right(action, resource) for action, resource in rights))
    if not found:
        raise InvalidInput("A token is good for something: give it a right, or leave rights out for all of the user's")
    if len(found) > MOST:
        raise InvalidInput(f"A token has at most {MOST} rights")
    known = {ANY, *actions}
    for each in found:
        if each.action not in known:
            raise InvalidInput(f"invalid action: {each.action}")
        if not is_resource(each.resource):
            raise InvalidInput(f"invalid resource: {each.resource}")
    return found


def is_resource(text: str) -> bool:
    """Return whether a right may be for this: a project or something in it, or everything."""
    parts = text.split("/")
    if text == ANY:
        return True
    if len(parts) not in (2, 4) or parts[0] != "projects" or not is_name(parts[1]):
        return False
    is_one = is_name if parts[2:3] == ["members"] else is_resource_name
    return len(parts) == 2 or (parts[2] in _KINDS and is_one(parts[3]))


def allow(rights: Rights, action: str, names: Mapping[str, str]) -> bool:
    """Return whether one of the rights is for `action` on what a request's path names, by variable."""
    # Empty for what is in no project, which only a right to everything is for.
    project, resource = names.get("project"), ""
    if project is not None:
        kinds = [f"/{kind}/{names[variable]}" for kind, variable in _KINDS.items() if variable in names]
        resource = f"projects/{project}" + (kinds[0] if kinds else "")
    return any(
        each.action in (ANY, action) and (each.resource in (ANY, resource) or resource.startswith(each.resource + "/"))
        for each in rights
    )
