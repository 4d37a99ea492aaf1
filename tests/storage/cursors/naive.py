"""A parallel subscription as sets of numbers, with operations, to compare stores with."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import strategies as st
from pyroaring import BitMap64

from ams.core.errors import AmsError, SubscriptionGone
from ams.core.names import Offset, SubscriptionId, TopicId, new_uuid
from ams.core.offsets import Range
from ams.storage.cursors.acks import AckProgress, AckUpdate, CursorStore, Horizon, Mark
from tests.storage.cursors.stores import OTHER_TOPIC, TOPIC


@dataclass
class NaiveCursor:
    """The expected state of one subscription in a store."""

    topic: TopicId = TOPIC
    floor: int = 0
    epoch: int = 0
    run: int = 0
    lost: int = 0
    done: set[int] = field(default_factory=set)
    failures: dict[int, int] = field(default_factory=dict)
    horizon: Horizon | None = None
    taken_back: dict[int, Mark] = field(default_factory=dict)
    is_gone: bool = False

    def tidy(self) -> None:
        while self.floor in self.done:
            self.floor += 1
        self.done = {each for each in self.done if each >= self.floor}
        for of_each in (self.failures, self.taken_back):
            for gone in [each for each in of_each if each < self.floor or each in self.done]:
                del of_each[gone]
        if self.horizon is not None and self.horizon.below <= self.floor:
            self.horizon = None

    def stand(self, floor: int, done: set[int]) -> None:
        self.floor, self.done, self.failures, self.horizon, self.taken_back = floor, set(done), {}, None, {}
        self.epoch += 1
        self.tidy()

    def meet(self, topic: TopicId) -> None:
        if self.topic != topic:
            self.topic = topic
            self.stand(0, set())

    def lost_below(self, oldest: int) -> int:
        return len(set(range(self.floor, oldest)) - self.done)

    def facts(self) -> tuple[object, ...]:
        return self.floor, self.run, self.done, self.failures, self.horizon, self.taken_back, self.lost


def facts_of(progress: AckProgress, lost: int) -> tuple[object, ...]:
    """Return the facts of a progress, as `NaiveCursor.facts` does of the model."""
    done, failures, taken_back = set(progress.done), dict(progress.failures), dict(progress.taken_back)
    return progress.floor, progress.run, done, failures, progress.horizon, taken_back, lost


class Deed(NamedTuple):
    """An operation on a store, with the model's answer and next state."""

    name: str
    ask: Callable[[CursorStore, SubscriptionId, NaiveCursor], Awaitable[object]]
    expect: Callable[[NaiveCursor], object]
    is_for_the_gone: bool = False  # whether it also succeeds for a deleted subscription


def settle(change: AckUpdate, late_epoch: int = 0, late_run: int = 0) -> Deed:
    """Settle a change with an epoch and a run that are so many too old."""

    def expect(model: NaiveCursor) -> object:
        if late_epoch or late_run or not model.run:
            return False
        for begin, end in change.done:
            model.done |= set(range(begin, end))
        model.failures |= change.failures
        model.taken_back |= change.taken_back
        horizons = [each for each in (model.horizon, change.horizon) if each]
        if horizons:
            model.horizon = Horizon(max(each.below for each in horizons), max(each.until for each in horizons))
        model.tidy()
        return True

    return Deed(
        f"settle {change}",
        lambda store, sub, model: store.settle(sub, model.epoch - late_epoch, model.run - late_run, change),
        expect,
    )


def _expect_move(topic: TopicId, floor: Offset, done: AbstractSet[int]) -> Callable[[NaiveCursor], object]:
    def expect(model: NaiveCursor) -> object:
        if topic == model.topic:
            model.stand(floor, set(done))
        return topic == model.topic

    return expect


def seek(topic: TopicId, offset: Offset) -> Deed:
    return Deed(
        f"seek {offset}", lambda store, sub, _: store.seek(sub, topic, offset), _expect_move(topic, offset, set())
    )


def restore(topic: TopicId, floor: Offset, done: AbstractSet[int]) -> Deed:
    async def ask(store: CursorStore, sub: SubscriptionId, _: NaiveCursor) -> object:
        return await store.restore(sub, topic, floor, BitMap64(done)) is not None

    return Deed(f"restore {floor}, {sorted(done)}", ask, _expect_move(topic, floor, done))


def take_over(topic: TopicId) -> Deed:
    async def ask(store: CursorStore, sub: SubscriptionId, _: NaiveCursor) -> object:
        progress = await store.take_over(sub, topic)
        told = facts_of(progress, 0)
        progress.done.add(77)  # it is the caller's own
        return told

    def expect(model: NaiveCursor) -> object:
        model.meet(topic)
        model.run += 1
        return (*model.facts()[:-1], 0)

    return Deed(f"take over on {topic[:1]!r}", ask, expect)


