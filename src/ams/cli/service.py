"""`ams status` and `ams version`: the service as it sees itself."""

from typing import Annotated, Any

import typer

from ams import __version__
from ams.cli.command import Session, with_session
from ams.cli.output import fields, json_line
from ams.client import wire


@with_session
def status(
    session: Session,
    details: Annotated[bool, typer.Option("--details", help="Everything; for admins and viewers.")] = False,
) -> None:
    """Show how the service is."""
    found = session.call(wire.get_status(details=details))
    session.show(found, fields(_texts(found)))


@with_session
def version(session: Session) -> None:
    """Show the versions of this program and of the service."""
    found = session.call(wire.get_version())
    session.show({"client": __version__, "service": found}, fields({"client": __version__} | _texts(found)))


def _texts(found: dict[str, Any]) -> dict[str, str]:
    return {
        name.replace("_", " "): value if isinstance(value, str) else json_line(value) for name, value in found.items()
    }
