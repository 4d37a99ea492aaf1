"""Ranges as Arrow IPC streams, made piece by piece: here, in turn, or by a worker process when that takes long.

Most pieces are made in less time than it takes to send them to a worker.
"""

import asyncio
import contextlib
import functools
import importlib
from array import array
from collections.abc import AsyncIterator, Hashable, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any

from ams.core.clock import Milliseconds
from ams.core.messages import Fragment, Stored
from ams.core.names import Offset
from ams.core.runs import Run, Runs, runs_of
from ams.workers import NoWorker, Pool, TaskFailed

END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""What ends a stream (Arrow columnar format, IPC streaming format)."""
_ARROW = "ams.http.arrow"
COSTLY = 300
"""Messages with attributes or keys that are made here at once."""
_DATA = b'"data"'
"""How the fragment of a message begins that has nothing else."""
_SECONDS = 10.0
"""For a worker to make a piece; after that it is made here."""


async def stream(
    pieces: AsyncIterator[Sequence[Stored]], turn: asyncio.Lock, pool: Pool | None = None, project: Hashable = None
) -> AsyncIterator[bytes]:
    """Yield the schema, a record batch for each piece, and the end; what is made here has its turn with all others."""

    async def made(piece: Sequence[Stored]) -> bytes:
        if pool is not None and _is_costly(piece) and pool.is_ready():
            with contextlib.suppress(NoWorker, TaskFailed):
                async with pool.done(project, encode, _parts(piece), seconds=_SECONDS) as [encoded]:
                    return bytes(encoded)
        # Not looked for among the loaded modules: there it stands before it is whole, while another thread loads it.
        arrow = _arrow() if _arrow.cache_info().currsize else await asyncio.to_thread(_arrow)
        async with turn:
            await asyncio.sleep(0)
            return _encoded(arrow, piece)

    yield await made(())
    async for piece in pieces:
        yield await made(piece)
    yield END


def encode(parts: Sequence[memoryview]) -> Sequence[bytes]:
    """Make a piece; a job of a worker. Takes what `_parts` makes of messages; of none the schema is made."""
    heads, lengths, blob = map(bytes, parts)
    fragments = [Fragment(blob[a:b]) for a, b in pairwise(accumulate(array("I", lengths), initial=0))]
    runs, place, numbers = [], 0, array("Q", heads)
    for first, time, count in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True):
        part = fragments[place : place + count]
        runs.append(Run.of(Offset(first), Milliseconds(time), part))
        place += count
    return [_encoded(_arrow(), Runs(runs))]


def _is_costly(piece: Sequence[Stored]) -> bool:
    """Whether a piece takes longer than about a millisecond to make: these are read one message at a time."""
    return len(piece) > COSTLY and sum([not each.fragment.startswith(_DATA) for each in piece]) > COSTLY


def _parts(piece: Sequence[Stored]) -> Sequence[bytes]:
    """Return first offset, time and number of messages of each run, then the lengths of fragments, then these."""
    runs = runs_of(piece)
    heads = array("Q", chain.from_iterable([(run.first, run.time, len(run.fragments)) for run in runs]))
    fragments = list(chain.from_iterable([run.fragments for run in runs]))
    return heads.tobytes(), array("I", map(len, fragments)).tobytes(), b"".join(fragments)


@functools.cache
def _arrow() -> Any:
    """Load what makes Arrow; that takes a while the first time."""
    return importlib.import_module(_ARROW)


def _encoded(arrow: Any, piece: Sequence[Stored]) -> bytes:
    made = arrow.batch(piece) if piece else arrow.SCHEMA
    encoded: bytes = made.serialize().to_pybytes()
    return encoded
