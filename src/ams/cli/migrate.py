"""`ams migrate`: from the reference implementation to here."""

import asyncio
import signal
import sys
import termios
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ams.cli.arguments import DATA_FOLDER, DataFolder, Output, argument, option
from ams.cli.command import Group, OptionSet, Session, with_options
from ams.cli.exits import Exit, Usage
from ams.cli.extras import need
from ams.cli.installation import Config, Progress, installation, settings_of
from ams.cli.migrate_authn import MongoDB, migrate_authn
from ams.cli.output import Format, columns, fields, note, printable, write
from ams.cli.shadow import shadow
from ams.core.errors import Unusable
from ams.core.settings import environment

if TYPE_CHECKING:
    from ams.migrate.back import Returned
    from ams.migrate.cutting import Move
    from ams.migrate.documents import Oddity
    from ams.migrate.proxy import Proxy
    from ams.migrate.sources import Source as OldSource
    from ams.migrate.verifying import Verified
    from ams.migrate.writing import Plan

T = TypeVar("T")

app = Group(
    "ams migrate plan --mongodb mongodb://db.example:27017 --kafka kafka.example:9092",
    "ams migrate export all.jsonl.gz --mongodb mongodb://db.example:27017 --kafka kafka.example:9092",
)
app.does()(shadow)


@dataclass(frozen=True, slots=True)
class Source(OptionSet):
    """Where the reference keeps what it has."""

    mongodb: MongoDB = field(default="", repr=False)
    """It may hold a password."""
    kafka: Annotated[
        str, option("Its brokers, HOST:PORT,HOST:PORT.", "--kafka", envvar="AMS_MIGRATE_KAFKA", show_default=False)
    ] = ""
    database: Annotated[str, option("Its database there (store_db of its settings).", "--database")] = "argo_msg"
    old_ca: Annotated[str | None, option("File of CA certificates to trust at --old.", "--old-ca")] = None

    def opened(self) -> "AbstractAsyncContextManager[OldSource]":
        """Open it; raise `Usage` where it is not said where it is."""
        need("migrate")
        from ams.migrate.sources import opened

        if not (self.mongodb and self.kafka):
            raise Usage("say where the reference is: --mongodb and --kafka")
        return opened(self.mongodb, self.database, self.kafka)


HaProxySocket = Annotated[str, option("Its runtime API: the path of the socket, or HOST:PORT.", "--haproxy")]
MapFile = Annotated[str, option("The file of haproxy's map, as its configuration names it.", "--map")]
MAP_FILE = "/etc/haproxy/ams-service.map"
Strict = Annotated[bool, option("End with an error if anything does not go over as it is.", "--strict")]


@app.command()
@with_options
def plan(source: Source, *, strict: Strict = False, output: Output = Format.TABLE) -> None:
    """Say what there is, and what of it does not go over as it is. Nothing is changed."""
    asyncio.run(_migrate(source, "", strict, output))


@app.command()
@with_options
def export(
    file: Annotated[str, argument("FILE", "New file; .gz compresses it, - is stdout.")],
    source: Source,
    *,
    strict: Strict = False,
    output: Output = Format.TABLE,
) -> None:
    """Write all that the reference holds into a file that `ams import` takes. Nothing is changed.

    The file holds every token in clear, for its owner only (mode 0600).
    """
    asyncio.run(_migrate(source, file, strict, output))


@app.command()
@with_options
def copy(source: Source, data: DataFolder = DATA_FOLDER, config: Config = None, output: Output = Format.TABLE) -> None:
    """Copy messages into a new installation, while the old service goes on; run again, it copies what came since.

    Nothing is served of it before `ams migrate cut`.
    """
    from ams.migrate.cutting import copy

    found, copied = asyncio.run(copy(_move(source, data, config), Progress("copied").tell))
    _tell(found, {**found.counts, "message": found.messages, "copied now": copied.messages}, output)


@app.command()
@with_options
def cut(
    session: Session,
    source: Source,
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
    stop_new: Annotated[
        str, option("Command that stops the new service if the cut fails.", "--stop-new", metavar="COMMAND")
    ] = "",
    patience: Annotated[float, option("Seconds until the new service has to answer.", min=1)] = 60.0,
) -> None:
    """Let the new service take the place of the old one: hold clients, copy the rest, compare, lead clients to it.

    AMS_ENDPOINT says where the new service will be, past the proxy, and AMS_TOKEN is a service_admin's of the old one.
    Whatever fails leads clients to the old service again; then run it again. Without --haproxy, hold clients yourself.
    """
    need("migrate")
    from ams.migrate.cutting import NewService, Steps, cut

    ask = _ask if sys.stdin.isatty() else None
    steps = Steps(_proxy(haproxy, map_file), drain, stop, start, restore, stop_new, patience, ask)
    service = NewService(session.client, session.token, session.ca)
    done = _run(cut(_move(source, data, config), service, steps, Progress("copied").tell, _step))
    counts = {**done.plan.counts, "message": done.plan.messages, "copied now": done.copied.messages}
    _tell(done.plan, {**counts, "milliseconds held": round(done.seconds * 1000)}, session.output)


