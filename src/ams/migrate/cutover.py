"""The cut: holds clients at haproxy, copies the remaining messages, and switches to the new service.

If a step fails before the switch, clients are routed to the old service again, and the cut can be retried. haproxy's
runtime API holds and routes requests: a map with the key `service` has the value `old`, `held` or `new`
(`deploy/haproxy/move.cfg`).
"""

import asyncio
import contextlib
import csv
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ams.app.moving.exporter import Installation, Progress
from ams.client import Client, wire
from ams.client.connection import ConnectionSettings
from ams.client.errors import ClientError, NotAllowed, NotAuthenticated
from ams.core.errors import Unusable
from ams.migrate.conversion import Converted
from ams.migrate.message_copy import Copied, Copying, plan
from ams.migrate.sources import OpenReference, ReferenceSource
from ams.migrate.verification import Difference, compare_served, compare_stored
from ams.storage.files import Disk, write_whole

Service = Literal["old", "new"]  # names of haproxy's backends
Where = Literal["old", "held", "new"]
KEY = "service"
SECONDS = 5.0  # timeout of haproxy's answers
DRAIN_PAUSE = 0.05  # between two checks of open requests


class Proxy:
    """haproxy's runtime API, at a socket's path or HOST:PORT. Raises `Unusable` if it fails or refuses."""

    def __init__(self, address: str, map_file: str, tell: Callable[[str], None]) -> None:
        self._address, self._map, self._tell = address, map_file, tell

    def route_clients(self, where: Where) -> None:
        """Route new requests; held ones wait. Also writes the map file if it is on this machine."""
        if said := self._ask(f"set map {self._map} {KEY} {where}"):
            raise Unusable(f"haproxy refuses to set {KEY} in {self._map}: {said.splitlines()[0]}")
        if os.path.isfile(self._map):  # for haproxy's next start
            try:
                write_whole(Disk(), self._map, f"{KEY} {where}\n".encode())
            except OSError as error:
                self._tell(f"{self._map} cannot be written ({error.strerror}): write {KEY} {where} there")

    def where(self) -> str:
        """Return the current route."""
        for line in self._ask(f"show map {self._map}").splitlines():
            words = line.split()
            if words[1:2] == [KEY] and len(words) == 3:
                return words[2]
        raise Unusable(f"haproxy has no {KEY} in {self._map}")

    async def wait_until_up(self, service: Service, seconds: float) -> None:
        """Wait until haproxy's health checks see a service up. Raises `Unusable` after `seconds`."""
        until = time.monotonic() + seconds
        while self._backend(service)["status"] != "UP":
            if time.monotonic() > until:
                said = f"haproxy does not see the {service} service serve"
                raise Unusable(f"{said}: see its log, and the checks it makes")
            await asyncio.sleep(DRAIN_PAUSE)

    def _backend(self, service: Service) -> dict[str, str]:
        for row in csv.DictReader(self._ask("show stat").lstrip("# ").splitlines()):
            if (row["pxname"], row["svname"]) == (service, "BACKEND"):
                return row
        raise Unusable(f"haproxy has no backend {service}")

    async def drain(self, service: Service, seconds: float) -> int:
        """Wait until a service has no open requests; return how many are left after `seconds`."""
        until = time.monotonic() + seconds
        while (left := int(self._backend(service)["scur"])) and time.monotonic() < until:  # noqa: ASYNC110 - haproxy only answers
            await asyncio.sleep(DRAIN_PAUSE)
        return left

    def _ask(self, command: str) -> str:
        host, separator, port = self._address.rpartition(":")
        try:
            if separator and port.isdigit() and "/" not in self._address:
                connection = socket.create_connection((host, int(port)), SECONDS)
            else:
                connection = socket.socket(socket.AF_UNIX)
            with connection:
                connection.settimeout(SECONDS)
                if connection.family == socket.AF_UNIX:
                    connection.connect(self._address)
                connection.sendall(f"{command}\n".encode())
                return b"".join(iter(lambda: connection.recv(65536), b"")).decode(errors="replace").strip()
        except OSError as error:
            raise Unusable(f"haproxy cannot be asked at {self._address}: {error}") from None


