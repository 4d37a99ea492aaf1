"""A service that is told to end while many publish: each publish is answered and stored, or absent."""

import asyncio
import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.faults import scene
from tests.faults.attempts import Outcome, Publish
from tests.faults.history import History
from tests.faults.http_client import HttpClient, Traffic
from tests.faults.target import Target
from tests.faults.workload import Publisher

pytestmark = [pytest.mark.faults, pytest.mark.embedded("it is one service that is ended")]

ROUNDS = 2
PUBLISHERS = 12
ANSWERED = 30
"""Publishes that are answered before the service is told to end, in each round."""


async def test_publishes_at_sigterm_are_answered_and_stored_or_absent(tmp_path: Path) -> None:
    target, traffic = Target(tmp_path / "data"), Traffic()
    history = History({"s": "t"}, restarts=target.restarts)
    chance = random.Random(3)
    clients = [HttpClient(f"p{number}", target, traffic) for number in range(PUBLISHERS)]
    publishers = [Publisher(each, history, chance, ("t",), ((1, 1), (1, 20)), 0.0) for each in clients]
    codes = []
    async with AsyncExitStack() as stack:
        stack.push_async_callback(target.stop)
        admin = HttpClient("admin", target, traffic)
        for each in (admin, *clients):
            stack.callback(each.close)
        await target.start()
        await scene.prepare(admin, history.subscriptions)
        async with asyncio.TaskGroup() as group:
            for each in publishers:
                group.create_task(each.run())
            for _ in range(ROUNDS):
                wanted = len(history.attempts) + ANSWERED
                while len(history.attempts) < wanted:
                    await asyncio.sleep(chance.uniform(0.001, 0.01))
                codes.append(await target.terminate())
                await target.start()
            traffic.stopping = True
        ending = await scene.ending(admin, history.subscriptions)

    publishes = [each for each in history.attempts if isinstance(each, Publish)]
    unanswered = {name for each in publishes if each.outcome is Outcome.UNKNOWN for name in each.names}
    assert codes == [0] * ROUNDS
    assert history.violations(ending) == []
    assert [each for each in ending.topics["t"] if each.name in unanswered] == []
    assert sum(each.outcome is Outcome.DONE for each in publishes) >= ANSWERED
    assert list(traffic.violations()) == []
