"""The promise of a store of acknowledgements one by one, and the step by which they are stored.

It is kept by the same objects as `ams.storage.cursors.base.Cursors`, of which all stays true for a parallel
subscription too: its *floor*, below which everything is done, is its cursor's offset, and its *epoch* the cursor's
generation. Everything above the floor is here, and checked by `tests/storage/cursors/test_acks_contract.py`:

1. A change is durable before the call that asked for it returns, whole or not at all; if it could not be stored the
   call raises `CursorsUnavailable`, as a call that moves a cursor does.
2. A change of another epoch or another run than the stored ones changes nothing, and is answered so.
3. A seek, another topic, or a new creation forgets everything: all that was done, failures and horizon.
   Retention forgets what is below the new floor, keeps the epoch, and counts as lost only what was not done.

`hand_out` and `acknowledge` are for ordered subscriptions alone. An unknown subscription is `SubscriptionGone`.

    done        acknowledged, passed over by a filter, or put aside as a dead letter
    failure     a nack, or a deadline that passed
    epoch       raised by each seek
    run         raised each time a process takes a subscription over: the process before can store nothing any more
    taken back  ids of a message that count no more, as an earlier one of its ordering key failed
    horizon     what may be out after a crash, where a message that is out must not be given to another
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar, overload

from pyroaring import BitMap64

from ams.core.clock import Milliseconds
from ams.core.names import Offset, SubscriptionId, TopicId
from ams.core.offsets import Range, bitmap_of, first_missing
from ams.storage.cursors.base import Cursors

_NO_END = 2**64 - 1
T = TypeVar("T")


class Horizon(NamedTuple):
    """Messages that may be out after a crash, of a subscription with exactly-once delivery."""

    below: Offset
    until: Milliseconds  # wall time at which the last lease given ends at the latest


class Mark(NamedTuple):
    """Newest hand-out that there was at a moment: ids of it and of all before count no more."""

    run: int
    number: int


class Progress(NamedTuple):
    """Acknowledgements of a parallel subscription. A value: nobody changes one that somebody else has."""

    floor: Offset
    epoch: int
    run: int  # 0: no process took it over yet
    done: BitMap64  # offsets above the floor that are done; the floor itself never is
    failures: Mapping[Offset, int]  # how often offsets that are not done failed; only those that did
    horizon: Horizon | None = None  # None as well when everything below it is done
    taken_back: Mapping[Offset, Mark] = {}  # when offsets that are not done were taken back last; only those that were


class Change(NamedTuple):
    """A change to store, all or nothing."""

    done: Sequence[Range] = ()
    failures: Mapping[Offset, int] = {}  # the new counts
    horizon: Horizon | None = None  # the least the horizon must reach; None: it stays
    taken_back: Mapping[Offset, Mark] = {}  # the new marks


class Acks(Protocol):
    """Acknowledgements of parallel subscriptions; the module's docstring is its promise."""

    async def take_over(self, subscription: SubscriptionId, topic: TopicId) -> Progress:
        """Begin a run, durably, and return what is stored; another topic than before restarts it at 0.

        Raises `TopicGone` for one that is deleted by now, where several nodes use the store.
        """

    async def progress(self, subscription: SubscriptionId) -> Progress:
        """Return what is stored, without beginning a run; of an ordered subscription too."""

    async def settle(self, subscription: SubscriptionId, epoch: int, run: int, change: Change) -> bool:
        """Store a change; durable when it returns. False, and nothing stored, when epoch or run has moved on."""

    async def restore(self, subscription: SubscriptionId, topic: TopicId, floor: Offset, done: BitMap64) -> int | None:
        """Stand at a snapshot, durably: this floor, and this done above it, in a new epoch, which is returned.

        Failures and horizon are forgotten; the run goes on. None, and no move, for a cursor on another topic.
        """


class CursorStore(Cursors, Acks, Protocol):
    """Both promises, as every engine keeps them."""


def unsettled(floor: Offset, epoch: int, run: int) -> Progress:
    """Return the progress of a subscription of which nothing is known above its floor."""
    return Progress(floor, epoch, run, BitMap64(), {})