@app.command()
@with_options
def back(
    session: Session,
    source: Source,
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
    need("migrate")
    from ams.migrate.asking import OldService
    from ams.migrate.back import back
    from ams.migrate.cutting import Steps

    steps = Steps(_proxy(haproxy, map_file), drain, start=start)

    async def work() -> "Returned":
        there = OldService(old, environment().get("AMS_MIGRATE_TOKEN", ""), source.old_ca)
        try:
            return await back(source.opened, there, session.client, steps, Progress("given back").tell, _step)
        finally:
            await there.close()

    done = _run(work())
    counts = {"messages": done.messages, "positions": done.positions}
    _write(done.oddities, counts, session.output)


def _proxy(haproxy: str, map_file: str) -> "Proxy | None":
    from ams.migrate.proxy import Proxy

    return Proxy(haproxy, map_file, _step) if haproxy else None


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run what is undone when it is broken off: by Ctrl-C, and in the same way by a terminal that is gone."""

    async def working() -> T:
        for sent in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(sent, signal.raise_signal, signal.SIGINT)
        return await work

    return asyncio.run(working())


async def _ask(what: str) -> None:
    """Wait until somebody has done something; Ctrl-C ends that."""
    termios.tcflush(sys.stdin, termios.TCIFLUSH)  # what was pressed before is no answer
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


def _move(source: Source, data: str, config: str | None) -> "Move":
    need("migrate")
    from ams.migrate.cutting import Move

    settings = settings_of(data, config)
    return Move(source.opened, lambda: installation(settings), settings.data, settings.service_token)


@app.command()
@with_options
def verify(
    session: Session,
    source: Source,
    *,
    old: Annotated[
        str, option("The old service, to be asked the same (token: AMS_MIGRATE_TOKEN).", "--old", metavar="URL")
    ] = "",
) -> None:
    """Compare every token, message and position with what the service has now.

    With --old every token is tried at the old service too, and both are asked for all that is in the projects.
    Ask with the token of a service_admin. The exit code is 1 when anything differs.
    """
    found = asyncio.run(_verified(session, source, old))
    counts = {name: f"{count:,}" for name, count in found._asdict().items() if name != "differences"}
    text = fields({**counts, "different": str(len(found.differences))})
    if found.differences:
        rows = [tuple(map(printable, each)) for each in found.differences]
        text = f"{text}\n\n{columns(('WHAT', 'OLD', 'NEW'), rows)}"
    document = {**found._asdict(), "differences": [each._asdict() for each in found.differences]}
    write(session.output, document, text)
    if found.differences:
        raise typer.Exit(Exit.REFUSED)


app.does("authn")(migrate_authn)


async def _verified(session: Session, source: Source, old: str) -> "Verified":
    async with source.opened() as opened, AsyncExitStack() as stack:
        from ams.migrate.asking import Side
        from ams.migrate.verifying import verify
        from ams.migrate.writing import plan as planned

        sides = None
        if old:
            token = environment().get("AMS_MIGRATE_TOKEN", "")
            sides = (
                await stack.enter_async_context(Side(old, token, source.old_ca)),
                await stack.enter_async_context(Side(session.client.endpoint, session.token, session.ca)),
            )
        found = planned(await opened.documents(), opened.messages)
        return await verify(found.found, opened.messages, session.client, session.ca, sides)


async def _migrate(source: Source, file: str, strict: bool, output: Format) -> None:
    async with source.opened() as old:
        from ams.migrate.writing import plan as planned
        from ams.migrate.writing import seconds_to_copy
        from ams.migrate.writing import write as written

        found = planned(await old.documents(), old.messages)
        if strict and found.found.oddities:
            _tell(found, {**found.counts, "message": found.messages}, output)
            raise typer.Exit(Exit.REFUSED)
        if file:
            counts = await written(found, old.messages, file, Progress("written").tell)
        else:
            seconds = await seconds_to_copy(found, old.messages)
            counts = {**found.counts, "message": found.messages, "seconds to copy, about": seconds}
    if file == "-":
        note(f"{counts['message']:,} messages, {len(found.found.oddities)} things not as they were: see the plan")
        return
    _tell(found, counts, output)
    if file:
        note(f"{file} is whole. Every user's token is in it; ams import {file} --data DATA takes it.")


def _tell(plan: "Plan", counts: Mapping[str, int], output: Format) -> None:
    _write(plan.found.oddities, counts, output)


def _write(odd: "Sequence[Oddity]", counts: Mapping[str, int], output: Format) -> None:
    kinds = Counter(each.kind for each in odd)
    text = fields({**{name: f"{count:,}" for name, count in counts.items()}, "not as it was": f"{len(odd):,}"})
    if odd:
        rows = [(each.kind, printable(each.what), each.done) for each in odd]
        text = f"{text}\n\n{columns(('WHAT', 'WHICH', 'WHAT BECOMES OF IT'), rows)}"
    document = {"counts": dict(counts), "oddities": dict(kinds), "details": [each._asdict() for each in odd]}
    write(output, document, text)
