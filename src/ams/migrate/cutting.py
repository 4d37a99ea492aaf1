"""The cut: clients are held at the proxy, what is left is copied, and the new service takes the place of the old one.

Whatever fails before clients are led to the new service, they are led to the old one again, and it can be tried again.
haproxy holds requests and leads them, by its runtime API: a map with one key, `service`, says where to: `old`, `held`
or `new` (`deploy/haproxy/move.cfg`).
"""

import asyncio
import contextlib
import csv
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ams.app.moving.exporting import Installation, Progress
from ams.client import Client, wire
from ams.client.errors import ClientError, NotAllowed, NotAuthenticated
from ams.core.errors import Unusable
from ams.migrate.copying import Copied, Copying
from ams.migrate.sources import Source
from ams.migrate.verifying import Difference, compare_served, compare_stored
from ams.migrate.writing import Plan, plan
from ams.storage.files import Disk, write_whole

Service = Literal["old", "new"]  # there is a backend of each name
Where = Literal["old", "held", "new"]
KEY = "service"
SECONDS = 5.0  # until haproxy that does not answer is given up
DRAIN_PAUSE = 0.05  # between two looks at what is under way


class Proxy:
    """haproxy at a socket's path or HOST:PORT, and its map. Raises `Unusable` when it cannot be asked, or refuses."""

    def __init__(self, address: str, map_file: str, tell: Callable[[str], None]) -> None:
        self._address = address
        self._map = map_file
        self._tell = tell

    def lead(self, where: Where) -> None:
        """Lead requests that come from now on; held ones wait. Where the file is on this machine, it says so too."""
        said = self._ask(f"set map {self._map} {KEY} {where}")
        if said:
            raise Unusable(f"haproxy refuses to set {KEY} in {self._map}: {said.splitlines()[0]}")
        if os.path.isfile(self._map):  # for when haproxy starts again
            try:
                write_whole(Disk(), self._map, f"{KEY} {where}\n".encode())
            except OSError as error:
                self._tell(f"{self._map} cannot be written ({error.strerror}): write {KEY} {where} there")

    def where(self) -> str:
        """Return where requests are led now."""
        for line in self._ask(f"show map {self._map}").splitlines():
            words = line.split()
            if words[1:2] == [KEY] and len(words) == 3:
                return words[2]
        raise Unusable(f"haproxy has no {KEY} in {self._map}")

    def under_way(self, service: Service) -> int:
        """Return how many requests a service has not answered yet."""
        return int(self._backend(service)["scur"])

    async def wait_until_up(self, service: Service, seconds: float) -> None:
        """Wait until haproxy, by its own checks, takes a service for one that serves; raise `Unusable` else."""
        until = time.monotonic() + seconds
        while self._backend(service)["status"] != "UP":
            if time.monotonic() > until:
                raise Unusable(
                    f"haproxy does not see the {service} service serve: see its log, and the checks it makes"
                )
            await asyncio.sleep(DRAIN_PAUSE)

    def _backend(self, service: Service) -> dict[str, str]:
        for row in csv.DictReader(self._ask("show stat").lstrip("# ").splitlines()):
            if (row["pxname"], row["svname"]) == (service, "BACKEND"):
                return row
        raise Unusable(f"haproxy has no backend {service}")

    async def drain(self, service: Service, seconds: float) -> int:
        """Wait until a service has answered all it has; return how many requests it has not after `seconds`."""
        until = time.monotonic() + seconds
        while (left := self.under_way(service)) and time.monotonic() < until:  # noqa: ASYNC110 - haproxy only answers
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


Tell = Callable[[str], None]  # is told each step when it begins
PAUSE = 0.1  # between two looks whether the new service answers
MOST_SHOWN = 5  # differences that an error names


