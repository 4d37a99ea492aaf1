"""`ams admin users`."""

from typing import Annotated

import typer

from ams.cli.admin.show import show_user, show_users
from ams.cli.command import Session, with_session
from ams.cli.exits import Usage
from ams.client import wire

app = typer.Typer(help="Users of the service.", no_args_is_help=True)

UserName = Annotated[str, typer.Argument(metavar="USER", help="Name of the user.", show_default=False)]
Email = Annotated[str | None, typer.Option(help="Address.")]
FirstName = Annotated[str | None, typer.Option(help="First name.")]
LastName = Annotated[str | None, typer.Option(help="Last name.")]
Organization = Annotated[str | None, typer.Option(help="Organization.")]
Description = Annotated[str | None, typer.Option(help="What the user is for.")]
ServiceRoles = Annotated[list[str] | None, typer.Option("--service-role", metavar="ROLE", help="May be repeated.")]
ProjectRoles = Annotated[
    list[str] | None, typer.Option("--role", metavar="PROJECT=ROLE", help="Role in a project; may be repeated.")
]


@app.command("list")
@with_session
def list_(
    session: Session, member_of: Annotated[str, typer.Option(metavar="PROJECT", help="Only its members.")] = ""
) -> None:
    """List users, newest first."""
    show_users(session, session.call(wire.list_users(project=member_of, details=True)))


@app.command()
@with_session
def show(session: Session, user: UserName) -> None:
    """Show one user; the token is not shown."""
    show_user(session, session.call(wire.get_user(user)))


@app.command()
@with_session
def create(
    session: Session,
    user: UserName,
    email: Email = None,
    first_name: FirstName = None,
    last_name: LastName = None,
    organization: Organization = None,
    description: Description = None,
    service_role: ServiceRoles = None,
    role: ProjectRoles = None,
) -> None:
    """Make a user and show the token."""
    details = wire.UserDetails(
        email=email,
        first_name=first_name,
        last_name=last_name,
        organization=organization,
        description=description,
        service_roles=service_role or None,
        projects=memberships(role or []) or None,
    )
    show_user(session, session.call(wire.create_user(user, details)), token=True)


@app.command()
@with_session
def delete(session: Session, user: UserName) -> None:
    """Remove a user; the token is dead at once."""
    session.call(wire.delete_user(user))
    session.done(f"user {user} deleted")


def memberships(pairs: list[str]) -> list[wire.Membership]:
    """Gather PROJECT=ROLE pairs by project; raise `Usage` for what is no pair."""
    roles: dict[str, list[str]] = {}
    for pair in pairs:
        project, separator, role = pair.partition("=")
        if not (project and separator and role):
            raise Usage(f"--role {pair!r} must look like PROJECT=ROLE")
        roles.setdefault(project, []).append(role)
    return [wire.Membership(project=project, roles=each) for project, each in roles.items()]
