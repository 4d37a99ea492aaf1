"""`ams audit`: who did which change, from the service or from its file."""

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from ams.cli.arguments import option
from ams.cli.command import Columns, OptionSet, PageOptions, Session, table, with_options
from ams.cli.exit_codes import Usage, file_named
from ams.cli.extras import require_extras
from ams.cli.output import emit, json_line
from ams.client import wire
from ams.core.errors import Unusable
from ams.wire.actions import RECORDED


@dataclass(frozen=True, slots=True)
class Filters(OptionSet):
    """Filters of events."""

    since: Annotated[str, option("From then on: 2030-05-01 or 2030-05-01T12:00:00Z.", metavar="TIME")] = ""
    until: Annotated[str, option("Before that.", metavar="TIME")] = ""
    actor: Annotated[str, option("Only what this user or key did.", metavar="NAME")] = ""
    action: Annotated[str, option("Only actions that begin so: topics: or users:create.")] = ""
    address: Annotated[str, option("Only what came from this address.")] = ""
    result: Annotated[Literal["done", "refused", "failed"] | None, option("Only what ended so.")] = None


File = Annotated[str, option("Read this file of events instead: audit.jsonl of a data folder.", metavar="PATH")]


@with_options
def audit(session: Session, filters: Filters, *, file: File = "", page: PageOptions) -> None:
    """Show who did which change, and who failed to log in, newest first; for service_admin. Times are UTC.

    Who published or consumed messages is not in it.
    A file is read from its beginning, oldest first, also while no service runs; its lines are JSON with -o json.
    """
    show(session, filters, file, page, lambda: RECORDED)


def show(
    session: Session, filters: Filters, file: str, page: PageOptions, recorded_actions: Callable[[], Collection[str]]
) -> None:
    """Print events of the service, or of a file, oldest first.

    `recorded_actions` are the actions that have events. Raises `Usage` for pages of a file, `Unusable` for an
    unreadable file, and `InvalidInput` for a filter that matches no action.
    """
    said = asdict(filters)
    if not file:
        found = session.fetch_pages("events", page, lambda each: wire.list_events(**said, **each.query))
        session.show(found, table(_COLUMNS, found.events))
        return
    if page != PageOptions():
        raise Usage("a file has no pages")
    require_extras("service")
    from ams.storage.audit.records import event_filter, matches
    from ams.storage.audit.trail import events_in

    asked, actions = event_filter(said.get), set(recorded_actions())
    lines = []
    with file_named(file, Unusable):
        for event in events_in(file):
            actions.add(event.action)  # older versions may have recorded others
            if matches(asked, event):
                lines.append(event)
    event_filter(said.get, actions)
    if session.for_programs:
        for line in lines:
            emit(json_line(line))
    else:
        emit(table(_COLUMNS, lines))


def _format_result(event: wire.AuditEvent) -> str:
    ended = event.result if event.result == "done" else f"{event.result} ({event.code}: {event.reason})"
    return ended if event.times == 1 else f"{ended}, {event.times} times"


_COLUMNS: Columns = {
    "TIME": "time",
    "WHO": lambda each: each.actor or "-",
    "FROM": lambda each: each.address or "-",
    "ACTION": "action",
    "RESOURCE": "resource",
    "RESULT": _format_result,
}
