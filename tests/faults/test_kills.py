"""The short form of `make faults`, and an orderly stop: every law holds for the history."""

import asyncio
import random
from pathlib import Path

import pytest

from simulation.histories.attempts import Publish
from simulation.histories.workload import Publisher
from tests.faults.campaign import KillCampaign
from tests.faults.scene import Stage
from tests.support import shape
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.faults, pytest.mark.long]

PUBLISHERS = 12
ANSWERED_REQUESTS = 30  # requests answered before the service gets SIGTERM


async def test_nothing_is_lost_and_no_law_broken_over_some_kills(tmp_path: Path) -> None:
    result = await KillCampaign(tmp_path / "data", kills=4, seed=10).run()

    print(result.line())
    assert result.violations == []
    assert result.messages > 0
    assert shape.is_cluster() or (result.segments_reused > 0 and result.steps_ahead > 0)
    assert result.dead_letters > 0


@pytest.mark.embedded("it is one service that is ended")
async def test_publishes_at_sigterm_are_answered_and_stored_or_absent(tmp_path: Path) -> None:
    chance = random.Random(3)
    async with Stage(tmp_path / "data", {"s": "t"}) as stage:
        await stage.prepare()
        made = stage.history.attempts
        async with asyncio.TaskGroup() as group:
            for number in range(PUBLISHERS):
                client = stage.client(f"p{number}")
                group.create_task(Publisher(client, stage.history, chance, ("t",), ((1, 1), (1, 20)), 0.0).run())
            await wait_until_async(lambda: len(made) >= ANSWERED_REQUESTS)
            code = await stage.target.terminate()
            await stage.target.start()
            stage.traffic.stopping = True
        ending = await stage.ending()

    unanswered = {name for each in made if isinstance(each, Publish) and not each.ids for name in each.names}
    assert code == 0
    assert stage.history.violations(ending) == []
    assert [each for each in ending.topics["t"] if each.name in unanswered] == []
    assert list(stage.traffic.violations()) == []
