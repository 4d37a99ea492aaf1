"""`ams open`: the console in a browser, logged in."""

import secrets
import webbrowser
from typing import Annotated
from urllib.parse import urlencode

from ams.cli.arguments import option, whole_seconds
from ams.cli.command import Session, with_options
from ams.cli.exits import Usage
from ams.cli.output import emit, note
from ams.client import wire
from ams.client.errors import NotFound


@with_options
def open_(
    session: Session,
    only_print: Annotated[bool, option("Print the address instead of opening a browser.", "--print")] = False,
    expires_in: Annotated[str, option("How long the browser stays logged in.", metavar="DURATION")] = "8h",
) -> None:
    """Open the console in a browser, logged in.

    Its token is a short-lived named one of yours, in the fragment of the address: a browser sends that to nobody, and
    the page erases it at once. "Log out" revokes it, as `ams token revoke` does.
    """
    seconds = whole_seconds(expires_in)
    if not seconds:
        raise Usage(f"--expires-in {expires_in!r} is no duration such as 8h or 30m")
    try:
        session.call(wire.get_console())
    except NotFound as error:
        raise NotFound(f"{session.client.endpoint} serves no console", error.code, error.status) from error
    user = session.call(wire.get_profile()).name
    made = session.call(wire.create_token(user, f"console-{secrets.token_hex(4)}", expires_in=seconds))
    login = {"token": made.token, "name": made.name} | (
        {"project": session.chosen_project} if session.chosen_project else {}
    )
    page = f"{session.client.endpoint}/console/"
    address = f"{page}#{urlencode(login)}"
    if only_print or not webbrowser.open(address):
        emit(address)
    else:
        note(f"opened {page} in the browser")
    note(f"the token {made.name} of {user} ends in {expires_in}: ams token revoke {made.name}")
