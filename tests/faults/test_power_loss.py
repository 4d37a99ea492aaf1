"""Power losses under the embedded log, in short; cursors and log of different moments; and clock jumps."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from ams.core.messages import Stored
from ams.storage.log.base import Bounds
from simulation.unreliable_disk import UnreliableDisk
from tests.faults.power_loss import play_all
from tests.storage.log.engines import HOUR, Embedded, new_topic, texts
from tests.support.engines import open_engines
from tests.support.use_cases import SUB, UseCases, open_use_cases

DAY = 24 * HOUR


@pytest.mark.parametrize("with_cursors", [True, False])
async def test_a_restored_log_forgets_no_message_and_goes_on_at_its_end(with_cursors: bool, tmp_path: Path) -> None:
    """Its cursors come with the log; without them, as after a power loss with `sync = "interval"`, cursors are
    ahead."""
    log, copy = tmp_path / "log", tmp_path / "copy"
    async with open_use_cases(tmp_path) as cases:
        await cases.publish(3)
        await pull(cases)
        await cases.acknowledge([0])
    shutil.copytree(log, copy)
    async with open_engines(tmp_path) as engines:
        cases = UseCases(engines, await engines.caller())
        await cases.publish(4, first=3)
        await pull(cases)
        await cases.acknowledge([6])
    if not with_cursors:
        shutil.rmtree(copy / "cursors")
        (log / "cursors").rename(copy / "cursors")
    shutil.rmtree(log)
    copy.rename(log)

    async with open_engines(tmp_path) as engines:
        cases = UseCases(engines, await engines.caller())
        assert await cases.publish(2, first=7) == 3
        pulled = await pull(cases)

    expected = {1: 1, 2: 2, 3: 7, 4: 8} if with_cursors else {3: 7, 4: 8}
    assert {each.offset: int(each.fragment.split(b'"')[5]) for each in pulled} == expected


async def pull(cases: UseCases) -> Sequence[Stored]:
    deliverer = cases.deliverer()
    return await deliverer.pull(await deliverer.to_pull(cases.caller, SUB), 10, wait=False)


@pytest.mark.parametrize("seeds", [range(80), pytest.param(range(80, 320), marks=pytest.mark.long)], ids=len)
def test_no_law_is_broken_in_scenarios(seeds: range) -> None:
    """The short form of `make power-loss`."""
    tally = play_all(seeds)

    assert (tally.broken, tally.scenarios) == ([], len(seeds))
    assert tally.endings.keys() == {"close", "kill", "power loss"}
    assert tally.appends.keys() == {"done", "refused", "unknown"}
    assert tally.moves.keys() == {"moved", "refused", "unknown"}
    assert tally.failed_calls > len(seeds) / 5


def test_an_answer_before_its_sync_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(disk: UnreliableDisk, handle: int, parts: Sequence[bytes], at: int) -> None:
        disk.write(handle, b"".join(parts), at)

    monkeypatch.setattr(UnreliableDisk, "sync", lambda *_: None)
    monkeypatch.setattr(UnreliableDisk, "write_through", write)

    assert play_all(range(20)).broken != []


@pytest.mark.faults
async def test_a_clock_that_jumps_past_retention_takes_nothing_before_it_has_stayed_there_for_a_day() -> None:
    engine = Embedded()
    async with engine.open_log(retention=7 * DAY) as log:
        topic = await new_topic(log)
        await log.append(topic, texts("a", "b", "c"))
        for step, first in ((8 * DAY, 3), (-8 * DAY, 4)):
            engine.clock.step(step)
            assert (await log.append(topic, texts("x"))).first == first
            await log.retain()
            assert await log.bounds(topic) == Bounds(0, first + 1)

    async with engine.open_log(retention=7 * DAY) as log:
        engine.clock.step(8 * DAY)
        for _ in range(23):
            engine.clock.advance(HOUR)
            await log.retain()
        assert await log.bounds(topic) == Bounds(0, 5)
        engine.clock.advance(2 * HOUR)
        await log.retain()
        assert await log.bounds(topic) == Bounds(3, 5), "the other two were stored at the later time"
