"""`ams acl`: access lists, and the users of one as a command line names them."""

from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

import typer

from ams.cli.arguments import MemberNames, Resource
from ams.cli.command import Session, examples, with_session
from ams.cli.completing import member_names
from ams.cli.exits import Usage
from ams.cli.output import columns
from ams.client import wire
from ams.client.wire import Call

app = typer.Typer(
    help="Access lists of topics and subscriptions.",
    no_args_is_help=True,
    epilog=examples(
        "ams acl show topics/readings", "ams acl add subs/watering sprinkler", "ams acl set topics/readings --none"
    ),
)

Users = Annotated[
    list[str] | None,
    typer.Argument(metavar="[USER]...", help="Names of members.", show_default=False, autocompletion=member_names),
]
NoUsers = Annotated[bool, typer.Option("--none", help="Empty the list.")]


class Listed(NamedTuple):
    """A kind of resource that has an access list: how the list is asked for, and how it is replaced."""

    get: Callable[[str, str], Call[wire.Acl]]
    modify: Callable[[str, str, Sequence[str]], Call[None]]


TOPIC = Listed(wire.get_topic_acl, wire.modify_topic_acl)
SUBSCRIPTION = Listed(wire.get_subscription_acl, wire.modify_subscription_acl)

_KINDS = {"topics": TOPIC, "subs": SUBSCRIPTION, "subscriptions": SUBSCRIPTION}


def chosen_users(users: Sequence[str] | None, *, none: bool) -> list[str]:
    """Return the users named; emptying a list must be said, so that a forgotten name does not do it."""
    if bool(users) == none:
        raise Usage("name the users of the access list, or give --none to empty it")
    return list(users or ())


@app.command()
@with_session
def show(session: Session, resource: Resource) -> None:
    """Show who may publish to a topic, or consume from a subscription."""
    show_list(session, *_split(resource))


@app.command("set")
@with_session
def set_(session: Session, resource: Resource, users: Users = None, none: NoUsers = False) -> None:
    """Say who is on the list; this replaces it."""
    replace_list(session, *_split(resource), chosen_users(users, none=none))


@app.command()
@with_session
def add(session: Session, resource: Resource, users: MemberNames) -> None:
    """Put users on the list; who changes it at the same moment may undo that."""
    kind, name = _split(resource)
    found = session.call(kind.get(session.project, name)).authorized_users
    replace_list(session, kind, name, list(dict.fromkeys([*found, *users])))


@app.command()
@with_session
def remove(session: Session, resource: Resource, users: MemberNames) -> None:
    """Take users off the list; who changes it at the same moment may undo that."""
    kind, name = _split(resource)
    found = session.call(kind.get(session.project, name)).authorized_users
    missing = [user for user in users if user not in found]
    if missing:
        raise Usage(f"not on the access list of {resource}: {', '.join(missing)}")
    replace_list(session, kind, name, [user for user in found if user not in users])


def show_list(session: Session, kind: Listed, name: str) -> None:
    """Write the access list of a resource."""
    _show(session, session.call(kind.get(session.project, name)).authorized_users)


def replace_list(session: Session, kind: Listed, name: str, users: list[str]) -> None:
    """Replace the access list of a resource and write the new one."""
    session.call(kind.modify(session.project, name, users))
    _show(session, users)


def _split(resource: str) -> tuple[Listed, str]:
    kind, separator, name = resource.partition("/")
    if kind not in _KINDS or not separator or not name:
        raise Usage(f"{resource!r} must look like topics/TOPIC or subs/SUB")
    return _KINDS[kind], name


def _show(session: Session, users: list[str]) -> None:
    session.show(wire.Acl(authorized_users=users), columns(("USER",), [(user,) for user in users]))
