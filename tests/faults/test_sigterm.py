"""A service that is told to end while many publish: each publish is answered and stored, or absent."""

import asyncio
import random
from pathlib import Path

import pytest

from tests.faults.attempts import Outcome, Publish
from tests.faults.scene import Stage
from tests.faults.workload import Publisher
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.faults, pytest.mark.long, pytest.mark.embedded("it is one service that is ended")]

ROUNDS = 2
PUBLISHERS = 12
ANSWERED = 30
"""Publishes that are answered before the service is told to end, in each round."""


async def test_publishes_at_sigterm_are_answered_and_stored_or_absent(tmp_path: Path) -> None:
    chance, codes = random.Random(3), []
    async with Stage(tmp_path / "data", {"s": "t"}) as stage:
        await stage.prepare()
        made = stage.history.attempts
        async with asyncio.TaskGroup() as group:
            for number in range(PUBLISHERS):
                client = stage.client(f"p{number}")
                group.create_task(Publisher(client, stage.history, chance, ("t",), ((1, 1), (1, 20)), 0.0).run())
            for _ in range(ROUNDS):
                wanted = len(made) + ANSWERED
                await wait_until_async(lambda: len(made) >= wanted)  # noqa: B023  # called at once
                codes.append(await stage.target.terminate())
                await stage.target.start()
            stage.traffic.stopping = True
        ending = await stage.ending()

    publishes = [each for each in made if isinstance(each, Publish)]
    unanswered = {name for each in publishes if each.outcome is Outcome.UNKNOWN for name in each.names}
    assert codes == [0] * ROUNDS
    assert stage.history.violations(ending) == []
    assert [each for each in ending.topics["t"] if each.name in unanswered] == []
    assert sum(each.outcome is Outcome.DONE for each in publishes) >= ANSWERED
    assert list(stage.traffic.violations()) == []
