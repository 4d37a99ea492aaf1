"""Requests side by side: those of a topic one after another, those of several topics at the same time."""

import queue
import threading
import zlib
from collections.abc import Callable
from types import TracebackType

from ams.pipeline.sink.chunks import Chunk

THREADS = 4
"""Requests under way at once, each to another topic."""
WAITING = 2
"""Requests that wait for each thread: the next one is made while one is under way."""


class Sender:
    """Hands requests to threads; a topic always has the same thread, so the order of its requests is kept.

    After the first failure nothing more is sent; `put` and the end of a `with` raise it. A `with` that is left by
    another error sends nothing more either.
    """

    def __init__(self, send: Callable[[Chunk], None], threads: int = THREADS) -> None:
        self._send = send
        self._queues: list[queue.Queue[Chunk | None]] = [queue.Queue(WAITING) for _ in range(threads)]
        self._threads: dict[int, threading.Thread] = {}
        self._error: BaseException | None = None

    def put(self, chunk: Chunk) -> None:
        """Have a request sent after the earlier ones of its topic; waits while too many are under way."""
        self._raise()
        number = zlib.crc32(chunk.lane.topic.encode()) % len(self._queues)
        if number not in self._threads:
            self._threads[number] = self._started(number)
        self._queues[number].put(chunk)

    def __enter__(self) -> "Sender":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._error = self._error or error
        for number in self._threads:
            self._queues[number].put(None)
        for thread in self._threads.values():
            thread.join()
        if error is None:
            self._raise()

    def _started(self, number: int) -> threading.Thread:
        thread = threading.Thread(target=self._work, args=[self._queues[number]], daemon=True)
        thread.start()
        return thread

    def _work(self, chunks: "queue.Queue[Chunk | None]") -> None:
        while (chunk := chunks.get()) is not None:
            # After a failure the queue is emptied still, so that nobody waits for room in it for ever.
            if self._error is None:
                self._try(chunk)

    def _try(self, chunk: Chunk) -> None:
        try:
            self._send(chunk)
        except BaseException as error:  # raised again by whoever hands over the next request
            self._error = error

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error
