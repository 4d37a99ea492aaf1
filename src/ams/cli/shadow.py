"""`ams migrate shadow`: whether two services answer real requests alike."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ams.cli.arguments import option
from ams.cli.command import OptionSet, Session
from ams.cli.exits import Exit, Usage, file_named
from ams.cli.extras import need
from ams.cli.output import columns, note, printable, write

if TYPE_CHECKING:
    from ams.migrate.shadow import Report, Shadow

VARIABLE = "AMS_MIGRATE_TOKEN"
"""Holds the token for the old service."""


@dataclass(frozen=True, slots=True)
class Old(OptionSet):
    """Where the old service is."""

    old: Annotated[
        str, option("The old service, https://HOST:PORT; its token is in AMS_MIGRATE_TOKEN.", "--old", metavar="URL")
    ]
    old_ca: Annotated[str | None, option("File of CA certificates to trust there.", "--old-ca", metavar="FILE")] = None


def shadow(
    session: Session,
    old: Old,
    *,
    log: Annotated[str, typer.Argument(metavar="LOG", help="Log of haproxy; - is stdin.", show_default=False)] = "",
    listen: Annotated[
        int | None, option("Take copies of requests on this port of the loopback.", min=0, max=65535, metavar="PORT")
    ] = None,
    share: Annotated[float, option("Which share of the requests is asked, by chance.", min=0.0, max=1.0)] = 1.0,
    most: Annotated[int | None, option("End after so many.", min=1, show_default=False)] = None,
    still: Annotated[
        bool, option("Nobody publishes or consumes: counters and positions have to be the same.", "--still")
    ] = False,
) -> None:
    """Ask the old and the new service what clients asked for, and show where answers differ.

    Only what reads is asked. Requests come from a log of haproxy, and are asked with the tokens of administrators, or
    as copies from a haproxy that runs, with the tokens of their clients. The exit code is 1 when anything differs that
    is not documented.
    """
    need("service")
    if bool(log) == (listen is not None):
        raise Usage("give a log of haproxy, - for stdin, or --listen PORT")
    if session.bearer is not None:
        raise Usage("give a token of AMS, not a bearer token: the old service knows no others")
    report = asyncio.run(_compared(session, old, log, listen, share, most, still))
    write(session.output, _document(report), _text(report))
    if report.differences:
        raise typer.Exit(Exit.REFUSED)


async def _compared(
    session: Session, old: Old, log: str, listen: int | None, share: float, most: int | None, still: bool
) -> "Report":
    from ams.migrate.asking import Side
    from ams.migrate.shadow import Shadow

    own = Side(old.old, os.environ.get(VARIABLE, "") if listen is None else "", old.old_ca)
    other = Side(session.client.endpoint, session.token if listen is None else "", session.ca)
    async with own, other:
        await own.reach()
        await other.reach()
        compared = Shadow(own, other, still, share, most, patient=listen is not None)
        await (_from_log(compared, log) if listen is None else _from_copies(compared, listen))
        return compared.report


async def _from_log(compared: "Shadow", log: str) -> None:
    from ams.migrate.shadow import logged

    with file_named(log):
        file = sys.stdin.fileno() if log == "-" else os.open(log, os.O_RDONLY)
    run = asyncio.ensure_future(compared.run(logged(compared, file)))
    _at_a_signal(run.cancel)
    await asyncio.wait([run])
    if not run.cancelled():
        run.result()


async def _from_copies(compared: "Shadow", port: int) -> None:
    from ams.migrate.shadow import copies

    stop = asyncio.Event()
    _at_a_signal(stop.set)
    async with copies(compared, port, stop) as (url, requests):
        note(f"waiting for copies of requests at {url}; Ctrl-C ends it")
        await compared.run(requests)


def _at_a_signal(end: Callable[[], object]) -> None:
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, end)


def _document(report: "Report") -> object:
    return {
        "routes": {
            action: {"asked": each.asked, "same": each.same, "different": each.different}
            for action, each in sorted(report.routes.items())
        },
        "differences": [
            {"route": action, "where": kind.where, "old": kind.old, "new": kind.new, "answers": count}
            for action, kinds in sorted(report.differences.items())
            for kind, count in kinds
        ],
        "passed_over": dict(report.passed_over.most_common()),
        "left_out": report.left_out,
    }


def _text(report: "Report") -> str:
    counted = [
        (action, str(each.asked), str(each.same), str(each.different)) for action, each in sorted(report.routes.items())
    ]
    tables = [columns(("ROUTE", "ASKED", "SAME", "DIFFERENT"), counted)]
    kinds = [
        (action, *map(printable, kind), str(count))
        for action, found in sorted(report.differences.items())
        for kind, count in found
    ]
    if kinds:
        tables.append(columns(("ROUTE", "WHERE", "OLD", "NEW", "ANSWERS"), kinds))
    why = [(reason, str(count)) for reason, count in report.passed_over.most_common() if count]
    if report.left_out:
        why.append(("left out by chance (--share)", str(report.left_out)))
    if why:
        tables.append(columns(("PASSED OVER", "REQUESTS"), why))
    return "\n\n".join(tables)
