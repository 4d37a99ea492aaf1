"""What a lease, an acknowledgement and a hole cost: the state of one subscription alone, in this process."""

import gc
import timeit
import tracemalloc
from collections.abc import Callable, Iterator
from time import process_time
from typing import NamedTuple, TypeVar

from pyroaring import BitMap64

from ams.core.clock import Milliseconds
from ams.core.names import Offset
from ams.service.parallel.backlog import Backlog
from ams.service.parallel.failures import Rules
from ams.storage.cursors.acks import Progress

OUT = 100_000
"""Messages on lease."""
HOLES = 1_000_000
"""Offsets of which every second is acknowledged."""
IDENTITY = "9f3c21"
HOLDER = "a-consumer"
NOW = Milliseconds(10**9)
DEADLINE = Milliseconds(NOW + 600_000)
LOOKS = 1000
"""Of each measurement."""
T = TypeVar("T")


class Costs(NamedTuple):
    """Bytes of memory, and microseconds of processor time."""

    lease_bytes: float
    tuple_bytes: float
    """Of a tuple of the same fields in a dictionary."""
    look_us: float
    """Of a look for what has ended, when nothing has."""
    few_look_us: float
    """The same with a hundredth of the leases."""
    lease_us: float
    ack_us: float
    """Of one id in the list that acknowledges a whole hand-out."""
    hole_bytes: float


def costs(each: int) -> Costs:
    """Measure with hand-outs of `each` messages."""
    lease_bytes, full = _bytes_of(lambda: _leased(OUT, each))
    tuple_bytes, _ = _bytes_of(lambda: _tuples(OUT, each))
    few = _leased(OUT // 100, each)
    began = process_time()
    leased = _leased(OUT, each)
    lease_us = 1e6 * (process_time() - began) / OUT
    return Costs(
        lease_bytes / OUT,
        tuple_bytes / OUT,
        _look_microseconds(full),
        _look_microseconds(few),
        lease_us,
        _acknowledge_microseconds(leased, each),
        _hole_bytes(),
    )


def _backlog() -> Backlog:
    progress = Progress(Offset(0), 0, 1, BitMap64(), {})
    return Backlog(progress, IDENTITY, Rules(), end=Offset(0), grace_until=Milliseconds(0))


def _hand_outs(messages: int, each: int) -> Iterator[list[Offset]]:
    return (list(map(Offset, range(first, first + each))) for first in range(0, messages, each))


def _leased(messages: int, each: int) -> Backlog:
    backlog = _backlog()
    for offsets in _hand_outs(messages, each):
        backlog.give(offsets, 1, 1024 * each, DEADLINE, HOLDER)
        backlog.done.scanned(Offset(offsets[-1] + 1))
    return backlog


def _tuples(messages: int, each: int) -> dict[Offset, tuple[str, Milliseconds, int, str]]:
    """Keep what is known of leases in the plainest way."""
    found: dict[Offset, tuple[str, Milliseconds, int, str]] = {}
    for number, offsets in enumerate(_hand_outs(messages, each)):
        text = f"1.0.1.{number}.{IDENTITY}"
        for offset in offsets:
            found[offset] = (text, DEADLINE, 1024, HOLDER)
    return found


def _bytes_of(make: Callable[[], T]) -> tuple[int, T]:
    """Return the memory of something, and the thing."""
    gc.collect()
    tracemalloc.start()
    try:
        made = make()
        return tracemalloc.get_traced_memory()[0], made
    finally:
        tracemalloc.stop()


def _look_microseconds(backlog: Backlog) -> float:
    """Return what it takes to see that nothing is due."""

    def look() -> None:
        backlog.next_due()
        assert backlog.expire(NOW).is_empty

    return 1e6 * min(timeit.repeat(look, number=LOOKS, repeat=5)) / LOOKS


def _acknowledge_microseconds(backlog: Backlog, each: int) -> float:
    """Return what an acknowledgement takes in the state machine, of one message."""
    lists = [{f"1.0.1.{number}.{IDENTITY}": offsets} for number, offsets in enumerate(_hand_outs(OUT, each), 1)]
    began = process_time()
    for ids in lists:
        backlog.stored(backlog.acknowledge(ids, NOW), NOW)
    seconds = process_time() - began
    assert backlog.out == 0
    assert backlog.floor == OUT
    return 1e6 * seconds / OUT


def _hole_bytes() -> float:
    """Return the memory of an acknowledged message between two that are not."""
    done = BitMap64(range(1, HOLES, 2))
    return len(done.serialize()) / len(done)
