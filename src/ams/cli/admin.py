"""`ams admin`: tokens and the key they are stored under."""

import typer

from ams.cli import rotation, tokens

app = typer.Typer(help="Tokens of users, and the key they are stored under.", no_args_is_help=True)
app.add_typer(tokens.app, name="tokens")
app.command("rotate-key")(rotation.rotate_key)
