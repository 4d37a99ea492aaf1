"""`ams authn`: the certificate service, and what an administrator keeps there."""

import typer

app = typer.Typer(
    help="The certificate service: logins with certificates, and who they stand for.", no_args_is_help=True
)


@app.command()
def serve() -> None:
    """Run the certificate service."""
    # Never runs: `ams.cli.main` gives these two words to `ams.cli.authn.serve`. This line of the overview does.


@app.callback()
def authn() -> None:
    """Keep this a group of commands, however few it has."""
