"""`ams audit`: who did which change, from the service or from its file."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from ams.cli.command import Session, with_session
from ams.cli.exits import Usage
from ams.cli.output import columns, emit, json_line
from ams.cli.paging import AllPages, PageSize, PageToken, paged
from ams.client import wire
from ams.core.errors import Unusable
from ams.storage.audit.event import Line, shown
from ams.storage.audit.records import matches, wanted
from ams.storage.audit.trail import events_in

Event = Line | wire.AuditEvent

Since = Annotated[str, typer.Option(metavar="TIME", help="From then on: 2030-05-01 or 2030-05-01T12:00:00Z.")]
Until = Annotated[str, typer.Option(metavar="TIME", help="Before that.")]
Actor = Annotated[str, typer.Option(metavar="NAME", help="Only what this user or key did.")]
Action = Annotated[str, typer.Option(help="Only actions that begin so: topics: or users:create.")]
Address = Annotated[str, typer.Option(help="Only what came from this address.")]


class Result(StrEnum):
    """How what was asked for may have ended."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


OnlyResult = Annotated[Result | None, typer.Option(help="Only what ended so.")]
File = Annotated[
    str, typer.Option("--file", metavar="PATH", help="Read this file of events instead: audit.jsonl of a data folder.")
]


@with_session
def audit(
    session: Session,
    since: Since = "",
    until: Until = "",
    actor: Actor = "",
    action: Action = "",
    address: Address = "",
    result: OnlyResult = None,
    file: File = "",
    page_size: PageSize = 0,
    page_token: PageToken = "",
    every: AllPages = False,
) -> None:
    """Show who did which change, and who failed to log in, newest first; for service_admin. Times are UTC.

    A file is read from its beginning, oldest first, also while no service runs; its lines are JSON with -o json.
    """
    filters = {
        "since": since, "until": until, "actor": actor, "action": action, "address": address, "result": result or "",
    }  # fmt: skip
    show(session, filters, file, page_size, page_token, every)


def show(session: Session, filters: dict[str, str], file: str, size: int, token: str, every: bool) -> None:
    """Write what the service answers, or what a file holds if one is named; raise `Usage` for pages of a file."""
    if not file:
        show_events(session, filters, size, token, every)
    elif size or token or every:
        raise Usage("a file has no pages")
    else:
        show_file(session, file, filters)


def show_events(session: Session, filters: dict[str, str], size: int, token: str, every: bool) -> None:
    """Write what a service answers; `filters` are those of `wire.list_events`."""

    def ask(most: int, page: str) -> wire.Call[wire.AuditEvents]:
        return wire.list_events(**filters, page_size=most, page_token=page)

    found = paged(session, ask, "events", size, token, every)
    session.show(found, _table(found.events))


def show_file(session: Session, path: str, filters: dict[str, str]) -> None:
    """Write what a file holds, oldest first; raise `Unusable` for one that cannot be read."""
    asked = wanted(filters)
    try:
        lines = [shown(event) for event in events_in(path) if matches(asked, event)]
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror}") from error
    if session.for_programs:
        for line in lines:
            emit(json_line(line))
    else:
        emit(_table(lines))


def _table(events: Sequence[Event]) -> str:
    rows = [
        (each.time, each.actor or "-", each.address or "-", each.action, each.resource, _ended(each)) for each in events
    ]
    return columns(("TIME", "WHO", "FROM", "ACTION", "RESOURCE", "RESULT"), rows)


def _ended(event: Event) -> str:
    ended = event.result if event.result == Result.DONE else f"{event.result} ({event.code}: {event.reason})"
    return ended if event.times == 1 else f"{ended}, {event.times} times"
