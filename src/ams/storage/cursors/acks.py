"""Acknowledgements of single messages, for parallel subscriptions: the protocol of their store and its state machine.

The same objects implement `ams.storage.cursors.base.Cursors`. A parallel subscription's *floor* is its cursor's offset:
all messages below are done. This module has the state above the floor.
`tests/storage/cursors/test_acks_contract.py` checks:

1. A change is durable, whole or not at all, before the call returns. Otherwise the call raises `CursorsUnavailable`.
2. A change with an old epoch or run stores nothing, and the answer says so.
3. A seek, another topic or a new creation resets done messages, failures and horizon.
   Retention drops the state below the new floor, keeps the epoch, and counts only messages not done as lost.

`hand_out` and `acknowledge` are for ordered subscriptions alone. An unknown subscription is `SubscriptionGone`.

    done        acknowledged, skipped by a filter, or sent to the dead-letter topic
    failure     a nack or an expired lease
    epoch       generation of the cursor: raised by each seek
    run         fencing token: raised when a process takes a subscription over; older runs can store nothing
    taken back  ack ids that are void because an earlier message with the same ordering key failed
    horizon     messages that may be leased after a crash, for exactly-once delivery
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from pyroaring import BitMap64

from ams.core.clock import Milliseconds
from ams.core.names import Offset, SubscriptionId, TopicId
from ams.core.offsets import Range, bitmap_of, first_missing
from ams.storage.cursors.base import Cursors

_NO_END = 2**64 - 1
H = TypeVar("H", bound="Horizon | None")
T = TypeVar("T")


class Horizon(NamedTuple):
    """Messages that may be leased after a crash, for exactly-once delivery."""

    below: Offset
    until: Milliseconds  # wall time by which all leases have expired


class Mark(NamedTuple):
    """Newest hand-out at some moment: ack ids up to this one are void."""

    run: int
    number: int


class AckProgress(NamedTuple):
    """Acknowledgements of a parallel subscription. Treat as immutable; `copy_progress` makes a private copy."""

    floor: Offset
    epoch: int
    run: int  # 0: no process took it over yet
    done: BitMap64  # offsets above the floor that are done; the floor itself never is
    failures: Mapping[Offset, int]  # failure counts of offsets that are not done
    horizon: Horizon | None = None  # None as well when everything below it is done
    taken_back: Mapping[Offset, Mark] = {}  # last mark of offsets that are not done


class AckUpdate(NamedTuple):
    """A change to store, all or nothing."""

    done: Sequence[Range] = ()
    failures: Mapping[Offset, int] = {}  # the new counts
    horizon: Horizon | None = None  # minimum for the new horizon; None: unchanged
    taken_back: Mapping[Offset, Mark] = {}  # the new marks


class CursorStore(Cursors, Protocol):
    """Cursors, and acknowledgements of parallel subscriptions; the module's docstring is the contract."""

    async def take_over(self, subscription: SubscriptionId, topic: TopicId) -> AckProgress:
        """Begin a run, durably; return the stored progress, reset to 0 on another topic. May raise `TopicGone`."""

    async def progress(self, subscription: SubscriptionId) -> AckProgress:
        """Return the stored progress without beginning a run; for ordered subscriptions too."""

    async def settle(self, subscription: SubscriptionId, epoch: int, run: int, change: AckUpdate) -> bool:
        """Store a change; durable when it returns. Returns False and stores nothing if epoch or run is old."""

    async def restore(self, subscription: SubscriptionId, topic: TopicId, floor: Offset, done: BitMap64) -> int | None:
        """Restore a snapshot, durably; the run stays. Returns the new epoch; None if the cursor is on another topic."""


def empty_progress(floor: Offset, epoch: int, run: int) -> AckProgress:
    """Return a progress with no state above its floor."""
    return AckProgress(floor, epoch, run, BitMap64(), {})


def join_changes(changes: Iterable[AckUpdate]) -> AckUpdate:
    """Merge changes, in order, into one."""
    done: list[Range] = []
    failures: dict[Offset, int] = {}
    horizon: Horizon | None = None
    taken_back: dict[Offset, Mark] = {}
    for each in changes:
        done += each.done
        failures |= each.failures
        horizon = join_horizons(horizon, each.horizon)
        taken_back |= each.taken_back
    return AckUpdate(done, failures, horizon, taken_back)


