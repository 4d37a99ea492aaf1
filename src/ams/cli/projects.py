"""`ams projects`."""

from contextlib import suppress
from typing import Annotated

from ams.cli.arguments import DURATION, PROJECT, ProjectName, Texts, argument, option, pairs
from ams.cli.command import Columns, CommandGroup, Session, facts, named
from ams.cli.exit_codes import Usage
from ams.cli.times import retention_text
from ams.client import wire
from ams.client.errors import NotAllowed
from ams.client.wire import Call
from ams.core.settings import size_number

app = CommandGroup('ams projects create garden --description "What grows"', "ams projects list -o json")

DESCRIPTION = {"description": (Annotated[str, option("What the project is for.")], "")}

_FIELDS: Columns = {
    "project": "name",
    **named("description", "created_on", "modified_on", "created_by"),
    "retention": lambda each: retention_text(each.retention_seconds),
    "strict data": lambda each: {None: "", True: "yes", False: "no"}[each.strict_data],
    "quotas": lambda each: ", ".join(f"{name} {limit}" for name, limit in each.quotas.items()),
}


app.sends("create", wire.create_project, _FIELDS, "Make a project.", PROJECT | DESCRIPTION)
_COLUMNS: Columns = {"PROJECT": "name", "CREATED": "created_on", "BY": "created_by", "DESCRIPTION": "description"}
app.sends("list", wire.list_projects, _COLUMNS, "List all projects, oldest first.", items="projects")


@app.does()
def show(session: Session, name: ProjectName) -> None:
    """Show one project, and what it uses of its quotas."""
    project = session.call(wire.get_project(name))
    shown = facts(_FIELDS, project)
    if not session.for_programs:
        with suppress(NotAllowed):  # a role may allow the project but not its quotas
            quotas = session.call(wire.get_project_quotas(name)).quotas
            shown = {**shown, "quotas": "", **{each.name: _use_text(each) for each in quotas}}
    session.show(project, shown)


@app.shows(_FIELDS)
def update(
    session: Session,
    name: ProjectName,
    rename: Annotated[str, option("New name.", metavar="NAME")] = "",
    description: Annotated[str, option("New description.")] = "",
    strict_data: Annotated[
        bool | None, option("Refuse message data that is not base64, or take it, whatever the service says.")
    ] = None,
) -> Call[wire.Project]:
    """Rename or describe a project, or say whether it refuses message data that is not base64."""
    if not rename and not description and strict_data is None:
        raise Usage("say what to change: --rename, --description, --strict-data or --no-strict-data")
    return wire.update_project(name, name=rename, description=description, strict_data=strict_data)


app.sends("retention", wire.modify_project_retention, _FIELDS,
    "Say how long messages are kept in topics without a time of their own: such as 7d, or default.",
    PROJECT | DURATION)  # fmt: skip


@app.shows(
    {
        "QUOTA": "name",
        "LIMIT": lambda each: _limit_text(each),
        "DEFAULT": lambda each: each.default or "none",
        "USED": "used",
    },
    items="quotas",
)
def quota(
    session: Session,
    name: ProjectName,
    changes: Annotated[
        Texts,
        argument("[QUOTA=LIMIT]...", "Quotas to be changed: a number, none (no limit, or the fair share) or default."),
    ] = None,
) -> Call[wire.ProjectQuotas]:
    """Show the quotas of a project and what it uses of them, or change some."""
    if not changes:
        return wire.get_project_quotas(name)
    wanted = pairs(changes, "quota", "QUOTA=LIMIT")
    return wire.modify_project_quotas(name, {each: _limit(each, text) for each, text in wanted.items()})


def _limit_text(quota: wire.Quota) -> str:
    return str(quota.limit or "none") if quota.share is None else f"{quota.share} (fair share)"


def _use_text(quota: wire.Quota) -> str:
    limit = _limit_text(quota)
    if quota.used is None:
        return limit
    return f"{quota.used}, no limit" if limit == "none" else f"{quota.used} of {limit}"


def _limit(name: str, text: str) -> int | None:
    if text in ("default", "none"):
        return None if text == "default" else 0
    try:
        return size_number(text)
    except (ValueError, KeyError):
        raise Usage(f"quota {name}: {text!r} is no number such as 100 or 64MiB, nor none nor default") from None


app.sends("delete", wire.delete_project, "project {name} deleted",
    "Remove a project with all its topics, subscriptions and messages.", PROJECT)  # fmt: skip
