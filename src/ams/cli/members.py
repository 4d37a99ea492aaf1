"""`ams members`: who belongs to the project of --project."""

from typing import Annotated

import typer

from ams.cli.arguments import MemberName, UserName
from ams.cli.command import Session, examples, with_session
from ams.cli.exits import Usage
from ams.cli.paging import AllPages, PageSize, PageToken, paged
from ams.cli.users import Email, show_user, show_users
from ams.client import wire

app = typer.Typer(
    help="Members of the project, and their roles in it.",
    no_args_is_help=True,
    epilog=examples("ams members create sensor --role publisher", "ams members update sensor --role consumer"),
)

Roles = Annotated[
    list[str] | None,
    typer.Option("--role", metavar="ROLE", help="project_admin, publisher or consumer; may be repeated."),
]


NoRoles = Annotated[bool, typer.Option("--none", help="Take all roles away.")]


@app.command("list")
@with_session
def list_(session: Session, page_size: PageSize = 0, page_token: PageToken = "", every: AllPages = False) -> None:
    """List the members, newest user first."""

    def ask(size: int, token: str) -> wire.Call[wire.Users]:
        return wire.list_members(session.project, details=True, page_size=size, page_token=token)

    show_users(session, paged(session, ask, "users", page_size, page_token, every))


@app.command()
@with_session
def show(session: Session, user: MemberName) -> None:
    """Show one member; the token is not shown."""
    show_user(session, session.call(wire.get_member(session.project, user)))


@app.command()
@with_session
def create(session: Session, user: UserName, role: Roles = None, email: Email = None) -> None:
    """Make a new user who is a member, and show the token."""
    made = session.call(wire.create_member(session.project, user, role or (), email=email))
    show_user(session, made, token=True)


@app.command()
@with_session
def add(session: Session, user: UserName, role: Roles = None) -> None:
    """Make an existing user a member."""
    show_user(session, session.call(wire.add_member(session.project, user, role or ())))


@app.command()
@with_session
def update(session: Session, user: MemberName, role: Roles = None, none: NoRoles = False) -> None:
    """Say which roles a member has in the project; this replaces them."""
    if bool(role) == none:
        raise Usage("name the roles with --role, or give --none to take all away")
    show_user(session, session.call(wire.update_member(session.project, user, role or ())))


@app.command()
@with_session
def remove(session: Session, user: MemberName) -> None:
    """End a membership; the user stays."""
    session.call(wire.remove_member(session.project, user))
    session.done(f"user {user} is no member of {session.project} any more")
