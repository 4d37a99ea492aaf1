"""`ams authn keys`: named management keys, with what they may."""

from enum import StrEnum
from typing import Annotated

import typer

from ams.cli.authn.command import KeyName, with_authn
from ams.cli.command import Session, examples
from ams.cli.output import columns, fields
from ams.client.wire import authn

app = typer.Typer(
    help="Management keys of the certificate service, by name.",
    no_args_is_help=True,
    epilog=examples("ams authn keys create dashboard --scope read", "ams authn keys delete dashboard"),
)


class Scope(StrEnum):
    """What a key may."""

    READ = "read"
    WRITE = "write"


@app.command("list")
@with_authn
def list_(session: Session) -> None:
    """List the keys; none is shown."""
    found = session.call(authn.list_keys())
    rows = [(each.name, each.scope, each.created_on) for each in found.keys]
    session.show(found, columns(("KEY", "SCOPE", "CREATED"), rows))


@app.command()
@with_authn
def create(
    session: Session,
    name: KeyName,
    scope: Annotated[Scope, typer.Option(help="Whether it may write, or read only.")] = Scope.READ,
) -> None:
    """Make a key and show it, this once."""
    made = session.call(authn.create_key(name, scope))
    session.show(made, fields({"name": made.name, "scope": made.scope, "key": made.key, "created": made.created_on}))


@app.command()
@with_authn
def delete(session: Session, name: KeyName) -> None:
    """Take a key away; it opens nothing any more."""
    session.call(authn.delete_key(name))
    session.done(f"key {name} deleted")
