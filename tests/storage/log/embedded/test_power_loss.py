"""Power loss at every moment: nothing acknowledged is lost, nothing is invented, ids stay consecutive."""

import errno
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage.log.embedded.history import (
    REUSE,
    History,
    act,
    at_every_change,
    check_again,
    lose_power,
    open_anyway,
    run,
)
from tests.storage.log.engines import HOUR, Embedded

SIZES = st.lists(st.integers(0, 1200), min_size=1, max_size=6)
LARGE = st.lists(st.integers(20_000, 70_000), min_size=2, max_size=4)
TOPIC = st.integers(0, 4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.sampled_from([None, HOUR, 24 * HOUR])),
        st.tuples(st.just("append"), TOPIC, SIZES, st.booleans()),
        st.tuples(st.just("append"), TOPIC, LARGE),
        st.tuples(st.just("together"), st.lists(st.tuples(TOPIC, SIZES, st.booleans()), min_size=2, max_size=6)),
        st.tuples(st.just("drop"), TOPIC),
        st.tuples(st.just("set_retention"), TOPIC, st.sampled_from([HOUR, 24 * HOUR])),
        st.tuples(st.just("advance"), st.sampled_from([1, HOUR // 8, HOUR])),
        st.tuples(st.just("retain")),
    ),
    max_size=12,
)


AHEAD = st.sampled_from([0, 800])


def engine_with_small_segments(ahead: int = 0) -> Embedded:
    return Embedded(options={"segment_bytes": 4000, "ahead_bytes": ahead})


@settings(max_examples=120, deadline=None)
@given(STEPS, st.integers(1, 120), st.integers(0, 2**32))
def test_nothing_acknowledged_is_lost_and_nothing_invented(steps, stop_at, seed):
    async def scenario():
        engine = engine_with_small_segments()
        history, log = await lose_power(engine, [("create", None), *steps], stop_at, seed)
        assert not log.recovered.damage
        await history.check(log, engine.clock.now)
        await act(history, log, engine, [("create", None), *steps])
        await history.check(log, engine.clock.now)
        await log.close()
        await check_again(engine, history)

    run(scenario())


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(1, 80), st.integers(1, 30), st.integers(0, 2**32))
def test_power_that_fails_again_during_recovery_loses_nothing_either(steps, stop_at, again_at, seed):
    async def scenario():
        engine = engine_with_small_segments()
        history = History()
        for limit in (stop_at, again_at, again_at):
            engine.disk.stop_at = engine.disk.changes + limit
            log = await open_anyway(engine)
            if log is not None:
                await act(history, log, engine, [("create", None), *steps])
                engine.disk.stop_at = engine.disk.changes
                await log.close()
            engine.disk.power_loss(random.Random(seed))
        log = await engine.open()
        await history.check(log, engine.clock.now)
        assert not log.recovered.damage
        await log.close()

    run(scenario())


@settings(max_examples=120, deadline=None)
@given(STEPS, STEPS, AHEAD, st.integers(1, 150), st.integers(0, 2**32))
def test_nothing_is_lost_or_comes_back_where_records_are_written_over_others(before, after, ahead, stop_at, seed):
    async def scenario():
        engine = engine_with_small_segments(ahead)
        history, log = await lose_power(engine, [*before, *REUSE, *after, *REUSE], stop_at, seed)
        assert not log.recovered.damage
        await history.check(log, engine.clock.now)
        await act(history, log, engine, list(REUSE))
        await history.check(log, engine.clock.now)
        await log.close()
        await check_again(engine, history)

    run(scenario())


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_power_that_fails_at_any_change_while_a_segment_is_made_of_an_old_one_loses_nothing(seed: int | None):
    async def scenario(stop_at: int) -> bool:
        engine = engine_with_small_segments()
        history = History()
        log = await engine.open()
        await act(history, log, engine, list(REUSE[:8]))
        engine.disk.stop_at = engine.disk.changes + stop_at
        await act(history, log, engine, list(REUSE[8:]))
        await log.close()
        over = not engine.disk.stopped
        engine.disk.power_loss(None if seed is None else random.Random(seed + stop_at))
        async with engine.opened() as log:
            assert not log.recovered.damage
            await history.check(log, engine.clock.now)
            await act(history, log, engine, list(REUSE))
            await history.check(log, engine.clock.now)
        return over

    at_every_change(100, scenario)


@settings(max_examples=80, deadline=None)
@given(
    steps=STEPS,
    ahead=AHEAD,
    call=st.sampled_from(["sync", "write", "open", "sync_folder", "rename", "truncate", "unlink"]),
    error=st.sampled_from([errno.EIO, errno.ENOSPC]),
    after=st.integers(0, 12),
    times=st.integers(1, 4),
    stop_at=st.integers(20, 150),
    seed=st.integers(0, 2**32),
)
def test_calls_that_fail_and_then_power_loss_lose_nothing(steps, ahead, call, error, after, times, stop_at, seed):
    async def scenario():
        engine = engine_with_small_segments(ahead)
        history = History()
        log = await engine.open()
        engine.disk.fail(call, error, after=after, times=times)
        engine.disk.stop_at = engine.disk.changes + stop_at
        await act(history, log, engine, [("create", None), *steps, *REUSE, *steps])
        engine.disk.stop_at = engine.disk.changes
        await log.close()
        engine.disk.power_loss(random.Random(seed))
        log = await engine.open()
        await history.check(log, engine.clock.now)
        assert not log.recovered.damage
        await log.close()

    run(scenario())
