"""`ams admin`: the tokens of users, and the key they are stored under."""

import asyncio

import typer

from ams.cli.arguments import DATA_FOLDER, DataFolder, Output, UserName
from ams.cli.command import Session, with_session
from ams.cli.output import Format, document, emit, note
from ams.cli.users import show_user
from ams.client import wire
from ams.core.settings import environment

app = typer.Typer(help="Tokens of users, and the key they are stored under.", no_args_is_help=True)
tokens = typer.Typer(help="Tokens of users.", no_args_is_help=True)
app.add_typer(tokens, name="tokens")

_NEW_ONE = "for a new one: ams admin tokens refresh"


@tokens.command()
@with_session
def show(session: Session, user: UserName) -> None:
    """Show a user with the token."""
    found = session.call(wire.get_user(user))
    show_user(session, found, token=True)
    if not found.token:
        note(f"the service does not show the token (to you, or since show_tokens is off); {_NEW_ONE} {user}")


@tokens.command()
@with_session
def refresh(session: Session, user: UserName) -> None:
    """Give a user a new token and show it; the old one is dead at once."""
    show_user(session, session.call(wire.refresh_token(user)), token=True)


@app.command()
def rotate_key(data: DataFolder = DATA_FOLDER, output: Output = Format.TABLE) -> None:
    """Encrypt the stored tokens with a new key; the service must be stopped, and all tokens stay valid."""
    # Here, not above: no other admin command needs the registry.
    from ams.app import rotating

    given = environment()
    own, new = given.get("AMS_TOKEN_KEY", ""), given.get("AMS_NEW_TOKEN_KEY", "")
    registry, password = given.get("AMS_REGISTRY", "sqlite"), given.get("AMS_REGISTRY_PASSWORD", "")
    if registry == "sqlite":
        rotated = asyncio.run(rotating.rotate_key(data, token_key=own, new_token_key=new))
    else:
        rotated = asyncio.run(rotating.rotate_shared_key(registry, password, own, new))
    if output is Format.JSON:
        emit(document({"tokens": rotated.tokens, "file": rotated.file}))
        return
    where = f"The new key is in {rotated.file}." if rotated.file else "Set AMS_TOKEN_KEY to the new key before a start."
    emit(f"Encrypted anew: {rotated.tokens:,} tokens; they stay valid.\n{where} Backups taken before need the old key.")
