"""Stores, and two nodes on one database, follow the pure rules of a cursor (`ams.storage.cursors.base`)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ams.core.clock import Milliseconds
from ams.core.errors import AmsError
from ams.core.names import Offset, SubscriptionId, TopicId, new_uuid
from ams.storage.cursors import base
from ams.storage.cursors.base import Cursor, Cursors, Outstanding, Position
from tests.storage.cursors.stores import OTHER_TOPIC, TOPIC, SteadyNodes, Store
from tests.support.clock import ManualClock

DEADLINE = 1_000
TOPICS = (TOPIC, OTHER_TOPIC)
offsets = st.integers(0, 30)
topics = st.sampled_from(TOPICS)

Apply = Callable[[Cursors, SubscriptionId], Awaitable[object]]
Expect = Callable[[Cursor, Milliseconds], tuple[Cursor, object]]


class Deed(NamedTuple):
    """An operation on a store, and its result by the rules."""

    name: str
    apply: Apply
    expect: Expect


def position(topic: TopicId) -> Deed:
    def expect(cursor: Cursor, _: Milliseconds) -> tuple[Cursor, object]:
        met = base.follow_topic(cursor, topic)
        return met, Position(met.offset, met.generation, met.lost)

    return Deed(f"position on {topic[:1]!r}", lambda store, sub: store.position(sub, topic), expect)


def hand_out(generation: int, end: Offset, at: Offset | None = None) -> Deed:
    def expect(cursor: Cursor, now: Milliseconds) -> tuple[Cursor, object]:
        right = cursor.generation == generation and at in (None, cursor.offset)
        return (base.hand_out(cursor, end, now) if right else cursor), right

    return Deed(f"hand out to {end}", lambda store, sub: store.hand_out(sub, generation, end, at), expect)


def acknowledge(last: Offset) -> Deed:
    def expect(cursor: Cursor, now: Milliseconds) -> tuple[Cursor, object]:
        return base.acknowledge(cursor, last, DEADLINE, now), None

    return Deed(f"acknowledge {last}", lambda store, sub: store.acknowledge(sub, last, DEADLINE), expect)


def seek(topic: TopicId, offset: Offset) -> Deed:
    def expect(cursor: Cursor, _: Milliseconds) -> tuple[Cursor, object]:
        right = cursor.topic == topic
        return (base.seek(cursor, offset) if right else cursor), right

    return Deed(f"seek {offset}", lambda store, sub: store.seek(sub, topic, offset), expect)


def retain(generation: int, oldest: Offset) -> Deed:
    def expect(cursor: Cursor, _: Milliseconds) -> tuple[Cursor, object]:
        moved = base.retain(cursor, oldest) if cursor.generation == generation else cursor
        return moved, Position(moved.offset, moved.generation, moved.lost)

    return Deed(f"retain from {oldest}", lambda store, sub: store.retain(sub, generation, oldest), expect)


def ask_handed() -> Deed:
    def expect(cursor: Cursor, now: Milliseconds) -> tuple[Cursor, object]:
        newest = cursor.handed[-1] if cursor.handed else None
        return cursor, newest and Outstanding(newest.end, now - newest.time)

    return Deed("handed", lambda store, sub: store.newest_hand_out(sub), expect)


generations = st.integers(0, 2)
deeds = st.one_of(
    st.builds(position, topics), st.builds(hand_out, generations, offsets), st.builds(hand_out, st.just(0), offsets),
    st.builds(hand_out, st.just(0), offsets, offsets), st.builds(acknowledge, offsets), st.builds(acknowledge, offsets),
    st.builds(seek, topics, offsets), st.builds(retain, generations, offsets), st.builds(ask_handed),
)  # fmt: skip
plans = st.lists(st.tuples(deeds, st.booleans(), st.sampled_from([0, 0, 400, 1_200])), max_size=25)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=plans)
def test_two_nodes_do_what_the_rules_say(steady_nodes: SteadyNodes, plan: list[tuple[Deed, bool, int]]) -> None:
    runner, clock, nodes = steady_nodes
    runner.run(follow_plan(nodes, clock, plan))


def plan_of(*steps: Deed | tuple[Deed, int]) -> list[tuple[Deed, bool, int]]:
    """Return a plan of operations, each at once unless milliseconds before it are given."""
    return [(each, False, 0) if isinstance(each, Deed) else (each[0], False, each[1]) for each in steps]


PULL = hand_out(0, 10)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=plans)
@example(plan_of(seek(TOPIC, 5), hand_out(0, 9), acknowledge(8)))  # a hand-out that was read before the seek
@example(plan_of(PULL, acknowledge(3), hand_out(0, 20, 0), acknowledge(19), hand_out(0, 20, 4), acknowledge(19)))
@example(plan_of(PULL, (acknowledge(9), 1_001), position(TOPIC), PULL, (acknowledge(9), 1_000)))  # late, and in time
@example(plan_of(seek(TOPIC, 3), retain(0, 60), retain(1, 60), position(TOPIC)))  # a loss seen before the seek
@example(plan_of(ask_handed(), PULL, (ask_handed(), 400), acknowledge(9), ask_handed()))
@example(plan_of(seek(TOPIC, 7), position(OTHER_TOPIC), seek(TOPIC, 42), position(OTHER_TOPIC), seek(OTHER_TOPIC, 3)))
def test_stores_keep_the_rules(steady_store: tuple[asyncio.Runner, Store], plan: list[tuple[Deed, bool, int]]) -> None:
    runner, store = steady_store
    runner.run(follow_plan([store.cursors] * 2, store.clock, plan))


async def follow_plan(stores: Sequence[Cursors], clock: ManualClock, plan: list[tuple[Deed, bool, int]]) -> None:
    """Run a plan on either of two stores, with pauses of some milliseconds, and compare with the rules."""
    subscription = new_uuid()
    cursor = Cursor(TOPICS[0], 0)
    await stores[0].create(subscription, TOPICS[0], 0)
    for deed, is_second, pause in plan:
        clock.advance(pause)
        expected: object
        try:
            cursor, expected = deed.expect(cursor, clock.monotonic())
        except AmsError as error:
            expected = (type(error), str(error))
        assert await outcome(deed.apply(stores[is_second], subscription)) == expected, deed.name


async def outcome(call: Awaitable[object]) -> object:
    try:
        return await call
    except AmsError as error:
        return type(error), str(error)
