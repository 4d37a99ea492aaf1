"""Comparator of storing: a process that appends the bytes of a load and syncs them in groups.

`python -m bench.raw` reads a `Job` on stdin, appends for so many seconds, and writes to stdout how many records that
were a second. Each writer hands over a record and waits until the sync of its group is done. One thread takes all
that wait, writes them behind one another and syncs once. There is no HTTP, no JSON, no check and no checksum.
"""

import asyncio
import os
import queue
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import uvloop

from bench.processes import answered

SEGMENT_BYTES = 256 * 2**20
"""The file begins anew here, as the service begins a new segment."""
PATIENCE_SECONDS = 60.0
WARM_UP_SECONDS = 0.3
MESSAGE_BYTES = 1383
"""Of a message of 1 KiB in the log: its base64 with the name of the field, its length, its share of a record."""
REQUEST_BYTES = 12


class Job(msgspec.Struct):
    """Records to append, and the duration."""

    folder: str
    writers: int
    size: int
    """Bytes of a record."""
    seconds: float


def stored_bytes(messages: int) -> int:
    """Return what the service stores for a request of so many messages of 1 KiB, about."""
    return messages * MESSAGE_BYTES + REQUEST_BYTES


def requests_per_second(folder: Path, writers: int, messages: int, seconds: float) -> float:
    """Return how many requests of so many messages of 1 KiB could be stored, at the most; raises `Failed`."""
    job = Job(str(folder), writers, stored_bytes(messages), seconds)
    return answered("bench.raw", job, float, PATIENCE_SECONDS + seconds)


class Storing:
    """The thread that writes and syncs."""

    def __init__(self, handle: int, loop: asyncio.AbstractEventLoop, writers: "Writers") -> None:
        self.waiting: queue.SimpleQueue[Sequence[bytes] | None] = queue.SimpleQueue()
        self._handle = handle
        self._loop = loop
        self._writers = writers
        self._length = 0

    def run(self) -> None:
        """Store what waits, group by group, until None comes."""
        while (records := self.waiting.get()) is not None:
            self._store(records)
            self._loop.call_soon_threadsafe(self._writers.stored, self, len(records))

    def _store(self, records: Sequence[bytes]) -> None:
        if self._length >= SEGMENT_BYTES:
            os.ftruncate(self._handle, 0)
            self._length = 0
        size = sum(map(len, records))
        if os.pwritev(self._handle, records, self._length) != size:
            raise OSError("the disk is full")
        os.fdatasync(self._handle)
        self._length += size


class Writers:
    """Callers in a closed loop: each hands over its next record when its last one is stored."""

    def __init__(self, records: Sequence[bytes]) -> None:
        self._records = records
        self.stored_records = 0

    def begin(self, storing: Storing) -> None:
        """Hand over the first record of each."""
        storing.waiting.put(self._records)

    def stored(self, storing: Storing, count: int) -> None:
        """Note a group and hand over what its writers have next."""
        self.stored_records += count
        storing.waiting.put([self._records[number] for number in range(count)])


async def _append(job: Job) -> float:
    file = Path(job.folder) / "raw-groups"
    handle = os.open(file, os.O_CREAT | os.O_RDWR | os.O_TRUNC | os.O_CLOEXEC)
    writers = Writers([os.urandom(job.size) for _ in range(job.writers)])
    storing = Storing(handle, asyncio.get_running_loop(), writers)
    thread = threading.Thread(target=storing.run)
    thread.start()
    try:
        writers.begin(storing)
        await asyncio.sleep(WARM_UP_SECONDS)
        began, before = time.perf_counter(), writers.stored_records
        await asyncio.sleep(job.seconds)
        if not thread.is_alive():
            sys.exit("bench.raw: the file could not be appended to")
        return (writers.stored_records - before) / (time.perf_counter() - began)
    finally:
        storing.waiting.put(None)
        thread.join()
        os.close(handle)
        file.unlink()


if __name__ == "__main__":
    found = uvloop.run(_append(msgspec.json.decode(sys.stdin.buffer.read(), type=Job)))
    sys.stdout.buffer.write(msgspec.json.encode(found))