@dataclass(frozen=True, slots=True)
class Steps:
    """What is done around the last copy. Commands are for the shell; an empty one is none."""

    proxy: Proxy | None = None
    drain: float = 10.0  # seconds that the old service has to answer the requests it has
    stop: str = ""  # stops the old service, on every node
    start: str = ""  # starts the new service, and returns
    restore: str = ""  # starts the old service again, should the cut fail after `stop`
    stop_new: str = ""  # stops the new service, should the cut fail after `start`
    patience: float = 60.0  # seconds until the new service has to answer
    ask: Callable[[str], Awaitable[None]] | None = None
    """Asks somebody to do what there is no command for, and returns when it is done; None: there is nobody."""

    def check(self) -> None:
        """Raise `Unusable` when the old service would go on while the last of it is copied."""
        if not self.stop and self.ask is None:
            raise Unusable("say by --stop what stops the old service, or run this where somebody can be asked to")


@dataclass(frozen=True, slots=True)
class Move:
    """From where to where."""

    old: Callable[[], AbstractAsyncContextManager[Source]]  # opens what the old service has
    new: Callable[[], AbstractAsyncContextManager[Installation]]
    """Opens the stopped installation that becomes the new service."""
    folder: str  # the data folder of that installation
    service_token: str = field(default="", repr=False)  # a service_admin's token without a user


@dataclass(frozen=True, slots=True)
class NewService:
    """How a service_admin asks the new service when it runs."""

    client: Client
    token: str = field(repr=False)  # the client's
    ca: str | None = None


class Cut(NamedTuple):
    """What was done."""

    plan: Plan
    copied: Copied
    seconds: float  # for which clients were held


async def copy(move: Move, progress: Progress) -> tuple[Plan, Copied]:
    """Copy what is new, while the old service goes on. Raises `Unusable`, `Unavailable`."""
    async with move.new() as target, move.old() as old:
        return await _round(old, Copying(target, move.folder, old.messages, progress))


async def _round(old: Source, copying: Copying) -> tuple[Plan, Copied]:
    documents = await old.documents()
    found = plan(documents, old.messages)
    return found, await copying.round(found)


async def cut(move: Move, service: NewService, steps: Steps, progress: Progress, tell: Tell) -> Cut:
    """Let the new service take the place of the old one. Raises `Unusable`, `Unavailable`, `ClientError`."""
    steps.check()
    async with holding("old", steps, tell) as held, move.old() as old:
        async with move.new() as target:
            copying = Copying(target, move.folder, old.messages, progress)
            tell("copying what is new, while the old service goes on")
            admins = {
                each.token
                for each in (await _round(old, copying))[0].found.users
                if "service_admin" in each.service_roles
            }
            if service.token not in admins | {move.service_token} or not service.token:
                raise Unusable("the token is not that of a service_admin of the old service: see AMS_TOKEN")
            began = time.monotonic()
            await held.begin(all_answered=False)
            await held.stop()
            tell("copying the rest: messages, users, topics, positions")
            documents = await old.documents()
            found = plan(documents, old.messages, await copying.bounds())
            copied = await copying.finish(found)
            _check(await compare_stored(found.found, target, old.messages))
        held.is_new_started = True  # from here on, or will be
        await _start(service.client, steps, tell)
        tell("trying every token")
        _check(await compare_served(found.found, service.client, service.ca))
        await _check_still(old, found)
        await held.lead("new", steps.patience)  # clients may use it from here on: there is no way back but `back`
        Copying.end(move.folder)
        return Cut(found, copied, time.monotonic() - began)


async def _check_still(old: Source, found: Plan) -> None:
    await old.messages.look()
    for topic in found.found.topics:
        if old.messages.bounds(topic.kafka).end != topic.bounds.end:
            raise Unusable(f"{topic.what} changed: somebody still uses the old service, past the proxy")


async def _start(service: Client, steps: Steps, tell: Tell) -> None:
    if steps.start:
        tell("starting the new service")
        await run("--start", steps.start)
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
        shown = "; ".join(f"{each.what}: {each.old}, and {each.new}" for each in differences[:MOST_SHOWN])
        raise Unusable(f"{len(differences)} things differ: {shown}")


