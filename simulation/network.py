"""Connections in virtual time: packets cut anywhere that arrive in order, ends, half-closes, resets and losses."""

import asyncio
import contextlib
import errno
import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from simulation.event_loop import SimLoop

if TYPE_CHECKING:
    from simulation.process import SimProcess
    from simulation.world import World

HIGH_WATER = 64 * 1024  # unread bytes of a connection at which its writer has to pause
CONNECT_SECONDS = 1.0  # timeout of a connect to an unreachable machine
NEAR_SECONDS = (50e-6, 1e-3)
ADDRESS = "10.0.0.{}"

END, RESET = "end", "reset"


class SimSocket(asyncio.Transport):
    """One end of a connection: a socket until it is attached to a protocol, a transport from then on."""

    def __init__(
        self, network: "Network", process: "SimProcess", address: tuple[str, int], peer: tuple[str, int]
    ) -> None:
        super().__init__()
        self.process, self.other = process, self
        self._network, self._address, self._peer = network, address, peer
        # Own generator: the order in which a service closes connections must not change other draws.
        self.chance = random.Random(f"{network.world.seed} {address} {peer}")
        self._protocol: asyncio.Protocol | None = None
        self._arrived: deque[bytes | str] = deque()  # not read yet
        self._unread = 0  # bytes written here and not read at the other end
        self._high = HIGH_WATER
        self._last_arrival = 0.0
        self._is_paused = self._is_writer_paused = False
        self._is_closing = self._has_ended_output = self.is_lost = False
        self._has_heard_end = False

    async def attach(self, loop: SimLoop, protocol: asyncio.Protocol) -> "SimSocket":
        """Give the connection to a protocol. If it is lost already, the protocol hears of that next."""
        made = loop.create_future()

        def begin() -> None:
            self._protocol = protocol
            protocol.connection_made(self)
            if not made.done():
                made.set_result(None)
            if self.is_lost:
                loop.call_soon(protocol.connection_lost, _reset())
            self._read()

        loop.call_soon(begin)
        await made
        return self

    def setblocking(self, is_blocking: bool) -> None:
        """Do nothing: no call blocks."""

    def send(self, data: bytes) -> int:
        """Send without a protocol, as a listener that refuses a connection."""
        self._send(data)
        return len(data)

    def shutdown(self, how: int) -> None:
        """Close the sending side."""
        self.write_eof()

    # Interface of a transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"sockname": self._address, "peername": self._peer}.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER if high is None else high

    def get_write_buffer_size(self) -> int:
        return self._unread

    def is_closing(self) -> bool:
        return self._is_closing or self.is_lost

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self.process.loop.call_soon(self._read)

    def write(self, data: Any) -> None:
        if data and not self.is_lost and not self._has_ended_output:
            self._send(bytes(data))
            if self._unread > self._high and not self._is_writer_paused and self._protocol is not None:
                self._is_writer_paused = True
                self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._has_ended_output and not self.is_lost:
            self._has_ended_output = True
            self._network.carry(self, END)

    def close(self) -> None:
        """Close once the peer has read all."""
        if not self._is_closing and not self.is_lost:
            self._is_closing = True
            self.write_eof()
            dropped = sum(len(each) for each in self._arrived if isinstance(each, bytes))
            self._arrived.clear()
            self._tell_read(dropped)
            self._close_if_flushed()

    def abort(self) -> None:
        if not self.is_lost:
            self._network.carry(self, RESET, at_once=True)
            self.lose(None)

    # Events of the network

    def lose(self, error: Exception | None) -> None:
        """Lose the connection and tell the protocol."""
        if self.is_lost:
            return
        self.is_lost = self._is_closing = True
        self._network.open.pop(self, None)
        self._arrived.clear()
        if self._protocol is not None and not self.process.loop.is_closed():
            self.process.loop.call_soon(self._protocol.connection_lost, error)

    def arrive(self, what: bytes | str) -> None:
        """Take a packet, the end of all packets, or the loss of the connection."""
        if self.is_lost:
            if isinstance(what, bytes):  # a closed socket resets the sender
                self._network.carry(self, RESET, at_once=True)
            return
        if what == RESET:
            self.lose(_reset())
            return
        if self._is_closing:
            if what == END:
                self._has_heard_end = True
            else:
                self.other.note_read(len(what))
            return
        self._arrived.append(what)
        if not self._is_paused and self._protocol is not None:
            self.process.loop.call_soon(self._read)

    def note_read(self, size: int) -> None:
        """Note that the peer has read bytes."""
        self._unread -= size
        if self.is_lost:
            return
        if self._is_writer_paused and self._unread <= self._high // 4 and self._protocol is not None:
            self._is_writer_paused = False
            self.process.loop.call_soon(self._protocol.resume_writing)
        self._close_if_flushed()

    def _close_if_flushed(self) -> None:
        if self._is_closing and self._unread <= 0:
            self.lose(None)

    def _send(self, data: bytes) -> None:
        self._unread += len(data)
        self._network.carry(self, data)

    def _read(self) -> None:
        while self._arrived and not self._is_paused and not self.is_lost and self._protocol is not None:
            what = self._arrived.popleft()
            if isinstance(what, bytes):
                self._tell_read(len(what))
                self._protocol.data_received(what)
            elif not self._protocol.eof_received():
                self.close()

    def _tell_read(self, size: int) -> None:
        if size:
            self.other.process.after(0.0, lambda: self.other.note_read(size), "packet was read")

    def arrival_of(self, seconds: float) -> float:
        """Return the arrival after this latency, never before earlier packets."""
        self._last_arrival = max(self._last_arrival, self._network.world.now + seconds)
        return self._last_arrival


