"""Power losses under the embedded log, in short, and cursors of another moment than the log."""

import shutil
from pathlib import Path

import pytest

from tests.faults.power_loss import play_all
from tests.support.engines import open_engines
from tests.support.use_cases import SUB, UseCases, open_use_cases


async def test_cursors_ahead_of_a_log_put_back_from_a_copy_go_on_at_its_end(tmp_path: Path) -> None:
    log, copy = tmp_path / "log", tmp_path / "copy"
    async with open_use_cases(tmp_path) as cases:
        await cases.publish(3)
    shutil.copytree(log, copy)
    async with open_engines(tmp_path) as engines:
        cases = UseCases(engines, await engines.caller())
        await cases.publish(4, first=3)
        deliverer = cases.deliverer()
        await deliverer.pull(await deliverer.to_pull(cases.caller, SUB), 10, wait=False)
        await cases.acknowledge([6])
    shutil.rmtree(log)
    copy.rename(log)

    async with open_engines(tmp_path) as engines:
        cases = UseCases(engines, await engines.caller())
        assert await cases.publish(2, first=7) == 3
        deliverer = cases.deliverer()
        pulled = await deliverer.pull(await deliverer.to_pull(cases.caller, SUB), 10, wait=False)

    assert [each.offset for each in pulled] == [3, 4]
    assert [f'"{number}"'.encode() in each.fragment for number, each in zip((7, 8), pulled, strict=True)] == [True] * 2


@pytest.mark.parametrize("seeds", [range(80), pytest.param(range(80, 320), marks=pytest.mark.long)], ids=len)
def test_no_law_is_broken_in_scenarios(seeds: range) -> None:
    """The short form of `make power-loss`."""
    tally = play_all(seeds)

    assert tally.broken == []
    assert tally.scenarios == len(seeds)
    assert tally.endings.keys() == {"close", "kill", "power loss"}
    assert tally.appends.keys() == {"done", "refused", "unknown"}
    assert tally.failed_calls > len(seeds) / 5
