"""`ams users`: the users of the service."""

from typing import Annotated, NamedTuple

import msgspec
import typer

from ams.cli.arguments import UserName
from ams.cli.command import Session, examples, with_session
from ams.cli.completing import project_names
from ams.cli.exits import Usage
from ams.cli.output import columns, fields
from ams.cli.paging import AllPages, PageSize, PageToken, paged
from ams.client import wire

app = typer.Typer(
    help="Users of the service.",
    no_args_is_help=True,
    epilog=examples(
        "ams users create sensor --email sensor@site.example --role garden=publisher",
        "ams users update sensor --organization Greenhouse",
        "ams users list --member-of garden --all",
    ),
)

Email = Annotated[str | None, typer.Option(help="Address.")]
FirstName = Annotated[str | None, typer.Option(help="First name.")]
LastName = Annotated[str | None, typer.Option(help="Last name.")]
Organization = Annotated[str | None, typer.Option(help="Organization.")]
Description = Annotated[str | None, typer.Option(help="What the user is for.")]
ServiceRoles = Annotated[list[str] | None, typer.Option("--service-role", metavar="ROLE", help="May be repeated.")]
ProjectRoles = Annotated[
    list[str] | None, typer.Option("--role", metavar="PROJECT=ROLE", help="Role in a project; may be repeated.")
]


class Details(NamedTuple):
    """What a command line says about a person; None where it says nothing."""

    email: str | None
    first_name: str | None
    last_name: str | None
    organization: str | None
    description: str | None

    def with_roles(
        self, service_roles: list[str] | None, projects: list[wire.Grant] | None, *, name: str | None = None
    ) -> wire.UserDetails:
        """Return this as the service takes it."""
        return wire.UserDetails(name=name, service_roles=service_roles, projects=projects, **self._asdict())


@app.command("list")
@with_session
def list_(
    session: Session,
    member_of: Annotated[
        str, typer.Option(metavar="PROJECT", help="Only its members.", autocompletion=project_names)
    ] = "",
    page_size: PageSize = 0,
    page_token: PageToken = "",
    every: AllPages = False,
) -> None:
    """List users, newest first."""

    def ask(size: int, token: str) -> wire.Call[wire.Users]:
        return wire.list_users(project=member_of, details=True, page_size=size, page_token=token)

    show_users(session, paged(session, ask, "users", page_size, page_token, every))


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
    about = Details(email, first_name, last_name, organization, description)
    details = about.with_roles(service_role or None, memberships(role or []) or None)
    show_user(session, session.call(wire.create_user(user, details)), token=True)


@app.command()
@with_session
def update(
    session: Session,
    user: UserName,
    rename: Annotated[str | None, typer.Option(metavar="NAME", help="New name.")] = None,
    email: Email = None,
    first_name: FirstName = None,
    last_name: LastName = None,
    organization: Organization = None,
    description: Description = None,
    service_role: ServiceRoles = None,
    role: ProjectRoles = None,
) -> None:
    """Change what is known of a user; --service-role and --role replace all roles of their kind."""
    about = Details(email, first_name, last_name, organization, description)
    details = about.with_roles(service_role or None, memberships(role or []) or None, name=rename)
    if details == wire.UserDetails():
        raise Usage("say what to change, for example with --email or --role")
    show_user(session, session.call(wire.update_user(user, details)))


@app.command()
@with_session
def delete(session: Session, user: UserName) -> None:
    """Remove a user; the token is dead at once."""
    session.call(wire.delete_user(user))
    session.done(f"user {user} deleted")


def memberships(pairs: list[str]) -> list[wire.Grant]:
    """Gather PROJECT=ROLE pairs by project; raise `Usage` for what is no pair."""
    roles: dict[str, list[str]] = {}
    for pair in pairs:
        project, separator, role = pair.partition("=")
        if not (project and separator and role):
            raise Usage(f"--role {pair!r} must look like PROJECT=ROLE")
        roles.setdefault(project, []).append(role)
    return [wire.Grant(project=project, roles=each) for project, each in roles.items()]


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
