"""`ams users`, `members`, `registrations` and `admin`: the users of the service, and their tokens."""

from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Literal

import msgspec

from ams.cli.arguments import MEMBER, USER, Arguments, MemberName, Texts, UserName, argument, option, project_names
from ams.cli.command import PAGE, Columns, CommandGroup, OptionSet, PageOptions, Session, columns_of, facts, named
from ams.cli.exit_codes import Usage
from ams.cli.installation import rotate_key
from ams.cli.output import cell, note
from ams.client import wire
from ams.client.errors import NotAuthenticated
from ams.client.wire import Call

app = CommandGroup(
    "ams users create sensor --email sensor@site.example --role garden=publisher",
    "ams users update sensor --organization Greenhouse",
    "ams users list --member-of garden --all",
)
members = CommandGroup(
    "ams members create sensor --role publisher", "ams members update sensor --role consumer", of_project=True
)
registrations = CommandGroup()
tokens = CommandGroup(help="Tokens of users.")
admin = CommandGroup()
admin.add_typer(tokens, name="tokens")
admin.command()(rotate_key)

Email = Annotated[str | None, option("Address.")]
ServiceRoles = Annotated[Texts, option("May be repeated.", metavar="ROLE")]
ProjectRoles = Annotated[Texts, option("Role in a project; may be repeated.", metavar="PROJECT=ROLE")]
_ROLE = option("project_admin, publisher or consumer; may be repeated.", "--role", metavar="ROLE")
ROLES: Arguments = {"roles": (Annotated[list[str], _ROLE], [])}
UUID = {"uuid": Annotated[str, argument("UUID", "The registration, as listed.")]}
COMMENT = {"comment": (Annotated[str, option("Why; kept with the registration.")], "")}


@dataclass(frozen=True, slots=True)
class Person(OptionSet):
    """Options about a person; None if absent."""

    email: Email = None
    first_name: Annotated[str | None, option("First name.")] = None
    last_name: Annotated[str | None, option("Last name.")] = None
    organization: Annotated[str | None, option("Organization.")] = None
    description: Annotated[str | None, option("What the user is for.")] = None


def _without_token(user: wire.User) -> wire.User:
    return msgspec.structs.replace(user, token="")


def _without_tokens(found: wire.Users) -> wire.Users:
    return msgspec.structs.replace(found, users=[_without_token(each) for each in found.users])


_FIELDS: Columns = {
    "user": "name",
    **named("uuid", "token", "email"),
    "name": lambda each: f"{each.first_name} {each.last_name}".strip(),
    **named("organization", "description", "service_roles"),
    "projects": lambda user: "; ".join(f"{each.project}: {cell(each.roles) or 'no role'}" for each in user.projects),
    **named("created_on", "modified_on", "created_by"),
}
_COLUMNS = columns_of(_FIELDS, "user", "email", "service roles", "projects", "created")


@app.shows(_COLUMNS, items="users", shown=_without_tokens, name="list")
def list_(
    session: Session,
    *,
    member_of: Annotated[str, option("Only its members.", metavar="PROJECT", complete=project_names)] = "",
    page: PageOptions,
) -> Call[wire.Users]:
    """List users, newest first."""
    return wire.list_users(project=member_of, details=True, **page.query)


app.sends("show", wire.get_user, _FIELDS, "Show one user; the token is not shown.", USER, shown=_without_token)


@app.shows(_FIELDS)
def create(
    session: Session, user: UserName, person: Person, service_role: ServiceRoles = None, role: ProjectRoles = None
) -> Call[wire.User]:
    """Make a user and show the token."""
    return wire.create_user(user, _details(person, service_role, role))


@app.shows(_FIELDS, shown=_without_token)
def update(
    session: Session,
    user: UserName,
    *,
    rename: Annotated[str | None, option("New name.", metavar="NAME")] = None,
    person: Person,
    service_role: ServiceRoles = None,
    role: ProjectRoles = None,
) -> Call[wire.User]:
    """Change what is known of a user; --service-role and --role replace all roles of their kind."""
    details = _details(person, service_role, role, name=rename)
    if details == wire.UserDetails():
        raise Usage("say what to change, for example with --email or --role")
    return wire.update_user(user, details)


app.sends("delete", wire.delete_user, "user {user} deleted", "Remove a user; the token is dead at once.", USER)


def memberships(pairs: list[str]) -> list[wire.Grant]:
    """Gather PROJECT=ROLE pairs by project; raise `Usage` for what is no pair."""
    roles: dict[str, list[str]] = {}
    for pair in pairs:
        project, separator, role = pair.partition("=")
        if not (project and separator and role):
            raise Usage(f"--role {pair!r} must look like PROJECT=ROLE")
        roles.setdefault(project, []).append(role)
    return [wire.Grant(project=project, roles=each) for project, each in roles.items()]


