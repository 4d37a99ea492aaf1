"""Reads and formats rights: of tokens, of role rules of issuers, and on access lists.

`ams acl` is here: the access lists of topics and subscriptions.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, NamedTuple

from ams.cli.arguments import MemberNames, Resource, Texts, argument, member_names, option
from ams.cli.command import CommandGroup, Session
from ams.cli.exit_codes import Usage
from ams.cli.output import columns
from ams.client import wire
from ams.client.errors import NotFound
from ams.client.wire import Call
from ams.core.rights import ANY, CONSUME, PUBLISH, is_resource

app = CommandGroup(
    "ams acl show topics/readings", "ams acl add subs/watering sprinkler", "ams acl set topics/readings --none"
)

ALL_RIGHTS = "all of the user's"  # shown for a token without reduced rights


def resource(kind: str, text: str, project: str | None) -> str:
    """Return the full name of a topic or subscription, given by name or path. Raises `Usage`."""
    path = text.removeprefix("/")
    if "/" not in path:
        if not project:
            raise Usage(f"{text!r} is of no project: give --project, or say projects/P/{kind}/{text}")
        path = f"projects/{project}/{kind}/{path}"
    if not is_resource(path) or f"/{kind}/" not in path:
        raise Usage(f"{text!r} is neither a name nor projects/P/{kind}/NAME")
    return path


def shorthands(publish: Sequence[str], consume: Sequence[str], project: str | None) -> list[wire.Right]:
    """Return the rights to publish to and consume from these topics and subscriptions."""
    topics = [(resource("topics", each, project), PUBLISH) for each in publish]
    subscriptions = [(resource("subscriptions", each, project), CONSUME) for each in consume]
    return [wire.Right(action, on) for on, actions in (*topics, *subscriptions) for action in actions]


def right(text: str) -> wire.Right:
    """Read ACTION=RESOURCE. Raises `Usage`; only the service checks the action."""
    action, _, on = text.partition("=")
    on = on.removeprefix("/")
    if not (action == ANY or ":" in action) or not is_resource(on):
        raise Usage(f"{text!r} must look like ACTION=RESOURCE, such as topics:publish=projects/P/topics/T")
    return wire.Right(action=action, resource=on)


def rule_texts(rules: Iterable[wire.RoleRule]) -> tuple[str, ...]:
    """Format role rules as sorted PROJECT=ROLE=ENTITLEMENT texts; equal texts mean equal rules."""
    return tuple(sorted({f"{rule.project}={role}={rule.entitlement}" for rule in rules for role in rule.roles}))


def rules(texts: Iterable[str]) -> list[wire.RoleRule]:
    """Read PROJECT=ROLE=ENTITLEMENT texts, grouped by entitlement and project. Raises `Usage`.

    The entitlement is last, as it may hold any character: `urn:mace:egi.eu:group:garden:role=member#aai.egi.eu`.
    """
    roles: dict[tuple[str, str], list[str]] = {}
    for text in texts:
        project, _, rest = text.partition("=")
        role, _, entitlement = rest.partition("=")
        if not (project and role and entitlement):
            raise Usage(f"{text!r} must look like PROJECT=ROLE=ENTITLEMENT")
        roles.setdefault((entitlement, project), []).append(role)
    return [wire.RoleRule(entitlement, project, each) for (entitlement, project), each in roles.items()]


def format_rights(rights: Sequence[wire.Right] | None) -> str:
    """Format rights for a table, grouped by resource."""
    if rights is None:
        return ALL_RIGHTS
    actions: dict[str, list[str]] = {}
    for each in rights:
        actions.setdefault(each.resource, []).append(each.action)
    shorthand = {frozenset(PUBLISH): "publish", frozenset(CONSUME): "consume"}
    return "; ".join(f"{shorthand.get(frozenset(each)) or ', '.join(each)} on {on}" for on, each in actions.items())


Users = Annotated[Texts, argument("[USER]...", "Names of members.", member_names)]
NoUsers = Annotated[bool, option("Empty the list.", "--none")]

_NO_MEMBERS = re.compile(r"User\(s\): (.+) do not exist")


@contextmanager
def _telling_of_members(project: str) -> Iterator[None]:
    """Explain that users are not members: the service's error only says that they do not exist."""
    try:
        yield
    except NotFound as error:
        named = _NO_MEMBERS.fullmatch(error.message)
        if named is None:
            raise
        how = f"`ams members add USER --project {project} --role ROLE` adds one who is a user"
        raise NotFound(f"not members of project {project}: {named[1]} ({how})", error.code, error.status) from error


def acl_text(found: wire.Acl) -> str:
    """Format an access list, and users of its policy without effect."""
    lines = [*found.authorized_users, *(f"{each} (without effect)" for each in found.without_effect)]
    return columns(("USER",), [(line,) for line in lines])


class AccessList(NamedTuple):
    """Calls that get, replace and change access lists of a kind of resource."""

    get: Callable[[str, str], Call[wire.Acl]]
    modify: Callable[[str, str, Sequence[str]], Call[None]]
    change: Callable[[str, str, Sequence[str], Sequence[str]], Call[wire.Acl]]

    def replace(self, session: Session, name: str, users: Texts, *, none: bool) -> None:
        """Replace a resource's access list and print it.

        Only `none` empties it, so that forgotten names do not. Raises `Usage`.
        """
        if bool(users) == none:
            raise Usage("name the users of the access list, or give --none to empty it")
        with _telling_of_members(session.project):
            session.call(self.modify(session.project, name, users or []))
        found = wire.Acl(users or [])
        session.show(found, acl_text(found))

    def edit(self, session: Session, name: str, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        """Add users to and remove users from a resource's access list, and print it."""
        with _telling_of_members(session.project):
            found = session.call(self.change(session.project, name, add, remove))
        session.show(found, acl_text(found))


TOPIC_LIST = AccessList(wire.get_topic_acl, wire.modify_topic_acl, wire.change_topic_acl)
SUBSCRIPTION_LIST = AccessList(wire.get_subscription_acl, wire.modify_subscription_acl, wire.change_subscription_acl)

_KINDS = {"topics": TOPIC_LIST, "subs": SUBSCRIPTION_LIST, "subscriptions": SUBSCRIPTION_LIST}


@app.shows(acl_text)
def show(session: Session, resource: Resource) -> Call[wire.Acl]:
    """Show who may publish to a topic, or consume from a subscription."""
    access_list, name = _split(resource)
    return access_list.get(session.project, name)


@app.does("set")
def set_(session: Session, resource: Resource, users: Users = None, none: NoUsers = False) -> None:
    """Set the users on the list; this replaces it."""
    access_list, name = _split(resource)
    access_list.replace(session, name, users, none=none)


@app.does()
def add(session: Session, resource: Resource, users: MemberNames) -> None:
    """Add users to the list; others stay on it."""
    access_list, name = _split(resource)
    access_list.edit(session, name, add=users)


@app.does()
def remove(session: Session, resource: Resource, users: MemberNames) -> None:
    """Remove users from the list; others stay on it."""
    access_list, name = _split(resource)
    found = session.call(access_list.get(session.project, name)).authorized_users
    missing = [user for user in users if user not in found]
    if missing:
        raise Usage(f"not on the access list of {resource}: {', '.join(missing)}")
    access_list.edit(session, name, remove=users)


def _split(resource: str) -> tuple[AccessList, str]:
    kind, separator, name = resource.partition("/")
    if kind not in _KINDS or not separator or not name:
        raise Usage(f"{resource!r} must look like topics/TOPIC or subs/SUB")
    return _KINDS[kind], name
