"""`ams projects`."""

from typing import Annotated

from ams.cli.arguments import Duration, ProjectName, option, retention_seconds, retention_text
from ams.cli.command import Group, Session
from ams.cli.exits import Usage
from ams.client import wire
from ams.client.wire import Call, Projects

app = Group('ams projects create garden --description "What grows"', "ams projects list -o json")


def _fields(project: wire.Project) -> dict[str, str]:
    return {
        "project": project.name,
        "description": project.description,
        "created": project.created_on,
        "modified": project.modified_on,
        "created by": project.created_by,
        "retention": retention_text(project.retention_seconds),
    }


@app.shows(_fields)
def create(
    session: Session, name: ProjectName, description: Annotated[str, option("What the project is for.")] = ""
) -> Call[wire.Project]:
    """Make a project."""
    return wire.create_project(name, description)


@app.lists("projects", {"PROJECT": "name", "CREATED": "created_on", "BY": "created_by", "DESCRIPTION": "description"})
def list_(session: Session) -> Call[Projects]:
    """List all projects, oldest first."""
    return wire.list_projects()


@app.shows(_fields)
def show(session: Session, name: ProjectName) -> Call[wire.Project]:
    """Show one project."""
    return wire.get_project(name)


@app.shows(_fields)
def update(
    session: Session,
    name: ProjectName,
    rename: Annotated[str, option("New name.", metavar="NAME")] = "",
    description: Annotated[str, option("New description.")] = "",
) -> Call[wire.Project]:
    """Rename or describe a project."""
    if not rename and not description:
        raise Usage("say what to change: --rename or --description")
    return wire.update_project(name, name=rename, description=description)


@app.shows(_fields)
def retention(session: Session, name: ProjectName, duration: Duration) -> Call[wire.Project]:
    """Say how long messages are kept in topics without a time of their own: such as 7d, or default."""
    return wire.modify_project_retention(name, retention_seconds(duration))


@app.confirms("project {name} deleted")
def delete(session: Session, name: ProjectName) -> Call[None]:
    """Remove a project with all its topics, subscriptions and messages."""
    return wire.delete_project(name)
