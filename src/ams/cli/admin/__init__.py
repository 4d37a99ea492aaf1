"""`ams admin`: users, projects, members and tokens."""

import typer

from ams.cli.admin import members, projects, rotation, tokens, users

app = typer.Typer(help="Users, projects, members and tokens.", no_args_is_help=True)
app.add_typer(users.app, name="users")
app.add_typer(projects.app, name="projects")
app.add_typer(members.app, name="members")
app.add_typer(tokens.app, name="tokens")
app.command("rotate-key")(rotation.rotate_key)
