"""`ams migrate`: from the reference implementation to here."""

import asyncio
import os
import signal
import sys
import termios
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ams.cli.arguments import DATA_FOLDER, DataFolder, Output, argument, option
from ams.cli.authn.importer import MongoDB, migrate_authn
from ams.cli.command import CommandGroup, OptionSet, Session
from ams.cli.exit_codes import Exit, Usage, file_named
from ams.cli.extras import require_extras
from ams.cli.installation import Config, installation, progress, settings_of
from ams.cli.output import Format, columns, fields, note, write
from ams.core.errors import Unusable
from ams.core.settings import environment

if TYPE_CHECKING:
    from ams.migrate.conversion import Oddity
    from ams.migrate.cutover import Move, Proxy
    from ams.migrate.shadow import Shadow, ShadowReport
    from ams.migrate.sources import ReferenceSource as OldSource
    from ams.migrate.verification import Verified

T = TypeVar("T")

app = CommandGroup(
    "ams migrate plan --mongodb mongodb://db.example:27017 --kafka kafka.example:9092",
    "ams migrate export all.jsonl.gz --mongodb mongodb://db.example:27017 --kafka kafka.example:9092",
)

OLD_TOKEN = "AMS_MIGRATE_TOKEN"  # noqa: S105  # no password
"""Variable with the token for the old service."""


