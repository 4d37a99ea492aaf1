"""A link between two machines that can be cut or held: a small TCP proxy between two ports on loopback."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator

from local_cluster.ports import LOOPBACK, free_port
from local_cluster.processes import Startable

CHUNK = 2**16


class Link(Startable):
    """Passes connections to `port` on to `target`, until it is cut or held.

    It has its own thread and event loop: a busy test does not slow it. All methods are thread-safe.
    """

    def __init__(self, target: int, port: int | None = None) -> None:
        self.target = target
        self.port = port or free_port()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._whole = True
        self._passing = asyncio.Event()
        self._passing.set()
        self._ends: set[asyncio.StreamWriter] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    def start(self) -> None:
        """Listen; each incoming connection makes one to the target."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"link {self.port}", daemon=True)
        self._thread.start()
        self._do(self._listen())

    def stop(self) -> None:
        """Break all connections and stop listening, if it was started."""
        if self._loop is None or self._thread is None:
            return
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None

    def cut(self) -> None:
        """Break all connections, and each new one at once: both sides notice."""
        self._do(self._cut())

    def hold(self) -> None:
        """Drop all bytes but keep the connections open: neither side gets an error, as when a cable is pulled."""
        self._do(self._hold())

    def restore(self) -> None:
        """Pass on everything again. Held bytes arrive late, like TCP retransmissions."""
        self._do(self._restore())

    def _do(self, work: Coroutine[None, None, None]) -> None:
        assert self._loop is not None, "the link was not started"
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._pass_on, LOOPBACK, self.port)

    async def _close(self) -> None:
        if self._server is not None:  # else it could not listen
            self._server.close()
        await self._cut()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _hold(self) -> None:
        self._passing.clear()

    async def _restore(self) -> None:
        self._whole = True
        self._passing.set()

    async def _cut(self) -> None:
        self._whole = False
        for end in self._ends:
            end.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with self._count_connection(writer), contextlib.suppress(OSError):
                await self._join(reader, writer)
        finally:
            self._connections.discard(task)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._passing.wait()
        if not self._whole:
            return
        far_reader, far_writer = await asyncio.open_connection(LOOPBACK, self.target)
        with self._count_connection(far_writer):
            await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))

    @contextlib.contextmanager
    def _count_connection(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        self._ends.add(writer)
        try:
            yield
        finally:
            self._ends.discard(writer)
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass bytes on in one direction. The end of one side closes the other, without half-closing."""
        while data := await reader.read(CHUNK):
            await self._passing.wait()
            writer.write(data)
            await writer.drain()
        await self._passing.wait()
        writer.close()