class Held:
    """A service whose clients are held. Raises `Unusable` when clients are led to another service already."""

    def __init__(self, service: Service, steps: Steps, tell: Tell) -> None:
        self._service: Service = service
        self._steps, self._tell = steps, tell
        where = steps.proxy.where() if steps.proxy else service
        if where not in (service, "held"):
            raise Unusable(f"clients are led to the {where} service already")
        # A run that was killed may have left clients held, and the old service stopped.
        self._is_held = where == "held"
        self._is_stopped = self._is_held and service == "old"
        self.is_new_started = self._is_over = False

    async def begin(self, *, all_answered: bool) -> None:
        """Hold its clients, and let it answer what it has; `all_answered` says that it has to."""
        proxy = self._steps.proxy
        if proxy is None:
            return
        self._is_held = True
        self._tell("holding clients")
        proxy.lead("held")
        left = await proxy.drain(self._service, self._steps.drain)
        if left and all_answered:
            raise Unusable(
                f"{left} requests are not answered after {self._steps.drain:g} s: try again, or a longer --drain"
            )
        if left:
            self._tell(f"{left} requests are not answered after {self._steps.drain:g} s")

    async def stop(self) -> None:
        """Stop it."""
        self._tell(f"stopping the {self._service} service")
        self._is_stopped = True
        if self._steps.stop:
            await run("--stop", self._steps.stop)
        elif self._steps.ask:
            await self._steps.ask(f"stop the {self._service} service on all nodes")

    async def lead(self, service: Service, patience: float = 0.0) -> None:
        """Lead clients to the other service, and never back; haproxy has to see it serve within `patience` seconds."""
        proxy = self._steps.proxy
        if proxy is not None:
            if patience:
                await proxy.wait_until_up(service, patience)
            self._tell(f"leading clients to the {service} service")
            proxy.lead(service)
        self._is_over = True

    async def undo(self) -> None:
        """Start it again, lead clients to it, and end the new service; what fails is told, the next step follows."""
        if self._is_over:
            return
        if self.is_new_started and self._steps.stop_new:
            self._tell("stopping the new service")
            with self._told():
                await run("--stop-new", self._steps.stop_new)
        elif self.is_new_started:
            self._tell("stop the new service, if it runs, before you try again")
        runs = False
        with self._told():
            runs = await self._start_again()
        if not runs:
            self._tell(f"the {self._service} service may be stopped: start it, and lead clients to it")
        elif self._steps.proxy and self._is_held:
            self._tell(f"leading clients to the {self._service} service again")
            with self._told():
                self._steps.proxy.lead(self._service)

    async def _start_again(self) -> bool:
        if not self._is_stopped:
            return True
        if self._steps.restore:
            self._tell(f"starting the {self._service} service again")
            await run("--restore", self._steps.restore)
            return True
        if self._steps.ask is None:
            return False
        await self._steps.ask(f"start the {self._service} service again")
        return True

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except Unusable as error:
            self._tell(str(error))


@contextlib.asynccontextmanager
async def holding(service: Service, steps: Steps, tell: Tell) -> AsyncIterator[Held]:
    """Let clients of a service be held in the block; when that fails, they are led to the service again."""
    held = Held(service, steps, tell)
    try:
        yield held
    except BaseException:
        await _to_its_end(held.undo())
        raise


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Do something whole, whatever cancels it; Ctrl-C does nothing meanwhile."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):  # one that came before
                await asyncio.shield(task)
        task.result()
    finally:
        signal.signal(signal.SIGINT, before)


async def run(name: str, command: str) -> None:
    """Run an option's command by the shell, to its end also when cancelled; raise `Unusable` when it fails."""
    process = await asyncio.create_subprocess_shell(command, stdout=sys.stderr)
    ended = asyncio.ensure_future(process.wait())
    try:
        code = await asyncio.shield(ended)
    except asyncio.CancelledError:
        await ended
        raise
    if code:
        raise Unusable(f"the command of {name} ended with {code}")
