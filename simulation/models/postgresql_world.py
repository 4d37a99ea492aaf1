"""A model of PostgreSQL on a machine of a world: statements and results go over the network, in order.

A statement that arrived runs, even if its sender is gone; its result may be lost. A session ends when the server learns
that its client did: soon after a kill, late after a power cut, not during a partition.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import psycopg

from simulation.models.postgresql import Blocked, Result, Server, Session
from simulation.models.postgresql_driver import LOST_TEXT, WAIT_SECONDS, Work, not_in_time, wait_limit
from simulation.network import Network
from simulation.process import SimProcess
from simulation.threads import SimThread, wait_until, wake_all

MACHINE = "postgresql"
CONNECT_SECONDS = 2.0
WORK_SECONDS = (50e-6, 2e-3)  # of a statement, with its sync


class Reply:
    """An answer that a thread or a coroutine waits for."""

    def __init__(self, process: SimProcess) -> None:
        self._process = process
        self._waiters: list[SimThread] = []
        self._future: asyncio.Future[None] | None = None
        self.is_there = False
        self._value: Any = None
        self._error: Exception | None = None

    def set(self, value: Any, error: Exception | None = None) -> None:
        """Give the answer, unless there is one."""
        if self.is_there:
            return
        self.is_there, self._value, self._error = True, value, error
        wake_all(self._waiters)
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def wait(self, seconds: float) -> Any:
        """Wait for the answer on a thread. Raises `psycopg.OperationalError` if none comes in time."""
        timer = self._process.after(seconds, lambda: self.set(None, _silent()), "timeout of an answer")
        wait_until(lambda: self.is_there, self._waiters)
        timer.cancel()
        return self._result()

    async def wait_async(self) -> Any:
        """Wait for the answer on an event loop."""
        if not self.is_there:
            self._future = asyncio.get_running_loop().create_future()
            await self._future
        return self._result()

    def _result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._value


def _silent() -> Exception:
    return psycopg.OperationalError("the server does not answer")


def _connection_lost() -> Exception:
    return psycopg.OperationalError(LOST_TEXT)


class SimHost:
    """A server in a world, and the connections to it."""

    def __init__(self, network: Network, server: Server) -> None:
        self.network, self.server, self.world = network, server, network.world
        self.lines: dict[SimLine, None] = {}
        self._numbers = 0

    def connect(self, database: str) -> "SimLine":
        line: SimLine = self._begin(database).wait(CONNECT_SECONDS)
        return line

    async def connect_async(self, database: str) -> "SimLine":
        reply = self._begin(database)
        timer = asyncio.get_running_loop().call_later(CONNECT_SECONDS, reply.set, None, _silent())
        try:
            line: SimLine = await reply.wait_async()
        finally:
            timer.cancel()
        return line

    def _begin(self, database: str) -> Reply:
        process = SimProcess.running()
        self._numbers += 1
        chance = random.Random(f"{self.world.seed} postgresql {self._numbers}")
        reply = Reply(process)

        def arrive() -> None:
            try:
                line = SimLine(self, self.server.connect(database), process, chance)
            except psycopg.OperationalError as error:
                failure = error
                self._answer(process, chance, lambda: reply.set(None, failure))
            else:
                self.lines[line] = None
                self._answer(process, chance, lambda: reply.set(line))

        moment = self.world.now + self.network.near_latency(chance)
        self.network.deliver(process.machine, MACHINE, None, moment, arrive, "connection to postgresql")
        return reply

    def _answer(self, process: SimProcess, chance: random.Random, action: Callable[[], None]) -> None:
        moment = self.world.now + self.network.near_latency(chance)
        self.network.deliver(MACHINE, process.machine, process, moment, action, "postgresql has connected")

    def end(self, process: SimProcess, hear_after: float | None) -> None:
        """Tell the server that a process has ended."""
        for line in [each for each in self.lines if each.process is process]:
            line.leave(hear_after or 0.0)


class SimLine:
    """A connection's line to its session, over the network."""

    def __init__(self, host: SimHost, session: Session, process: SimProcess, chance: random.Random) -> None:
        self.session, self.process = session, process
        self._host, self._chance = host, chance
        self._is_lost = False
        self._replies: dict[Reply, None] = {}
        self._heard: list[tuple[str, str]] = []
        self._hears: Reply | None = None
        self._there = self._back = 0.0  # arrivals of the last packets
        session.on_heard = self._tell

    def ask(self, work: Work, seconds: float) -> Result:
        result: Result = self._send(work).wait(seconds)
        return result

    async def ask_async(self, work: Work) -> Result:
        result: Result = await self._send(work).wait_async()
        return result

    def take_notifications(self) -> list[tuple[str, str]]:
        heard, self._heard = self._heard, []
        return heard

    async def wait_for_notifications(self, seconds: float) -> None:
        if self._is_lost:
            raise _connection_lost()
        self._hears = hears = Reply(self.process)
        timer = asyncio.get_running_loop().call_later(seconds, hears.set, None)
        try:
            await hears.wait_async()
        finally:
            timer.cancel()

    def close(self) -> None:
        if self._is_lost:
            return
        self._lose()
        if not self.process.is_dying:
            self.leave(0.0)

    @property
    def is_lost(self) -> bool:
        return self._is_lost

    def leave(self, seconds: float) -> None:
        """End the session once the server learns that its client is gone."""
        self._host.lines.pop(self, None)
        self._to_server(self.session.end, "end of a session", seconds)

    def _lose(self) -> None:
        self._is_lost = True
        for reply in [*self._replies, *([self._hears] if self._hears else [])]:
            reply.set(None, _connection_lost())
        self._replies.clear()

    def _send(self, work: Work) -> Reply:
        reply = Reply(self.process)
        if self._is_lost or self.process.is_dying:
            reply.set(None, _connection_lost())
            return reply
        self._replies[reply] = None
        seconds = self._host.world.draw(WORK_SECONDS, self._chance)
        self._to_server(lambda: self._work(work, reply), "statement", seconds)
        return reply

    def _work(self, work: Work, reply: Reply, until: float = 0.0) -> None:
        world = self._host.world
        until = until or world.now + wait_limit(self.session)
        result, error = Result(), None
        try:
            result = work()
        except Blocked:
            if world.now < until:
                world.after(WAIT_SECONDS, lambda: self._work(work, reply, until), "postgresql waits")
                return
            error = not_in_time(self.session)
        except psycopg.Error as raised:
            error = raised
        self._to_client(lambda: self._take_answer(reply, result, error), "answer of postgresql")

    def _take_answer(self, reply: Reply, result: Result, error: psycopg.Error | None) -> None:
        self._replies.pop(reply, None)
        reply.set(result, error)

    def _tell(self) -> None:
        """Send notifications of the session, or its end."""
        if self.session.is_over:
            self._host.lines.pop(self, None)
            self._to_client(self._lose, "end of a session")
            return
        heard, self.session.heard = self.session.heard, []
        self._to_client(lambda: self._hear(heard), "notification")

    def _hear(self, heard: list[tuple[str, str]]) -> None:
        self._heard += heard
        if self._hears is not None:
            self._hears.set(None)

    def _to_server(self, action: Callable[[], None], label: str, seconds: float = 0.0) -> None:
        network = self._host.network
        self._there = max(self._there, self._host.world.now + seconds + network.near_latency(self._chance))
        network.deliver(self.process.machine, MACHINE, None, self._there, action, label)

    def _to_client(self, action: Callable[[], None], label: str) -> None:
        if self.process.is_dying:
            return
        network = self._host.network
        self._back = max(self._back, self._host.world.now + network.near_latency(self._chance))
        network.deliver(MACHINE, self.process.machine, self.process, self._back, action, label)
