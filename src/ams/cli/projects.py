"""`ams projects`."""

from typing import Annotated

import typer

from ams.cli.arguments import ProjectName
from ams.cli.command import Session, examples, with_session
from ams.cli.durations import Duration, seconds, shown
from ams.cli.exits import Usage
from ams.cli.output import columns, fields
from ams.client import wire

app = typer.Typer(
    help="Projects: who shares topics and subscriptions.",
    no_args_is_help=True,
    epilog=examples('ams projects create garden --description "What grows"', "ams projects list -o json"),
)


@app.command()
@with_session
def create(
    session: Session, name: ProjectName, description: Annotated[str, typer.Option(help="What the project is for.")] = ""
) -> None:
    """Make a project."""
    _show(session, session.call(wire.create_project(name, description)))


@app.command("list")
@with_session
def list_(session: Session) -> None:
    """List all projects, oldest first."""
    found = session.call(wire.list_projects())
    rows = [(each.name, each.created_on, each.created_by, each.description) for each in found.projects]
    session.show(found, columns(("PROJECT", "CREATED", "BY", "DESCRIPTION"), rows))


@app.command()
@with_session
def show(session: Session, name: ProjectName) -> None:
    """Show one project."""
    _show(session, session.call(wire.get_project(name)))


@app.command()
@with_session
def update(
    session: Session,
    name: ProjectName,
    rename: Annotated[str, typer.Option(metavar="NAME", help="New name.")] = "",
    description: Annotated[str, typer.Option(help="New description.")] = "",
) -> None:
    """Rename or describe a project."""
    if not rename and not description:
        raise Usage("say what to change: --rename or --description")
    _show(session, session.call(wire.update_project(name, name=rename, description=description)))


@app.command()
@with_session
def retention(session: Session, name: ProjectName, duration: Duration) -> None:
    """Say how long messages are kept in topics without a time of their own: such as 7d, or default."""
    _show(session, session.call(wire.modify_project_retention(name, seconds(duration))))


@app.command()
@with_session
def delete(session: Session, name: ProjectName) -> None:
    """Remove a project with all its topics, subscriptions and messages."""
    session.call(wire.delete_project(name))
    session.done(f"project {name} deleted")


def _show(session: Session, project: wire.Project) -> None:
    values = {
        "project": project.name,
        "description": project.description,
        "created": project.created_on,
        "modified": project.modified_on,
        "created by": project.created_by,
        "retention": shown(project.retention_seconds),
    }
    session.show(project, fields(values))
