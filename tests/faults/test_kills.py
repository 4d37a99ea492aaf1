"""The short form of `make faults`, an orderly end and a backup under load: every law held over the history."""

import asyncio
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ams.app.backup import restore, take
from simulation.histories.attempts import Attempt, Outcome, Publish, Pull
from simulation.histories.history import History
from simulation.histories.workload import Consumer, Publisher, Seeker
from tests.faults.campaign import AIMS, Campaign
from tests.faults.scene import Stage
from tests.support import shape
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.faults, pytest.mark.long]

PUBLISHERS = 12
ANSWERED = 30  # requests that are answered before the service is told to end, or a backup is taken
SUBSCRIPTIONS = {f"{topic}-{use}": topic for topic in ("jobs", "results") for use in ("steady", "sought")}


async def test_nothing_is_lost_and_no_law_broken_over_a_kill_of_each_kind(tmp_path: Path) -> None:
    result = await Campaign(tmp_path / "data", kills=len(AIMS), seed=10).run()

    print(result.line())
    assert result.violations == []
    assert result.messages > 0
    assert shape.is_cluster() or (result.segments_reused > 0 and result.steps_ahead > 0)
    assert all(result.hit(kind) for kind in AIMS[:-1])
    assert result.streamed > 0
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
            await wait_until_async(lambda: len(made) >= ANSWERED)
            code = await stage.target.terminate()
            await stage.target.start()
            stage.traffic.stopping = True
        ending = await stage.ending()

    unanswered = {name for each in made if isinstance(each, Publish) and not each.ids for name in each.names}
    assert code == 0
    assert stage.history.violations(ending) == []
    assert [each for each in ending.topics["t"] if each.name in unanswered] == []
    assert list(stage.traffic.violations()) == []


async def test_a_restored_backup_has_all_that_was_answered_before_it_and_breaks_no_law(tmp_path: Path) -> None:
    data, copy, restored = tmp_path / "data", tmp_path / "copy", tmp_path / "restored"
    async with Stage(data, SUBSCRIPTIONS) as stage:
        await stage.prepare()
        made = stage.history.attempts
        async with asyncio.TaskGroup() as group:
            for user in users(stage):
                group.create_task(user.run())
            await wait_until_async(lambda: len(made) >= ANSWERED)
            began = time.monotonic()
            await asyncio.to_thread(take, str(data), str(copy))
            ended = time.monotonic()
            stage.traffic.stopping = True
    assert stage.traffic.dropped == 0
    assert [each for each in stage.traffic.refusals if ": 5" in each] == []

    assert restore(str(copy), str(restored)).report.problems == []
    async with Stage(restored, SUBSCRIPTIONS) as again:
        ending = await again.ending()
        published = await again.admin.must("/topics/jobs:publish", {"messages": [{"data": "aGk="}]})
    known = known_by(stage.history, began, ended)
    assert known.violations(ending) == []
    assert published["messageIds"] == [str(len(ending.topics["jobs"]))]
    assert sum(len(each.ids) for each in known.attempts if isinstance(each, Publish)) > 0


def users(stage: Stage) -> list[Publisher | Consumer | Seeker]:
    sizes, chance, history = ((1, 1), (10, 10), (100, 200)), random.Random(4), stage.history
    topics = tuple(sorted(set(SUBSCRIPTIONS.values())))
    return [
        *(Publisher(stage.client(f"p{each}"), history, chance, topics, sizes, 0.01) for each in range(4)),
        *(Consumer(stage.client(f"c-{name}"), history, chance, name) for name in SUBSCRIPTIONS),
        *(Seeker(stage.client(f"k-{topic}"), history, chance, f"{topic}-sought") for topic in topics),
    ]


def known_by(history: History, began: float, ended: float) -> History:
    """Return what a history tells of a backup: what was answered before it began happened, what began later did not."""
    attempts = [each for each in history.attempts if each.started < ended]
    return History(history.subscriptions, [each if each.ended < began else unknown(each, ended) for each in attempts])


def unknown(attempt: Attempt, ended: float) -> Attempt:
    changed = replace(attempt, outcome=Outcome.UNKNOWN, ended=min(attempt.ended, ended))
    if isinstance(changed, Publish):
        return replace(changed, ids=())
    return replace(changed, messages=()) if isinstance(changed, Pull) else changed