@dataclass(eq=False)
class ListeningSocket:
    """A port of a process, as far as `ams.web.listener` uses it."""

    process: "SimProcess"
    port: int
    waiting: deque[SimSocket] = field(default_factory=deque)

    def fileno(self) -> int:
        return self.port

    def setblocking(self, is_blocking: bool) -> None:
        """Do nothing: no call blocks."""

    def getsockname(self) -> tuple[str, int]:
        return ADDRESS.format(1), self.port

    def close(self) -> None:
        """Do nothing: a port is closed with its process."""

    def accept(self) -> tuple[SimSocket, tuple[str, int]]:
        """Return the next connection. Raises `BlockingIOError` if there is none."""
        if not self.waiting:
            raise BlockingIOError
        sock = self.waiting.popleft()
        self.look()
        return sock, sock.get_extra_info("peername")

    async def serve(self, factory: Callable[[], asyncio.Protocol]) -> None:
        """Give each connection a protocol, until cancelled."""
        loop = self.process.loop
        has_come = asyncio.Event()
        loop.add_reader(self.port, has_come.set)
        try:
            while True:
                has_come.clear()
                while self.waiting:
                    await self.accept()[0].attach(loop, factory())
                await has_come.wait()
        finally:
            loop.remove_reader(self.port)

    def look(self) -> None:
        """Tell the event loop that a connection waits, if one does."""
        if self.waiting:
            self.process.loop.read_ready(self.port)


