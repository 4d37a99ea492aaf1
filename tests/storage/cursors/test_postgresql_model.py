"""Whatever is asked of two nodes one after the other is what the pure rules (`ams.storage.cursors.base`) say of one
cursor.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ams.core.clock import ManualClock, Milliseconds
from ams.core.errors import AmsError
from ams.core.names import Offset, SubscriptionId, TopicId, new_uuid
from ams.storage.cursors import base
from ams.storage.cursors.base import Cursor, Cursors, Outstanding, Position
from ams.storage.cursors.postgresql import PostgresCursors
from tests.storage.cursors.clocks import StandingTime

DEADLINE = Milliseconds(1_000)
TOPICS = (TopicId(b"t" * 16), TopicId(b"o" * 16))
offsets = st.integers(0, 30).map(Offset)
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
        return cursor, newest and Outstanding(newest.end, Milliseconds(now - newest.time))

    return Deed("handed", lambda store, sub: store.handed(sub), expect)


generations = st.integers(0, 2)
deeds = st.one_of(
    st.builds(position, topics),
    st.builds(hand_out, generations, offsets),
    st.builds(hand_out, st.just(0), offsets),
    st.builds(hand_out, st.just(0), offsets, offsets),
    st.builds(acknowledge, offsets),
    st.builds(acknowledge, offsets),
    st.builds(seek, topics, offsets),
    st.builds(retain, generations, offsets),
    st.builds(handed),
)
plans = st.lists(st.tuples(deeds, st.booleans(), st.sampled_from([0, 0, 400, 1_200])), max_size=25)


class World:
    """Two stores on one database, and the loop they live in."""

    def __init__(self, runner: asyncio.Runner, url: str) -> None:
        self.runner = runner
        self.clock = ManualClock()
        self.stores = [runner.run(PostgresCursors.open(url, time=StandingTime(self.clock))) for _ in range(2)]

    def close(self) -> None:
        for store in self.stores:
            self.runner.run(store.close())


@pytest.fixture
def world(postgres_url: str) -> Iterator[World]:
    with asyncio.Runner() as runner:
        world = World(runner, postgres_url)
        yield world
        world.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=plans)
def test_two_nodes_do_what_the_rules_say(world: World, plan: list[tuple[Deed, bool, int]]) -> None:
    world.runner.run(follow(world, plan))


async def follow(world: World, plan: list[tuple[Deed, bool, int]]) -> None:
    subscription = SubscriptionId(new_uuid())
    cursor = Cursor(TOPICS[0], Offset(0))
    await world.stores[0].create(subscription, TOPICS[0], Offset(0))
    for deed, second, pause in plan:
        world.clock.advance(pause)
        now = world.clock.monotonic()
        expected: object
        try:
            cursor, expected = deed.expect(cursor, now)
        except AmsError as error:
            expected = (type(error), str(error))
        assert await outcome(deed.apply(world.stores[second], subscription)) == expected, deed.name


async def outcome(call: Awaitable[object]) -> object:
    try:
        return await call
    except AmsError as error:
        return type(error), str(error)