def apply_update(progress: AckProgress, change: AckUpdate) -> AckProgress:
    """Apply a change, and move the floor up over done messages. Returns the same object if nothing changes."""
    done, failures, taken_back = progress.done, progress.failures, progress.taken_back
    asked = bitmap_of(change.done)
    asked.remove_range(0, progress.floor)
    asked -= done
    if asked:
        done = done | asked
        failures, taken_back = _without(failures, asked), _without(taken_back, asked)
    floor = first_missing(done, progress.floor)
    if floor > progress.floor:
        done.remove_range(0, floor)
    failures = _with(failures, change.failures, floor, done)
    taken_back = _with(taken_back, change.taken_back, floor, done)
    horizon = _above(join_horizons(progress.horizon, change.horizon), floor)
    is_same = failures is progress.failures and taken_back is progress.taken_back and horizon == progress.horizon
    if not asked and is_same:
        return progress
    return AckProgress(floor, progress.epoch, progress.run, done, failures, horizon, taken_back)


def apply_seek(progress: AckProgress, floor: Offset, epoch: int, done: BitMap64 | None = None) -> AckProgress:
    """Seek to `floor` in another epoch, with the offsets `done` above it; the other state is reset."""
    above = BitMap64() if done is None else done.copy()
    floor = first_missing(above, floor)
    above.remove_range(0, floor)
    return AckProgress(floor, epoch, progress.run, above, {})


def count_lost(progress: AckProgress, oldest: Offset) -> int:
    """Return how many messages below `oldest` were not done."""
    if oldest <= progress.floor:
        return 0
    return oldest - progress.floor - progress.done.range_cardinality(progress.floor, oldest)


def raise_floor(progress: AckProgress, oldest: Offset) -> AckProgress:
    """Move the floor up to the oldest kept message. The epoch stays, so that later ack ids stay valid."""
    if oldest <= progress.floor:
        return progress
    floor = first_missing(progress.done, oldest)
    done = progress.done.copy()
    done.remove_range(0, floor)
    failures = {offset: count for offset, count in progress.failures.items() if offset >= floor}
    taken_back = {offset: mark for offset, mark in progress.taken_back.items() if offset >= floor}
    horizon = _above(progress.horizon, floor)
    return progress._replace(floor=floor, done=done, failures=failures, horizon=horizon, taken_back=taken_back)


def drop_from(progress: AckProgress, end: Offset) -> AckProgress:
    """Drop all state from the topic's end on: messages published there later are not done."""
    done = progress.done.copy()
    done.remove_range(end, _NO_END)
    failures = {offset: count for offset, count in progress.failures.items() if offset < end}
    taken_back = {offset: mark for offset, mark in progress.taken_back.items() if offset < end}
    floor = min(progress.floor, end)
    kept = progress._replace(floor=floor, done=done, failures=failures, taken_back=taken_back)
    return progress if kept == progress else kept


def is_empty(progress: AckProgress) -> bool:
    """Return whether there is no state besides floor, epoch and run."""
    return not (progress.done or progress.failures or progress.horizon or progress.taken_back)


def is_parallel(progress: AckProgress) -> bool:
    """Return whether the subscription is known to be a parallel one."""
    return progress.run > 0 or not is_empty(progress)


def copy_progress(progress: AckProgress) -> AckProgress:
    """Return a deep copy that the caller may change."""
    failures, taken_back = dict(progress.failures), dict(progress.taken_back)
    return progress._replace(done=progress.done.copy(), failures=failures, taken_back=taken_back)


def join_horizons(one: Horizon | None, other: H) -> Horizon | H:
    """Return a horizon that covers both."""
    if one is None:
        return other
    if other is None:
        return one
    return Horizon(max(one.below, other.below), max(one.until, other.until))


def _above(horizon: Horizon | None, floor: Offset) -> Horizon | None:
    return horizon if horizon is not None and horizon.below > floor else None


def _with(known: Mapping[Offset, T], new: Mapping[Offset, T], floor: Offset, done: BitMap64) -> Mapping[Offset, T]:
    added = {
        offset: value
        for offset, value in new.items()
        if offset >= floor and offset not in done and known.get(offset) != value
    }
    return {**known, **added} if added else known


def _without(known: Mapping[Offset, T], done: BitMap64) -> Mapping[Offset, T]:
    if len(done) < len(known):
        gone = [Offset(each) for each in done if each in known]
    else:
        gone = [each for each in known if each in done]
    if not gone:
        return known
    left = dict(known)
    for each in gone:
        del left[each]
    return left
