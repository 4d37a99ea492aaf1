"""The users of an access list, as a command line names them."""

from collections.abc import Sequence
from typing import Annotated

import typer

from ams.cli.exits import Usage

Users = Annotated[list[str] | None, typer.Argument(metavar="[USER]...", help="Names of members.", show_default=False)]
NoUsers = Annotated[bool, typer.Option("--none", help="Empty the list.")]


def chosen_users(users: Sequence[str] | None, *, none: bool) -> list[str]:
    """Return the users named; emptying a list must be said, so that a forgotten name does not do it."""
    if bool(users) == none:
        raise Usage("name the users of the access list, or give --none to empty it")
    return list(users or ())