@app.does()
def shadow(
    session: Session,
    *,
    old: Annotated[
        str, option("The old service, https://HOST:PORT; its token is in AMS_MIGRATE_TOKEN.", metavar="URL")
    ],
    old_ca: Annotated[str | None, option("File of CA certificates to trust there.", metavar="FILE")] = None,
    log: Annotated[str, argument("LOG", "Log of haproxy; - is stdin.")] = "",
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
    require_extras("service")
    if bool(log) == (listen is not None):
        raise Usage("give a log of haproxy, - for stdin, or --listen PORT")
    if session.at.bearer is not None:
        raise Usage("give a token of AMS, not a bearer token: the old service knows no others")
    from ams.migrate.requests import Side
    from ams.migrate.shadow import Shadow

    own = Side(old, "" if listen is not None else environment().get(OLD_TOKEN, ""), old_ca)
    other = Side(session.client.endpoint, "" if listen is not None else session.at.token, session.at.ca)

    async def compare() -> "ShadowReport":
        async with own, other:
            await own.reach()
            await other.reach()
            compared = Shadow(own, other, still, share, most, patient=listen is not None)
            await (_from_log(compared, log) if listen is None else _from_copies(compared, listen))
            return compared.report

    report = asyncio.run(compare())
    write(session.output, _shadow_document(report), _shadow_text(report))
    if report.differences:
        raise typer.Exit(Exit.REFUSED)


async def _from_log(compared: "Shadow", log: str) -> None:
    from ams.migrate.shadow import logged_requests

    with file_named(log):
        file = sys.stdin.fileno() if log == "-" else os.open(log, os.O_RDONLY)
    run = asyncio.ensure_future(compared.run(logged_requests(compared, file)))
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


def _shadow_document(report: "ShadowReport") -> object:
    return {
        "routes": dict(sorted(report.routes.items())),
        "differences": [
            {"route": action, "where": kind.where, "old": kind.old, "new": kind.new, "answers": count}
            for action, kinds in sorted(report.differences.items())
            for kind, count in kinds.values()
        ],
        "passed_over": dict(report.passed_over.most_common()),
        "left_out": report.left_out,
    }


def _shadow_text(report: "ShadowReport") -> str:
    counted = [(action, *map(str, astuple(each))) for action, each in sorted(report.routes.items())]
    tables = [columns(("ROUTE", "ASKED", "SAME", "DIFFERENT"), counted)]
    kinds = [
        (action, *kind, str(count))
        for action, found in sorted(report.differences.items())
        for kind, count in found.values()
    ]
    if kinds:
        tables.append(columns(("ROUTE", "WHERE", "OLD", "NEW", "ANSWERS"), kinds))
    why = [(reason, str(count)) for reason, count in report.passed_over.most_common() if count]
    if report.left_out:
        why.append(("left out by chance (--share)", str(report.left_out)))
    if why:
        tables.append(columns(("PASSED OVER", "REQUESTS"), why))
    return "\n\n".join(tables)


@dataclass(frozen=True, slots=True)
class ReferenceOptions(OptionSet):
    """Databases of the reference."""

    mongodb: MongoDB = field(default="", repr=False)  # it may hold a password
    kafka: Annotated[
        str, option("Its brokers, HOST:PORT,HOST:PORT.", envvar="AMS_MIGRATE_KAFKA", show_default=False)
    ] = ""
    database: Annotated[str, option("Its database there (store_db of its settings).")] = "argo_msg"
    old_ca: Annotated[str | None, option("File of CA certificates to trust at --old.")] = None

    def old_source(self) -> "AbstractAsyncContextManager[OldSource]":
        """Open the reference. Raises `Usage` if an option is missing."""
        require_extras("migrate")
        from ams.migrate.sources import old_source

        if not (self.mongodb and self.kafka):
            raise Usage("say where the reference is: --mongodb and --kafka")
        return old_source(self.mongodb, self.database, self.kafka)


HaProxySocket = Annotated[str, option("Its runtime API: the path of the socket, or HOST:PORT.")]
MapFile = Annotated[str, option("The file of haproxy's map, as its configuration names it.", "--map")]
MAP_FILE = "/etc/haproxy/ams-service.map"
Strict = Annotated[bool, option("End with an error if anything does not go over as it is.", "--strict")]


@app.does()
def plan(source: ReferenceOptions, *, strict: Strict = False, output: Output = Format.TABLE) -> None:
    """Say what there is, and what of it does not go over as it is. Nothing is changed."""
    asyncio.run(_migrate(source, "", strict, output))


@app.does()
def export(
    file: Annotated[str, argument("FILE", "New file; .gz compresses it, - is stdout.")],
    source: ReferenceOptions,
    *,
    strict: Strict = False,
    output: Output = Format.TABLE,
) -> None:
    """Write all that the reference holds into a file that `ams import` takes. Nothing is changed.

    The file holds every token in clear, for its owner only (mode 0600).
    """
    asyncio.run(_migrate(source, file, strict, output))


@app.does()
def copy(
    source: ReferenceOptions, data: DataFolder = DATA_FOLDER, config: Config = None, output: Output = Format.TABLE
) -> None:
    """Copy messages into a new installation, while the old service goes on; run again, it copies what came since.

    Nothing is served of it before `ams migrate cut`.
    """
    from ams.migrate.cutover import copy

    found, copied = asyncio.run(copy(_move(source, data, config), progress("copied")))
    _write(found.oddities, {**found.counts, "copied now": copied.messages}, output)


@app.does()
def cut(
    session: Session,
    source: ReferenceOptions,
    data: DataFolder = DATA_FOLDER,
    config: Config = None,
    *,
    haproxy: HaProxySocket = "",
    map_file: MapFile = MAP_FILE,
    drain: Annotated[float, option("Seconds that the old service has to answer what it was asked.", min=0)] = 3.0,
    stop: Annotated[str, option("Command that stops the old service on all nodes.", metavar="COMMAND")] = "",
    start: Annotated[str, option("Command that starts the new service, and returns.", metavar="COMMAND")] = "",
    restore: Annotated[
        str, option("Command that starts the old service again if the cut fails.", metavar="COMMAND")
    ] = "",
    stop_new: Annotated[str, option("Command that stops the new service if the cut fails.", metavar="COMMAND")] = "",
    patience: Annotated[float, option("Seconds until the new service has to answer.", min=1)] = 60.0,
) -> None:
    """Let the new service take the place of the old one: hold clients, copy the rest, compare, lead clients to it.

    AMS_ENDPOINT says where the new service will be, past the proxy, and AMS_TOKEN is a service_admin's of the old one.
    Whatever fails leads clients to the old service again; then run it again. Without --haproxy, hold clients yourself.
    """
    require_extras("migrate")
    from ams.migrate.cutover import Steps, cut

    ask = _ask if sys.stdin.isatty() else None
    steps = Steps(_proxy(haproxy, map_file), drain, stop, start, restore, stop_new, patience, ask)
    move = _move(source, data, config)
    done = _run_cancellable(cut(move, session.client, session.at, steps, progress("copied"), _step))
    now = {"copied now": done.copied.messages, "milliseconds held": round(done.seconds * 1000)}
    _write(done.plan.oddities, {**done.plan.counts, **now}, session.output)


@app.does()
def back(
    session: Session,
    source: ReferenceOptions,
    *,
    old: Annotated[str, option("The old service, past the proxy (token: AMS_MIGRATE_TOKEN).", metavar="URL")],
    haproxy: HaProxySocket = "",
    map_file: MapFile = MAP_FILE,
    drain: Annotated[float, option("Seconds that the new service has to answer what it was asked.", min=0)] = 10.0,
    start: Annotated[str, option("Command that starts the old service, and returns.", metavar="COMMAND")] = "",
) -> None:
    """Let the old service take the place of the new one again: it gets the messages and positions since the cut.

    Both run meanwhile; stop the new one afterwards. What else was made since (users, topics, tokens) is listed, and
    stays here. Where somebody used the old service since the cut, the way back is closed, and nothing is changed.
    """
    require_extras("migrate")
    from ams.migrate.cutover import Steps
    from ams.migrate.requests import OldService
    from ams.migrate.rollback import back

    steps = Steps(_proxy(haproxy, map_file), drain, start=start)
    there = OldService(old, environment().get(OLD_TOKEN, ""), source.old_ca)
    done = _run_cancellable(back(source.old_source, there, session.client, steps, progress("given back"), _step))
    _write(done.oddities, {"messages": done.messages, "positions": done.positions}, session.output)


def _proxy(haproxy: str, map_file: str) -> "Proxy | None":
    from ams.migrate.cutover import Proxy

    return Proxy(haproxy, map_file, _step) if haproxy else None


def _run_cancellable(work: Coroutine[Any, Any, T]) -> T:
    """Run work that cleans up on Ctrl-C; SIGTERM and SIGHUP are treated alike."""

    async def working() -> T:
        for sent in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(sent, signal.raise_signal, signal.SIGINT)
        return await work

    return asyncio.run(working())


async def _ask(what: str) -> None:
    termios.tcflush(sys.stdin, termios.TCIFLUSH)  # discard keys pressed before
    note(f"ams: {what}, then press Enter")
    loop, pressed = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin, pressed.set)
    try:
        await pressed.wait()
    finally:
        loop.remove_reader(sys.stdin)
    if not sys.stdin.readline():
        raise Unusable("nobody answers")