class Network:
    """All connections and listening ports."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.open: dict[SimSocket, None] = {}  # ends of connections that are not lost, in the order they were made
        self.slowness = 1.0  # factor on all latencies
        self._cut: list[frozenset[str]] = []  # partitioned pairs of machines
        self._held: list[
            tuple[str, str, SimProcess | None, Callable[[], None], str]
        ] = []  # waiting for the end of a partition
        self.proxies: dict[int, Callable[[], int]] = {}  # ports of proxies: each connect asks for a target
        self._listening: dict[int, ListeningSocket] = {}
        self._ports = itertools.count(40_000)

    def listen(self, process: "SimProcess", port: int) -> ListeningSocket:
        """Open a port."""
        sock = self._listening[port] = ListeningSocket(process, port)
        process.loop.sockets[port] = sock
        return sock

    async def connect(self, process: "SimProcess", port: int) -> SimSocket:
        """Return this process's end of a new connection. Raises `OSError`."""
        await asyncio.sleep(self._latency(self.world.chance))
        listening = self._listening.get(self.proxies[port]() if port in self.proxies else port)
        if listening is not None and self.is_cut(process.machine, listening.process.machine):
            await asyncio.sleep(CONNECT_SECONDS)
            raise ConnectionError(errno.EHOSTUNREACH, "No route to host")
        if listening is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        here, there = (ADDRESS.format(2), next(self._ports)), listening.getsockname()
        near, far = SimSocket(self, process, here, there), SimSocket(self, listening.process, there, here)
        near.other, far.other = far, near
        self.open[near] = self.open[far] = None
        listening.waiting.append(far)
        listening.look()
        return near

    def carry(self, sender: SimSocket, what: bytes | str, *, at_once: bool = False) -> None:
        """Deliver data to the other end, in pieces."""
        to = sender.other
        for piece in _pieces(what, sender.chance) if isinstance(what, bytes) else (what,):
            latency = self._latency(sender.chance)
            moment = self.world.now + latency if at_once else sender.arrival_of(latency)
            said = f"packet of {len(piece)}" if isinstance(piece, bytes) else piece
            self.deliver(sender.process.machine, to.process.machine, to.process, moment, _arrival(to, piece), said)

    def deliver(
        self, here: str, there: str, owner: "SimProcess | None", moment: float, action: Callable[[], None], label: str
    ) -> None:
        """Run an action at another machine on arrival. During a partition it waits, like a retransmission."""
        if self.is_cut(here, there):
            self._held.append((here, there, owner, action, label))
        elif owner is None:
            self.world.timeline.at(moment, action, label, None)
        else:
            owner.at(moment, action, label)

    def is_listening(self, port: int) -> bool:
        """Return whether a port is open."""
        return port in self._listening

    def is_cut(self, here: str, there: str) -> bool:
        """Return whether two machines are partitioned."""
        return bool(self._cut) and frozenset((here, there)) in self._cut

    def part(self, here: str, there: str) -> None:
        """Partition two machines, both ways."""
        self._cut.append(frozenset((here, there)))

    def join(self, here: str, there: str) -> None:
        """End a partition, and deliver what was sent meanwhile over connections that still stand."""
        with contextlib.suppress(ValueError):  # `join_all` came first
            self._cut.remove(frozenset((here, there)))
        self._release()

    def join_all(self) -> None:
        """End all partitions."""
        self._cut.clear()
        self._release()

    def _release(self) -> None:
        held, self._held = self._held, []
        latency = self._latency(self.world.chance)
        for here, there, owner, action, label in held:
            if owner is None or not owner.is_dying:
                self.deliver(here, there, owner, self.world.now + latency, action, label)

    def near_latency(self, chance: random.Random) -> float:
        """Draw the latency between servers."""
        return self.world.draw(NEAR_SECONDS, chance) * self.slowness

    def break_connection(self, sock: SimSocket) -> None:
        """Break a connection. Each end hears of it at its own moment."""
        for end in (sock, sock.other):
            end.process.after(self._latency(end.chance), _arrival(end, RESET), "connection lost")

    def end(self, process: "SimProcess", *, hear_after: float | None = None) -> None:
        """Close all connections of a process. Peers hear of it soon, or after this many seconds."""
        for port, listening in list(self._listening.items()):
            if listening.process is process:
                del self._listening[port]
        for sock in list(self.open):
            if sock.process is process:
                self.open.pop(sock, None)
                sock.is_lost = True
            elif sock.other.process is process:  # also where the process had closed its end already
                seconds = self._latency(sock.chance) + (hear_after or 0.0)
                sock.process.at(sock.other.arrival_of(seconds), _arrival(sock, RESET), "reset: the process ended")

    def _latency(self, chance: random.Random) -> float:
        return self.world.draw(self.world.latencies.network, chance) * self.slowness


def _pieces(data: bytes, chance: random.Random) -> list[bytes]:
    if len(data) < 2 or chance.random() < 0.8:
        return [data]
    places = sorted({chance.randrange(1, len(data)) for _ in range(chance.randint(1, 3))})
    return [data[start:stop] for start, stop in zip([0, *places], [*places, len(data)], strict=True)]


def _arrival(to: SimSocket, what: bytes | str) -> Callable[[], None]:
    return lambda: to.arrive(what)


def _reset() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
