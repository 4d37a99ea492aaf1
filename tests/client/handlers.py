"""Message handlers for tests, and an accelerated clock for them."""

import asyncio
import contextlib
import itertools
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from ams.client import Client, Message, ReceivedMessage, wire
from ams.client.async_client import AsyncConnections
from ams.client.plans import Step
from ams.client.wire import ParallelOptions
from tests.support.served import InProcessService
from tests.support.waiting import PATIENCE_SECONDS, wait_until_async

FASTER = 5  # how much faster time passes where leases have to end, the shortest of which are of ten seconds


class Handler:
    """A message handler for either client that records its messages, and behaves as a test wants.

    It works on a message for the seconds that `act` returns, or until the event that `act` returns is set.
    """

    def __init__(self, face: str, act: Callable[[ReceivedMessage], float | Event | None] = lambda _: None) -> None:
        self._act = act
        self.seen: list[bytes] = []
        self.at_once, self.most = 0, 0
        self._lock = threading.Lock()
        self.handle: Any = self._in_thread if face == "threads" else self._on_loop

    def _begin(self, message: ReceivedMessage) -> Event | float:
        with self._lock:
            self.seen.append(message.data)
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        return self._act(message) or 0

    def _end(self) -> None:
        with self._lock:
            self.at_once -= 1

    def _in_thread(self, message: ReceivedMessage) -> None:
        try:
            wanted = self._begin(message)
            wanted.wait(PATIENCE_SECONDS) if isinstance(wanted, Event) else time.sleep(wanted)
        finally:
            self._end()

    async def _on_loop(self, message: ReceivedMessage) -> None:
        try:
            wanted = self._begin(message)
            await (wait_until_async(wanted.is_set) if isinstance(wanted, Event) else asyncio.sleep(wanted))
        finally:
            self._end()


def sharing_handlers() -> list[Handler]:
    """Return two handlers on threads that hold their first messages until both have one.

    Otherwise a worker that starts late finds nothing left.
    """
    both_began = Event()

    def act(_: ReceivedMessage) -> float | Event:
        if all(each.seen for each in handlers):
            both_began.set()
        return 0.005 if both_began.is_set() else both_began

    handlers = [Handler("threads", act) for _ in range(2)]
    return handlers


def create_work_project(client: Client, **options: Any) -> str:
    name = f"p-{uuid.uuid4()}"
    client.call(wire.create_project(name))
    client.project(name).topic("t").create()
    client.project(name).subscription("s").create("t", parallel=ParallelOptions(**options))
    return name


def publish(client: Client, project: str, count: int) -> list[bytes]:
    data = [b"%d" % number for number in range(count)]
    client.project(project).topic("t").publish([Message(each) for each in data])
    return data


def backlog(client: Client, project: str) -> int:
    offsets = client.project(project).subscription("s").offsets()
    return offsets.max - offsets.current


def let_time_pass_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accelerate the clock of workers in this process; for services there is `accelerate_clocks`."""
    monkeypatch.setattr("ams.client.worker.time", SimpleNamespace(monotonic=lambda: FASTER * time.monotonic()))
    monkeypatch.setattr("ams.client.worker.LOOKS", 10 * FASTER)


def call_after(monkeypatch: pytest.MonkeyPatch, verb: str, act: Callable[[], Awaitable[object] | None]) -> None:
    """Call a function after each request of workers with this verb, before they get the answer."""
    do = AsyncConnections.do

    async def do_step(connections: AsyncConnections, step: Step) -> Any:
        outcome = await do(connections, step)
        if isinstance(step, wire.Call) and step.path.endswith(f":{verb}") and (waiting := act()):
            await waiting
        return outcome

    monkeypatch.setattr(AsyncConnections, "do", do_step)


def pass_leases(monkeypatch: pytest.MonkeyPatch, service: InProcessService) -> Event:
    """Accelerate the clock of workers, and of a service most of a lease with each extension: none is too late.

    Returns an event that is set when more than a lease has passed: at every second extension.
    """
    let_time_pass_faster(monkeypatch)
    longer_than_a_lease, numbers = Event(), itertools.count()

    def pass_time() -> None:
        service.clock.advance(9000)
        if next(numbers) % 2:
            longer_than_a_lease.set()

    call_after(monkeypatch, "modifyAckDeadline", pass_time)
    return longer_than_a_lease


@contextlib.contextmanager
def accelerate_clocks(*services: InProcessService) -> Iterator[Event]:
    """Accelerate the clock of services until the yielded event is set."""
    over = threading.Event()

    def pass_time() -> None:
        last = time.monotonic()
        while not over.wait(0.02):
            now = time.monotonic()
            for each in services:
                each.clock.advance(round(1000 * FASTER * (now - last)))
            last = now

    thread = threading.Thread(target=pass_time)
    thread.start()
    try:
        yield over
    finally:
        over.set()
        thread.join()
