"""Stores, and two nodes on one database, do what the pure rules say of a cursor (`ams.storage.cursors.base`)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ams.core.clock import ManualClock, Milliseconds
from ams.core.errors import AmsError
from ams.core.names import Offset, SubscriptionId, TopicId, new_uuid
from ams.storage.cursors import base
from ams.storage.cursors.base import Cursor, Cursors, Outstanding, Position
from tests.storage.cursors.stores import OTHER, TOPIC, SteadyNodes, Store

DEADLINE = 1_000
TOPICS = (TOPIC, OTHER)
offsets = st.integers(0, 30)
topics = st.sampled_from(TOPICS)

Apply = Callable[[Cursors, SubscriptionId], Awaitable[object]]
Expect = Callable[[Cursor, Milliseconds], tuple[Cursor, object]]


class Deed(NamedTuple):
    """Something asked of a store, and what the rules say comes of it."""

    name: str
    apply: Apply
    expect: Expect


def position(topic: TopicId) -> Deed:
    def expect(cursor: Cursor, _: Milliseconds) -> tuple[Cursor, object]:
        met = base.meet(cursor, topic)
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


def handed() -> Deed:
    def expect(cursor: Cursor, now: Milliseconds) -> tuple[Cursor, object]:
        newest = cursor.handed[-1] if cursor.handed else None
        return cursor, newest and Outstanding(newest.end, now - newest.time)

    return Deed("handed", lambda store, sub: store.handed(sub), expect)


generations = st.integers(0, 2)
deeds = st.one_of(
    st.builds(position, topics), st.builds(hand_out, generations, offsets), st.builds(hand_out, st.just(0), offsets),
    st.builds(hand_out, st.just(0), offsets, offsets), st.builds(acknowledge, offsets), st.builds(acknowledge, offsets),
    st.builds(seek, topics, offsets), st.builds(retain, generations, offsets), st.builds(handed),
)  # fmt: skip
plans = st.lists(st.tuples(deeds, st.booleans(), st.sampled_from([0, 0, 400, 1_200])), max_size=25)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=plans)
def test_two_nodes_do_what_the_rules_say(steady_nodes: SteadyNodes, plan: list[tuple[Deed, bool, int]]) -> None:
    runner, clock, nodes = steady_nodes
    runner.run(follow(nodes, clock, plan))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=plans)
def test_stores_keep_the_rules(steady_store: tuple[asyncio.Runner, Store], plan: list[tuple[Deed, bool, int]]) -> None:
    runner, store = steady_store
    runner.run(follow([store.cursors] * 2, store.clock, plan))


PULL = hand_out(0, 10)
NAMED_PLANS = {
    "a hand-out read before a seek is not recorded after it": [
        (seek(TOPIC, 5), 0), (hand_out(0, 9), 0), (acknowledge(8), 0),
    ],
    "a hand-out of an expected position is recorded only if the cursor stands there": [
        (PULL, 0), (acknowledge(3), 0), (hand_out(0, 20, 0), 0), (acknowledge(19), 0),
        (hand_out(0, 20, 4), 0), (acknowledge(19), 0),
    ],
    "an acknowledgement later than its deadline is a timeout": [
        (PULL, 0), (acknowledge(9), 1_001), (position(TOPIC), 0), (PULL, 0), (acknowledge(9), 1_000),
    ],
    "a loss seen before a seek does not move the cursor after it": [
        (seek(TOPIC, 3), 0), (retain(0, 60), 0), (retain(1, 60), 0), (position(TOPIC), 0),
    ],
    "the newest hand-out is told until it is acknowledged": [
        (handed(), 0), (PULL, 0), (handed(), 400), (acknowledge(9), 0), (handed(), 0),
    ],
    "a seek on another topic than the cursor's moves nothing": [
        (seek(TOPIC, 7), 0), (position(OTHER), 0), (seek(TOPIC, 42), 0), (position(OTHER), 0),
        (seek(OTHER, 3), 0),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED_PLANS)
def test_what_every_store_promises(steady_store: tuple[asyncio.Runner, Store], name: str) -> None:
    runner, store = steady_store
    plan = [(deed, False, pause) for deed, pause in NAMED_PLANS[name]]
    runner.run(follow([store.cursors] * 2, store.clock, plan))


async def follow(stores: Sequence[Cursors], clock: ManualClock, plan: list[tuple[Deed, bool, int]]) -> None:
    """Do what a plan says on one of two stores or the other, some milliseconds apart, and compare with the rules."""
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