def _step(step: str) -> None:
    note(f"ams: {step}")


def _move(source: ReferenceOptions, data: str, config: str | None) -> "Move":
    require_extras("migrate")
    from ams.migrate.cutover import Move

    settings = settings_of(data, config)
    return Move(source.old_source, lambda: installation(settings), settings.data, settings.service_token)


@app.does()
def verify(
    session: Session,
    source: ReferenceOptions,
    *,
    old: Annotated[
        str, option("The old service, to be asked the same (token: AMS_MIGRATE_TOKEN).", metavar="URL")
    ] = "",
) -> None:
    """Compare every token, message and position with what the service has now.

    With --old every token is tried at the old service too, and both are asked for all that is in the projects.
    Ask with the token of a service_admin. The exit code is 1 when anything differs.
    """

    async def work() -> "Verified":
        async with source.old_source() as old_source, AsyncExitStack() as stack:
            from ams.migrate.message_copy import plan as planned
            from ams.migrate.requests import Side
            from ams.migrate.verification import verify

            sides = None
            if old:
                own = Side(old, environment().get(OLD_TOKEN, ""), source.old_ca)
                other = Side(session.client.endpoint, session.at.token, session.at.ca)
                sides = await stack.enter_async_context(own), await stack.enter_async_context(other)
            found = planned(await old_source.documents(), old_source.messages)
            return await verify(found, old_source.messages, session.client, session.at.ca, sides)

    found = asyncio.run(work())
    counts = {name: f"{count:,}" for name, count in found._asdict().items() if name != "differences"}
    text = fields({**counts, "different": str(len(found.differences))})
    if found.differences:
        text = f"{text}\n\n{columns(('WHAT', 'OLD', 'NEW'), found.differences)}"
    document = {**found._asdict(), "differences": [each._asdict() for each in found.differences]}
    write(session.output, document, text)
    if found.differences:
        raise typer.Exit(Exit.REFUSED)


app.does("authn")(migrate_authn)


async def _migrate(source: ReferenceOptions, file: str, strict: bool, output: Format) -> None:
    async with source.old_source() as old:
        from ams.migrate.message_copy import plan as planned
        from ams.migrate.message_copy import seconds_to_copy
        from ams.migrate.message_copy import write as written

        found = planned(await old.documents(), old.messages)
        if strict and found.oddities:
            _write(found.oddities, found.counts, output)
            raise typer.Exit(Exit.REFUSED)
        if file:
            counts = await written(found, old.messages, file, progress("written"))
        else:
            counts = {**found.counts, "seconds to copy, about": await seconds_to_copy(found, old.messages)}
    if file == "-":
        note(f"{counts['message']:,} messages, {len(found.oddities)} things not as they were: see the plan")
        return
    _write(found.oddities, counts, output)
    if file:
        note(f"{file} is whole. Every user's token is in it; ams import {file} --data DATA takes it.")


def _write(odd: "Sequence[Oddity]", counts: Mapping[str, int], output: Format) -> None:
    kinds = Counter(each.kind for each in odd)
    text = fields({**{name: f"{count:,}" for name, count in counts.items()}, "not as it was": f"{len(odd):,}"})
    if odd:
        text = f"{text}\n\n{columns(('WHAT', 'WHICH', 'WHAT BECOMES OF IT'), odd)}"
    document = {"counts": dict(counts), "oddities": dict(kinds), "details": [each._asdict() for each in odd]}
    write(output, document, text)
