"""`ams admin`: tokens and the key they are stored under, and the older spellings of users, projects and members."""

import typer

from ams.cli import members, projects, rotation, tokens, users

app = typer.Typer(help="Tokens of users, and the key they are stored under.", no_args_is_help=True)
app.add_typer(tokens.app, name="tokens")
app.command("rotate-key")(rotation.rotate_key)
app.add_typer(users.app, name="users", hidden=True)
app.add_typer(projects.app, name="projects", hidden=True)
app.add_typer(members.app, name="members", hidden=True)