def _details(person: Person, service_roles: Texts, roles: Texts, *, name: str | None = None) -> wire.UserDetails:
    granted = memberships(roles or []) or None
    return wire.UserDetails(name=name, service_roles=service_roles or None, projects=granted, **asdict(person))


members.sends("list", partial(wire.list_members, details=True), _COLUMNS,
    "List the members, newest user first.", PAGE, items="users", shown=_without_tokens)  # fmt: skip
members.sends("show", wire.get_member, _FIELDS,
    "Show one member; the token is not shown.", MEMBER, shown=_without_token)  # fmt: skip
members.sends("create", wire.create_member, _FIELDS,
    "Make a new user who is a member, and show the token.", USER | ROLES | {"email": (Email, None)})  # fmt: skip
members.sends("add", wire.add_member, _FIELDS, "Make an existing user a member.", USER | ROLES, shown=_without_token)


@members.shows(_FIELDS, shown=_without_token, name="update")
def update_member(
    session: Session,
    user: MemberName,
    role: Annotated[Texts, _ROLE] = None,
    none: Annotated[bool, option("Take all roles away.", "--none")] = False,
) -> Call[wire.User]:
    """Say which roles a member has in the project; this replaces them."""
    if bool(role) == none:
        raise Usage("name the roles with --role, or give --none to take all away")
    return wire.update_member(session.project, user, role or ())


members.sends("refresh-token", wire.refresh_member_token, _FIELDS,
    "Give a member a new token and show it; the old one is dead at once.", MEMBER)  # fmt: skip
members.sends("remove", wire.remove_member, "user {user} is no member of {session.project} any more",
    "End a membership; the user stays.", MEMBER)  # fmt: skip


_REGISTRATION: Columns = {
    "registration": "uuid",
    "user": "name",
    "email": "email",
    "name": lambda each: f"{each.first_name} {each.last_name}".strip(),
    **named("organization", "description", "status"),
    "registered": "registered_at",
    "decided": "modified_at",
    "decided by": "modified_by",
    "comment": "decline_comment",
}


@registrations.shows(_REGISTRATION, name="create")
def register(session: Session, user: UserName, person: Person) -> Call[wire.Registration]:
    """Register for a user account of this name."""
    return wire.register(user, wire.UserDetails(**asdict(person)))


@registrations.shows(
    {"UUID": "uuid", **columns_of(_REGISTRATION, "user", "email", "organization", "status", "registered")},
    items="user_registrations", name="list",
)  # fmt: skip
def list_registrations(
    session: Session,
    status: Annotated[Literal["pending", "accepted", "declined"] | None, option("Only these.")] = None,
    user: Annotated[str, option("Only those for this name.", metavar="USER")] = "",
    email: Annotated[str, option("Only those with this address.")] = "",
    organization: Annotated[str, option("Only those of this organization.")] = "",
) -> Call[wire.Registrations]:
    """List registrations, oldest first."""
    return wire.list_registrations(status=status or "", name=user, email=email, organization=organization)


registrations.sends("show", wire.get_registration, _REGISTRATION, "Show one registration.", UUID)
registrations.sends("accept", wire.accept_registration, _FIELDS,
    "Make the user who was asked for, and show the token.", UUID)  # fmt: skip


registrations.sends("decline", wire.decline_registration, "registration {uuid} declined",
    "Refuse a registration.", UUID | COMMENT)  # fmt: skip
registrations.sends("delete", wire.delete_registration, "registration {uuid} deleted",
    "Forget a registration, decided or not; the user it became stays.", UUID)  # fmt: skip


@tokens.does("show")
def show_token(session: Session, user: UserName) -> None:
    """Show a user with the token."""
    found = session.call(wire.get_user(user))
    session.show(found, facts(_FIELDS, found))
    if not found.token:
        note(
            "the service does not show the token (to you, or since show_tokens is off); for a new one: ams admin tokens"
            f" refresh {user}"
        )


@tokens.does("refresh")
def refresh_token(session: Session, user: UserName) -> None:
    """Give a user a new token and show it; the old one is dead at once."""
    found = session.call(wire.refresh_token(user))
    session.show(found, facts(_FIELDS, found))
    try:
        session.call(wire.get_profile())
    except NotAuthenticated:  # it was the caller's own
        note(f"the token of {session.at.login_from} is dead now: put the new one there")
