"""`ams registrations`: who asked to become a user, and what was decided."""

from enum import StrEnum
from typing import Annotated

import typer

from ams.cli.arguments import UserName
from ams.cli.command import Session, with_session
from ams.cli.output import columns, fields
from ams.cli.users import Description, Email, FirstName, LastName, Organization, show_user
from ams.client import wire

app = typer.Typer(help="Who asked to become a user, and what was decided.", no_args_is_help=True)

Uuid = Annotated[str, typer.Argument(metavar="UUID", help="The registration, as listed.", show_default=False)]


class Status(StrEnum):
    """What may have become of a registration."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    DECLINED = "declined"


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
) -> None:
    """Ask that somebody become a user of this name."""
    details = wire.UserDetails(
        email=email,
        first_name=first_name,
        last_name=last_name,
        organization=organization,
        description=description,
    )
    _show(session, session.call(wire.register(user, details)))


@app.command("list")
@with_session
def list_(
    session: Session,
    status: Annotated[Status | None, typer.Option(help="Only these.")] = None,
    user: Annotated[str, typer.Option(metavar="USER", help="Only those for this name.")] = "",
    email: Annotated[str, typer.Option(help="Only those with this address.")] = "",
    organization: Annotated[str, typer.Option(help="Only those of this organization.")] = "",
) -> None:
    """List registrations, oldest first."""
    call = wire.list_registrations(status=status or "", name=user, email=email, organization=organization)
    found = session.call(call)
    rows = [
        (each.uuid, each.name, each.email, each.organization, each.status, each.registered_at)
        for each in found.user_registrations
    ]
    session.show(found, columns(("UUID", "USER", "EMAIL", "ORGANIZATION", "STATUS", "REGISTERED"), rows))


@app.command()
@with_session
def show(session: Session, uuid: Uuid) -> None:
    """Show one registration."""
    _show(session, session.call(wire.get_registration(uuid)))


@app.command()
@with_session
def accept(session: Session, uuid: Uuid) -> None:
    """Make the user who was asked for, and show the token."""
    show_user(session, session.call(wire.accept_registration(uuid)), token=True)


@app.command()
@with_session
def decline(
    session: Session, uuid: Uuid, comment: Annotated[str, typer.Option(help="Why; kept with the registration.")] = ""
) -> None:
    """Refuse a registration."""
    session.call(wire.decline_registration(uuid, comment))
    session.done(f"registration {uuid} declined")


@app.command()
@with_session
def delete(session: Session, uuid: Uuid) -> None:
    """Forget a registration, decided or not; the user it became stays."""
    session.call(wire.delete_registration(uuid))
    session.done(f"registration {uuid} deleted")


def _show(session: Session, registration: wire.Registration) -> None:
    values = {
        "registration": registration.uuid,
        "user": registration.name,
        "email": registration.email,
        "name": f"{registration.first_name} {registration.last_name}".strip(),
        "organization": registration.organization,
        "description": registration.description,
        "status": registration.status,
        "registered": registration.registered_at,
        "decided": registration.modified_at,
        "decided by": registration.modified_by,
        "comment": registration.decline_comment,
    }
    session.show(registration, fields(values))
