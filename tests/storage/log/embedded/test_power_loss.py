"""Power loss at every moment: nothing acknowledged is lost, nothing is invented, ids stay consecutive."""

import asyncio
import errno
import random
import time
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.storage.log.embedded import EmbeddedLog
from tests.storage.log.embedded.history import (
    REUSE,
    History,
    Step,
    act,
    at_every_change,
    check_again,
    let_time_pass,
    open_anyway,
    run,
)
from tests.storage.log.engines import HOUR, Embedded

TOPIC = st.integers(0, 4)
SIZES = st.lists(st.integers(0, 1200), min_size=1, max_size=6)
MANY = st.lists(st.integers(300, 3000), min_size=8, max_size=14)
LARGE = st.lists(st.integers(20_000, 70_000), min_size=2, max_size=4)
TOGETHER = st.tuples(TOPIC, SIZES | MANY, st.booleans())
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.sampled_from([None, HOUR, 24 * HOUR])),
        st.tuples(st.just("append"), TOPIC, SIZES, st.booleans()),
        st.tuples(st.just("append"), TOPIC, MANY | LARGE),
        st.tuples(st.just("together"), st.lists(TOGETHER, min_size=2, max_size=8)),
        st.tuples(st.just("drop"), TOPIC),
        st.tuples(st.just("set_retention"), TOPIC, st.sampled_from([HOUR, 24 * HOUR])),
        st.tuples(st.just("advance"), st.sampled_from([1, HOUR // 8, HOUR])),
        st.tuples(st.just("retain")),
    ),
    max_size=10,
)
SMALL_SEGMENTS, SMALL_GROUPS = {"segment_bytes": 4000}, {"segment_bytes": 100_000, "group_bytes": 2000}
OPTIONS = st.sampled_from(
    [
        SMALL_SEGMENTS,
        SMALL_SEGMENTS | {"ahead_bytes": 800},
        SMALL_SEGMENTS | {"group_bytes": 2000},
        SMALL_GROUPS,
        SMALL_GROUPS | {"segment_bytes": 40_000},
    ]
)
"""Where groups are small, appends are written in slices, and others between them."""
TAKES = st.lists(st.sampled_from([0, 50, 50, HOUR // 8, 21 * HOUR]), max_size=30)
"""Milliseconds by which time passes within syncs and questions for free space, one after the other; then none."""


def engine_with(options: dict[str, int]) -> Embedded:
    return Embedded(options={"ahead_bytes": 0} | options)


def slow(engine: Embedded, takes: Iterable[int] = ()) -> None:
    """Let time pass within calls, and others come while something is written."""
    let_time_pass(engine, takes)
    pass_time = engine.disk.during_sync
    assert pass_time is not None

    def during_sync() -> None:
        time.sleep(0.0002)
        pass_time()

    if "group_bytes" in engine.options:
        engine.disk.during_sync = during_sync


async def acted(history: History, log: EmbeddedLog, engine: Embedded, steps: Iterable[Step]) -> None:
    """Take steps; where groups are small, others append meanwhile, one after the other."""

    async def small() -> None:
        for number in range(8):
            await history.append(log, number, [40 * number], number % 2 == 0)

    for step in steps:
        if step[0] == "append" and "group_bytes" in engine.options:
            await asyncio.gather(act(history, log, engine, [step]), small())
        else:
            await act(history, log, engine, [step])


async def lose_power(engine: Embedded, log: EmbeddedLog, seed: int | None) -> None:
    engine.disk.stop_at = min(engine.disk.stop_at or engine.disk.changes, engine.disk.changes)
    await log.close()
    slow(engine)
    engine.disk.power_loss(None if seed is None else random.Random(seed))


async def check_found(history: History, log: EmbeddedLog, engine: Embedded) -> None:
    assert not log.recovered.damage
    await history.check(log, engine.clock.now)


@settings(max_examples=80)
@given(STEPS, STEPS, OPTIONS, TAKES, st.integers(1, 200), st.integers(0, 2**32))
def test_nothing_acknowledged_is_lost_and_nothing_invented(before, after, options, takes, stop_at, seed):
    """Also where records are written over others: the files of segments that went are used again."""

    async def scenario():
        engine, history = engine_with(options), History()
        slow(engine, takes)
        log = await engine.open()
        engine.disk.stop_at = engine.disk.changes + stop_at
        await acted(history, log, engine, [("create", None), *before, *REUSE, *after, *REUSE])
        await lose_power(engine, log, seed)
        log = await engine.open()
        await check_found(history, log, engine)
        slow(engine, takes)
        await acted(history, log, engine, [("create", None), *before, *REUSE])
        slow(engine)
        await history.check(log, engine.clock.now)
        await log.close()
        await check_again(engine, history)

    run(scenario())


@settings(max_examples=40)
@given(STEPS, OPTIONS, st.integers(1, 80), st.integers(1, 30), st.integers(0, 2**32))
def test_power_that_fails_again_during_recovery_loses_nothing_either(steps, options, stop_at, again_at, seed):
    async def scenario():
        engine, history = engine_with(options), History()
        for limit in (stop_at, again_at, again_at):
            engine.disk.stop_at = engine.disk.changes + limit
            log = await open_anyway(engine)
            if log is not None:
                await acted(history, log, engine, [("create", None), *steps])
                await lose_power(engine, log, seed)
            else:
                engine.disk.power_loss(random.Random(seed))
        async with engine.opened() as log:
            await check_found(history, log, engine)

    run(scenario())


@settings(max_examples=60)
@given(
    steps=STEPS,
    options=OPTIONS,
    takes=TAKES,
    call=st.sampled_from(["sync", "write", "open", "sync_folder", "rename", "truncate", "unlink"]),
    error=st.sampled_from([errno.EIO, errno.ENOSPC]),
    after=st.integers(0, 40),
    times=st.integers(1, 4),
    stop_at=st.integers(20, 200),
    seed=st.integers(0, 2**32),
)
def test_failing_calls_and_power_loss_lose_nothing(steps, options, takes, call, error, after, times, stop_at, seed):
    async def scenario():
        engine, history = engine_with(options), History()
        slow(engine, takes)
        log = await engine.open()
        engine.disk.fail(call, error, after=after, times=times)
        engine.disk.stop_at = engine.disk.changes + stop_at
        await acted(history, log, engine, [("create", None), *steps, *REUSE, *steps])
        await lose_power(engine, log, seed)
        async with engine.opened() as log:
            await check_found(history, log, engine)

    run(scenario())


BEGIN_ANEW = [("create", None), ("append", 0, [900] * 5), ("append", 1, [10])]
LARGE_APPENDS = [
    ("together", [(0, [900] * 9, True), (1, [50]), (0, [70], True), (1, [900] * 7)]),
    ("append", 0, [900] * 14, True),
]  # fmt: skip


@pytest.mark.parametrize("seed", [None, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
@pytest.mark.parametrize(
    ("options", "before", "meanwhile", "then"),
    [
        (SMALL_SEGMENTS, REUSE[:8], REUSE[8:], REUSE),
        (SMALL_GROUPS, [("create", None), ("create", None), ("append", 1, [100])], LARGE_APPENDS, BEGIN_ANEW),
    ],
    ids=["while a segment is made of an old one", "of a large append"],
)
def test_power_that_fails_at_any_change_leaves_all_of_an_append_or_nothing(options, before, meanwhile, then, seed):
    async def scenario(stop_at: int) -> bool:
        engine, history = engine_with(options), History()
        slow(engine)
        log = await engine.open()
        await act(history, log, engine, list(before))
        engine.disk.stop_at = engine.disk.changes + stop_at
        await acted(history, log, engine, meanwhile)
        await log.close()
        over = not engine.disk.stopped
        engine.disk.power_loss(None if seed is None else random.Random(seed + stop_at))
        async with engine.opened() as log:
            await check_found(history, log, engine)
            await act(history, log, engine, list(then))
            await history.check(log, engine.clock.now)
        return over

    at_every_change(300, scenario)
