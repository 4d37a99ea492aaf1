"""`ams admin members`: who belongs to the project of --project."""

from typing import Annotated

import typer

from ams.cli.admin.show import show_user, show_users
from ams.cli.admin.users import Email, UserName
from ams.cli.command import Session, with_session
from ams.client import wire

app = typer.Typer(help="Members of the project, and their roles in it.", no_args_is_help=True)

Roles = Annotated[
    list[str] | None,
    typer.Option("--role", metavar="ROLE", help="project_admin, publisher or consumer; may be repeated."),
]


@app.command("list")
@with_session
def list_(session: Session) -> None:
    """List the members, newest user first."""
    show_users(session, session.call(wire.list_members(session.project, details=True)))


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
def remove(session: Session, user: UserName) -> None:
    """End a membership; the user stays."""
    session.call(wire.remove_member(session.project, user))
    session.done(f"user {user} is no member of {session.project} any more")