Tell = Callable[[str], None]  # called at the beginning of each step
PAUSE = 0.1  # between two checks of the new service


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps around the last copy. Commands run in the shell; they may be empty."""

    proxy: Proxy | None = None
    drain: float = 10.0  # seconds for the old service to answer its open requests
    stop: str = ""  # stops the old service, on every node
    start: str = ""  # starts the new service, and returns
    restore: str = ""  # starts the old service again if the cut fails after `stop`
    stop_new: str = ""  # stops the new service if the cut fails after `start`
    patience: float = 60.0  # seconds for the new service to answer
    ask: Callable[[str], Awaitable[None]] | None = None  # a person, to do a step without a command; None: nobody


@dataclass(frozen=True, slots=True)
class Move:
    """Source and target of a move."""

    old: OpenReference
    new: Callable[[], AbstractAsyncContextManager[Installation]]  # opens the stopped one that becomes the new service
    folder: str  # the data folder of that installation
    service_token: str = field(default="", repr=False)  # a service_admin's token without a user


class Cut(NamedTuple):
    """Result of a cut."""

    plan: Converted
    copied: Copied
    seconds: float  # how long clients were held


async def copy(move: Move, progress: Progress) -> tuple[Converted, Copied]:
    """Copy new messages while the old service runs. Raises `Unusable`, `Unavailable`."""
    async with move.new() as target, move.old() as old:
        return await _round(old, Copying(target, move.folder, old.messages, progress))


async def _round(old: ReferenceSource, copying: Copying) -> tuple[Converted, Copied]:
    found = plan(await old.documents(), old.messages)
    return found, await copying.round(found)


async def cut(move: Move, client: Client, at: ConnectionSettings, steps: Steps, progress: Progress, tell: Tell) -> Cut:
    """Switch to the new service, where `client` is a service_admin. Raises `Unusable`, `Unavailable`, `ClientError`."""
    if not steps.stop and steps.ask is None:  # the old service would run during the last copy
        raise Unusable("say by --stop what stops the old service, or run this where somebody can be asked to")
    async with Held("old", steps, tell) as held, move.old() as old:
        async with move.new() as target:
            copying = Copying(target, move.folder, old.messages, progress)
            tell("copying what is new, while the old service goes on")
            first, _ = await _round(old, copying)
            admins = {each.token for each in first.users if "service_admin" in each.service_roles}
            if at.token not in admins | {move.service_token} or not at.token:
                raise Unusable("the token is not that of a service_admin of the old service: see AMS_TOKEN")
            began = time.monotonic()
            await held.begin(all_answered=False)
            await held.stop()
            tell("copying the rest: messages, users, topics, positions")
            found = plan(await old.documents(), old.messages, await copying.bounds())
            copied = await copying.finish(found)
            _check(await compare_stored(found, target, old.messages))
        held.is_new_started = True  # now, or soon
        await _start(client, steps, tell)
        tell("trying every token")
        _check(await compare_served(found, client, at.ca))
        await _check_still(old, found)
        await held.route_clients("new", steps.patience)  # clients may use it from now on: the only way back is `back`
        Copying.end(move.folder)
        return Cut(found, copied, time.monotonic() - began)


async def _check_still(old: ReferenceSource, found: Converted) -> None:
    await old.messages.look()
    for topic in found.topics:
        if old.messages.bounds(topic.kafka).end != topic.bounds.end:
            raise Unusable(f"{topic.what} changed: somebody still uses the old service, past the proxy")


async def _start(service: Client, steps: Steps, tell: Tell) -> None:
    if steps.start:
        tell("starting the new service")
        await run_command("--start", steps.start)
    else:
        tell(f"start the new service now: it is waited for at {service.endpoint}")
    until = time.monotonic() + steps.patience
    asking = service.with_retry(None)
    while True:
        try:
            await asyncio.to_thread(asking.call, wire.list_projects())
        except (NotAuthenticated, NotAllowed) as error:
            raise Unusable(f"the new service does not take the token: {error.message}") from None
        except ClientError as error:
            if time.monotonic() > until:
                raise Unusable(f"the new service does not answer: {error.message}") from None
            await asyncio.sleep(PAUSE)
        else:
            return


def _check(differences: Sequence[Difference]) -> None:
    if differences:
        shown = "; ".join(f"{each.what}: {each.old}, and {each.new}" for each in differences[:5])
        raise Unusable(f"{len(differences)} things differ: {shown}")


class Held(AbstractAsyncContextManager["Held"]):
    """A service whose clients are held in a block, and routed back if it fails. `Unusable`: they are elsewhere."""

    def __init__(self, service: Service, steps: Steps, tell: Tell) -> None:
        self._service: Service = service
        self._steps, self._tell = steps, tell
        where = steps.proxy.where() if steps.proxy else service
        if where not in (service, "held"):
            raise Unusable(f"clients are led to the {where} service already")
        # A killed run may have left clients held, and the old service stopped.
        self._is_held = where == "held"
        self._is_stopped = self._is_held and service == "old"
        self.is_new_started = self._is_over = False

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            return
        before = signal.signal(signal.SIGINT, lambda *_: None)
        undoing = asyncio.ensure_future(self._undo())
        try:
            while not undoing.done():
                with contextlib.suppress(asyncio.CancelledError):  # an earlier cancellation
                    await asyncio.shield(undoing)
            undoing.result()
        finally:
            signal.signal(signal.SIGINT, before)

    async def begin(self, *, all_answered: bool) -> None:
        """Hold its clients and drain open requests; with `all_answered`, open requests are an error."""
        if (proxy := self._steps.proxy) is None:
            return
        self._is_held = True
        self._tell("holding clients")
        proxy.route_clients("held")
        left = await proxy.drain(self._service, self._steps.drain)
        late = f"{left} requests are not answered after {self._steps.drain:g} s"
        if left and all_answered:
            raise Unusable(f"{late}: try again, or a longer --drain")
        if left:
            self._tell(late)

    async def stop(self) -> None:
        """Stop the service."""
        self._tell(f"stopping the {self._service} service")
        self._is_stopped = True
        if self._steps.stop:
            await run_command("--stop", self._steps.stop)
        elif self._steps.ask:
            await self._steps.ask(f"stop the {self._service} service on all nodes")

    async def route_clients(self, service: Service, patience: float = 0.0) -> None:
        """Route clients to the other service for good; haproxy must see it up within `patience` seconds."""
        if (proxy := self._steps.proxy) is not None:
            if patience:
                await proxy.wait_until_up(service, patience)
            self._tell(f"leading clients to the {service} service")
            proxy.route_clients(service)
        self._is_over = True

    async def _undo(self) -> None:
        """Start it again, route clients to it, and stop the new service. Failures are reported; later steps run."""
        if self._is_over:
            return
        if self.is_new_started and self._steps.stop_new:
            self._tell("stopping the new service")
            with self._report_failure():
                await run_command("--stop-new", self._steps.stop_new)
        elif self.is_new_started:
            self._tell("stop the new service, if it runs, before you try again")
        runs = not self._is_stopped
        with self._report_failure():
            if self._is_stopped and self._steps.restore:
                self._tell(f"starting the {self._service} service again")
                await run_command("--restore", self._steps.restore)
                runs = True
            elif self._is_stopped and self._steps.ask:
                await self._steps.ask(f"start the {self._service} service again")
                runs = True
        if not runs:
            self._tell(f"the {self._service} service may be stopped: start it, and lead clients to it")
        elif self._steps.proxy and self._is_held:
            self._tell(f"leading clients to the {self._service} service again")
            with self._report_failure():
                self._steps.proxy.route_clients(self._service)

    @contextlib.contextmanager
    def _report_failure(self) -> Iterator[None]:
        try:
            yield
        except Unusable as error:
            self._tell(str(error))


async def run_command(name: str, command: str) -> None:
    """Run an option's shell command to its end, even when cancelled. Raises `Unusable` if it fails."""
    process = await asyncio.create_subprocess_shell(command, stdout=sys.stderr)
    ended = asyncio.ensure_future(process.wait())
    try:
        code = await asyncio.shield(ended)
    except asyncio.CancelledError:
        await ended
        raise
    if code:
        raise Unusable(f"the command of {name} ended with {code}")
