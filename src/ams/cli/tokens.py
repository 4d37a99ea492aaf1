"""`ams admin tokens`: the commands whose purpose is to show a token."""

import typer

from ams.cli.arguments import UserName
from ams.cli.command import Session, with_session
from ams.cli.showing import show_user
from ams.client import wire

app = typer.Typer(help="Tokens of users.", no_args_is_help=True)


@app.command()
@with_session
def show(session: Session, user: UserName) -> None:
    """Show a user with the token."""
    show_user(session, session.call(wire.get_user(user)), token=True)


@app.command()
@with_session
def refresh(session: Session, user: UserName) -> None:
    """Give a user a new token and show it; the old one is dead at once."""
    show_user(session, session.call(wire.refresh_token(user)), token=True)
