"""A parallel subscription as sets of numbers, and what can be asked of one, for stores to be compared with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import strategies as st
from pyroaring import BitMap64

from ams.core.clock import Milliseconds
from ams.core.errors import AmsError, SubscriptionGone
from ams.core.names import Offset, SubscriptionId, TopicId
from ams.core.offsets import Range
from ams.storage.cursors.acks import Change, CursorStore, Horizon, Progress
from tests.storage.cursors.stores import OTHER, TOPIC


@dataclass
class Naive:
    """What a store is to hold of one subscription."""

    topic: TopicId = TOPIC
    floor: int = 0
    epoch: int = 0
    run: int = 0
    lost: int = 0
    done: set[int] = field(default_factory=set)
    failures: dict[int, int] = field(default_factory=dict)
    horizon: Horizon | None = None
    is_gone: bool = False

    def tidy(self) -> None:
        while self.floor in self.done:
            self.floor += 1
        self.done = {each for each in self.done if each >= self.floor}
        self.failures = {each: n for each, n in self.failures.items() if each >= self.floor and each not in self.done}
        if self.horizon is not None and self.horizon.below <= self.floor:
            self.horizon = None

    def stand(self, floor: int, done: set[int]) -> None:
        self.floor, self.done, self.failures, self.horizon = floor, set(done), {}, None
        self.epoch += 1
        self.tidy()

    def lost_below(self, oldest: int) -> int:
        return len(set(range(self.floor, oldest)) - self.done)

    def facts(self) -> tuple[object, ...]:
        return self.floor, self.run, self.done, self.failures, self.horizon, self.lost


def facts_of(progress: Progress, lost: int) -> tuple[object, ...]:
    """Return of a progress what `Naive.facts` is of the model."""
    return progress.floor, progress.run, set(progress.done), dict(progress.failures), progress.horizon, lost


class Settle(NamedTuple):
    change: Change
    late_epoch: int
    """How many epochs too early."""
    late_run: int

    async def ask(self, store: CursorStore, sub: SubscriptionId, model: Naive) -> object:
        return await store.settle(sub, model.epoch - self.late_epoch, model.run - self.late_run, self.change)

    def expect(self, model: Naive) -> object:
        if self.late_epoch or self.late_run or not model.run:
            return False
        for begin, end in self.change.done:
            model.done |= set(range(begin, end))
        model.failures |= self.change.failures
        horizons = [each for each in (model.horizon, self.change.horizon) if each]
        if horizons:
            model.horizon = Horizon(max(each.below for each in horizons), max(each.until for each in horizons))
        model.tidy()
        return True


class Seek(NamedTuple):
    topic: TopicId
    offset: Offset

    async def ask(self, store: CursorStore, sub: SubscriptionId, _: Naive) -> object:
        return await store.seek(sub, self.topic, self.offset)

    def expect(self, model: Naive) -> object:
        if self.topic != model.topic:
            return False
        model.stand(self.offset, set())
        return True


class Restore(NamedTuple):
    topic: TopicId
    floor: Offset
    done: frozenset[int]

    async def ask(self, store: CursorStore, sub: SubscriptionId, _: Naive) -> object:
        return await store.restore(sub, self.topic, self.floor, BitMap64(self.done)) is not None

    def expect(self, model: Naive) -> object:
        if self.topic != model.topic:
            return False
        model.stand(self.floor, set(self.done))
        return True


class TakeOver(NamedTuple):
    topic: TopicId

    async def ask(self, store: CursorStore, sub: SubscriptionId, _: Naive) -> object:
        progress = await store.take_over(sub, self.topic)
        told = facts_of(progress, 0)
        progress.done.add(77)  # it is the caller's own
        return told

    def expect(self, model: Naive) -> object:
        _meet(model, self.topic)
        model.run += 1
        return (*model.facts()[:-1], 0)


class Look(NamedTuple):
    topic: TopicId

    async def ask(self, store: CursorStore, sub: SubscriptionId, _: Naive) -> object:
        position = await store.position(sub, self.topic)
        return position.offset, position.lost

    def expect(self, model: Naive) -> object:
        _meet(model, self.topic)
        return model.floor, model.lost


class Retain(NamedTuple):
    oldest: Offset
    is_late: bool
    """Whether the caller saw another epoch."""

    async def ask(self, store: CursorStore, sub: SubscriptionId, model: Naive) -> object:
        moved = await store.retain(sub, model.epoch + self.is_late, self.oldest)
        return moved.offset, moved.lost

    def expect(self, model: Naive) -> object:
        if not self.is_late and self.oldest > model.floor:
            is_parallel = model.run or model.done or model.failures or model.horizon
            model.lost += model.lost_below(self.oldest)
            model.floor = self.oldest
            model.epoch += not is_parallel
            model.tidy()
        return model.floor, model.lost


class Lost(NamedTuple):
    oldest: Offset

    async def ask(self, store: CursorStore, sub: SubscriptionId, _: Naive) -> object:
        return await store.lost(sub, {TOPIC: self.oldest})

    def expect(self, model: Naive) -> object:
        return model.lost + (model.lost_below(self.oldest) if model.topic == TOPIC else 0)


class Create(NamedTuple):
    offset: Offset

    async def ask(self, store: CursorStore, sub: SubscriptionId, _: Naive) -> object:
        await store.create(sub, TOPIC, self.offset)
        return None

    def expect(self, model: Naive) -> object:
        if model.is_gone:
            model.run = 0
        model.stand(self.offset, set())
        model.topic, model.lost, model.is_gone, model.epoch = TOPIC, 0, False, 0
        return None


class Drop(NamedTuple):
    async def ask(self, store: CursorStore, sub: SubscriptionId, _: Naive) -> object:
        await store.drop(sub)
        return None

    def expect(self, model: Naive) -> object:
        model.is_gone = True
        return None


Deed = Settle | Seek | Restore | TakeOver | Look | Retain | Lost | Create | Drop


def expected(deed: Deed, model: Naive) -> object:
    """Do it to the model, and return what is to be answered."""
    if model.is_gone and not isinstance(deed, Create | Drop):
        return SubscriptionGone
    return deed.expect(model)


async def answered(deed: Deed, store: CursorStore, subscription: SubscriptionId, model: Naive) -> object:
    """Ask it of a store; return the answer, or the class of the error."""
    try:
        return await deed.ask(store, subscription, model)
    except AmsError as error:
        return type(error)


def _meet(model: Naive, topic: TopicId) -> None:
    if model.topic != topic:
        model.topic = topic
        model.stand(0, set())


offsets = st.integers(0, 40).map(Offset)
topics = st.sampled_from([TOPIC, TOPIC, TOPIC, OTHER])
ranges: st.SearchStrategy[Range] = st.builds(
    lambda begin, many: (begin, Offset(begin + many)), offsets, st.integers(0, 6)
)
counts: st.SearchStrategy[Mapping[Offset, int]] = st.dictionaries(offsets, st.integers(1, 9), max_size=4)
horizons = st.builds(Horizon, offsets, st.integers(0, 2**45).map(Milliseconds))
changes = st.builds(
    Change, st.lists(ranges, max_size=4), st.one_of(st.just({}), counts), st.one_of(st.none(), horizons)
)
in_time = st.builds(Settle, changes, st.just(0), st.just(0))
deeds: st.SearchStrategy[Deed] = st.one_of(
    in_time,
    in_time,
    in_time,
    in_time,
    st.builds(Settle, changes, st.integers(0, 1), st.integers(0, 1)),
    st.builds(TakeOver, topics),
    st.builds(Seek, topics, offsets),
    st.builds(Restore, topics, offsets, st.frozensets(offsets)),
    st.builds(Look, topics),
    st.builds(Retain, offsets, st.sampled_from([False, False, True])),
    st.builds(Lost, offsets),
    st.builds(Create, offsets),
    st.builds(Drop),
)
plans: st.SearchStrategy[Sequence[tuple[Deed, bool]]] = st.lists(
    st.tuples(deeds, st.sampled_from([False, False, False, True])), max_size=30
)
"""Deeds, and whether something else happens at each."""