def look_at(topic: TopicId) -> Deed:
    async def ask(store: CursorStore, sub: SubscriptionId, _: NaiveCursor) -> object:
        position = await store.position(sub, topic)
        return position.offset, position.lost

    def expect(model: NaiveCursor) -> object:
        model.meet(topic)
        return model.floor, model.lost

    return Deed(f"look on {topic[:1]!r}", ask, expect)


def retain(oldest: Offset, is_late: bool) -> Deed:
    """Retain from an offset on; `is_late`: the caller saw another epoch."""

    async def ask(store: CursorStore, sub: SubscriptionId, model: NaiveCursor) -> object:
        moved = await store.retain(sub, model.epoch + is_late, oldest)
        return moved.offset, moved.lost

    def expect(model: NaiveCursor) -> object:
        if not is_late and oldest > model.floor:
            is_parallel = model.run or model.done or model.failures or model.horizon or model.taken_back
            model.lost += model.lost_below(oldest)
            model.floor = oldest
            model.epoch += not is_parallel
            model.tidy()
        return model.floor, model.lost

    return Deed(f"retain from {oldest}", ask, expect)


def lose_below(oldest: Offset) -> Deed:
    def expect(model: NaiveCursor) -> object:
        return model.lost + (model.lost_below(oldest) if model.topic == TOPIC else 0)

    return Deed(f"lost below {oldest}", lambda store, sub, _: store.lost_messages(sub, {TOPIC: oldest}), expect)


def create(offset: Offset) -> Deed:
    def expect(model: NaiveCursor) -> object:
        if model.is_gone:
            model.run = 0
        model.stand(offset, set())
        model.topic, model.lost, model.is_gone, model.epoch = TOPIC, 0, False, 0
        return None

    return Deed(f"create at {offset}", lambda store, sub, _: store.create(sub, TOPIC, offset), expect, True)


def drop() -> Deed:
    def expect(model: NaiveCursor) -> object:
        model.is_gone = True
        return None

    return Deed("drop", lambda store, sub, _: store.drop(sub), expect, True)


def expect_answer(deed: Deed, model: NaiveCursor) -> object:
    """Apply it to the model, and return the expected answer."""
    return SubscriptionGone if model.is_gone and not deed.is_for_the_gone else deed.expect(model)


async def apply_deed(deed: Deed, store: CursorStore, subscription: SubscriptionId, model: NaiveCursor) -> object:
    """Apply it to a store; return the answer, or the class of the error."""
    try:
        return await deed.ask(store, subscription, model)
    except AmsError as error:
        return type(error)


async def follow_plan(
    plan: Sequence[tuple[Deed, bool]], stores: Callable[[bool], Awaitable[tuple[CursorStore, CursorStore]]]
) -> None:
    """Run a plan on a new subscription, and compare each answer and the state afterwards with the model.

    `stores` is called for each operation with whether something else happens; it returns the stores to use and to
    check.
    """
    subscription, model = new_uuid(), NaiveCursor()
    asked, _ = await stores(False)
    await asked.create(subscription, TOPIC, 0)
    for deed, what_else in plan:
        asked, looked_at = await stores(what_else)
        assert await apply_deed(deed, asked, subscription, model) == expect_answer(deed, model), deed.name
        if not model.is_gone:
            progress = await looked_at.progress(subscription)
            assert facts_of(progress, await looked_at.lost_messages(subscription, {})) == model.facts()
            assert progress.epoch == model.epoch
    await asked.drop(subscription)


offsets = st.integers(0, 40)
topics = st.sampled_from([TOPIC, TOPIC, TOPIC, OTHER_TOPIC])
ranges: st.SearchStrategy[Range] = st.builds(lambda begin, many: (begin, begin + many), offsets, st.integers(0, 6))
counts: st.SearchStrategy[Mapping[Offset, int]] = st.dictionaries(offsets, st.integers(1, 9), max_size=4)
horizons = st.builds(Horizon, offsets, st.integers(0, 2**45))
marks = st.dictionaries(offsets, st.builds(Mark, st.integers(1, 3), st.integers(1, 5)), max_size=4)
changes = st.builds(
    AckUpdate, st.lists(ranges, max_size=4), st.one_of(st.just({}), counts), st.one_of(st.none(), horizons),
    st.one_of(st.just({}), marks),
)  # fmt: skip
in_time = st.builds(settle, changes, st.just(0), st.just(0))
deeds: st.SearchStrategy[Deed] = st.one_of(
    *[in_time] * 4, st.builds(settle, changes, st.integers(0, 1), st.integers(0, 1)), st.builds(take_over, topics),
    st.builds(seek, topics, offsets), st.builds(restore, topics, offsets, st.frozensets(offsets)),
    st.builds(look_at, topics), st.builds(retain, offsets, st.sampled_from([False, False, True])),
    st.builds(lose_below, offsets), st.builds(create, offsets), st.builds(drop),
)  # fmt: skip
plans: st.SearchStrategy[Sequence[tuple[Deed, bool]]] = st.lists(
    st.tuples(deeds, st.sampled_from([False, False, False, True])), max_size=30
)
"""Operations, and whether something else happens at each."""