def joined(changes: Iterable[Change]) -> Change:
    """Return one change that does what several do one after the other."""
    done: list[Range] = []
    failures: dict[Offset, int] = {}
    horizon: Horizon | None = None
    taken_back: dict[Offset, Mark] = {}
    for each in changes:
        done += each.done
        failures |= each.failures
        horizon = farther(horizon, each.horizon)
        taken_back |= each.taken_back
    return Change(done, failures, horizon, taken_back)


def settled(progress: Progress, change: Change) -> Progress:
    """Store a change: the floor moves up over all that is done. Without a change, returns the same object."""
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
    horizon = _above(farther(progress.horizon, change.horizon), floor)
    is_same = failures is progress.failures and taken_back is progress.taken_back and horizon == progress.horizon
    if not asked and is_same:
        return progress
    return Progress(floor, progress.epoch, progress.run, done, failures, horizon, taken_back)


def sought(progress: Progress, floor: Offset, epoch: int, done: BitMap64 | None = None) -> Progress:
    """Stand at `floor` in another epoch, with what is `done` above it; all else is forgotten."""
    if done is None:
        return unsettled(floor, epoch, progress.run)
    above = done.copy()
    floor = first_missing(above, floor)
    above.remove_range(0, floor)
    return Progress(floor, epoch, progress.run, above, {})


def lost(progress: Progress, oldest: Offset) -> int:
    """Return how many messages below the oldest that is kept were not done."""
    if oldest <= progress.floor:
        return 0
    return oldest - progress.floor - progress.done.range_cardinality(progress.floor, oldest)


def retained(progress: Progress, oldest: Offset) -> Progress:
    """Move the floor up to the oldest kept message; the epoch, and so acknowledgements of what is left, stay."""
    if oldest <= progress.floor:
        return progress
    floor = first_missing(progress.done, oldest)
    done = progress.done.copy()
    done.remove_range(0, floor)
    failures = {offset: count for offset, count in progress.failures.items() if offset >= floor}
    taken_back = {offset: mark for offset, mark in progress.taken_back.items() if offset >= floor}
    horizon = _above(progress.horizon, floor)
    return progress._replace(floor=floor, done=done, failures=failures, horizon=horizon, taken_back=taken_back)


def ended(progress: Progress, end: Offset) -> Progress:
    """Forget everything from the end of the topic on: what is published there next is not done."""
    done = progress.done.copy()
    done.remove_range(end, _NO_END)
    failures = {offset: count for offset, count in progress.failures.items() if offset < end}
    taken_back = {offset: mark for offset, mark in progress.taken_back.items() if offset < end}
    floor = min(progress.floor, end)
    kept = progress._replace(floor=floor, done=done, failures=failures, taken_back=taken_back)
    return progress if kept == progress else kept


def remembers_nothing(progress: Progress) -> bool:
    """Say whether floor, epoch and run are all there is."""
    return not (progress.done or progress.failures or progress.horizon or progress.taken_back)


def is_parallel(progress: Progress) -> bool:
    """Say whether a store knows by it that a subscription is a parallel one."""
    return progress.run > 0 or not remembers_nothing(progress)


def copied(progress: Progress) -> Progress:
    """Return a copy that its owner may change."""
    failures, taken_back = dict(progress.failures), dict(progress.taken_back)
    return progress._replace(done=progress.done.copy(), failures=failures, taken_back=taken_back)


@overload
def farther(one: Horizon | None, other: Horizon) -> Horizon: ...
@overload
def farther(one: Horizon | None, other: Horizon | None) -> Horizon | None: ...
def farther(one: Horizon | None, other: Horizon | None) -> Horizon | None:
    """Return what covers both."""
    if one is None or other is None:
        return one or other
    return Horizon(max(one.below, other.below), max(one.until, other.until))


def _above(horizon: Horizon | None, floor: Offset) -> Horizon | None:
    return horizon if horizon is not None and horizon.below > floor else None


def _with(known: Mapping[Offset, T], new: Mapping[Offset, T], floor: Offset, done: BitMap64) -> Mapping[Offset, T]:
    """Add what is said of offsets that are not done; without news, returns the same object."""
    added = {
        offset: value
        for offset, value in new.items()
        if offset >= floor and offset not in done and known.get(offset) != value
    }
    return {**known, **added} if added else known


def _without(known: Mapping[Offset, T], done: BitMap64) -> Mapping[Offset, T]:
    """Leave out the offsets that are done, looking at the fewer of both."""
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
