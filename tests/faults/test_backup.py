"""Backups of a service under load, restored and held against the history."""

import asyncio
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ams.app.backup import restore, take
from tests.faults.attempts import Attempt, Outcome, Publish, Pull
from tests.faults.history import History
from tests.faults.scene import Stage
from tests.faults.workload import Consumer, Publisher, Seeker

pytestmark = [pytest.mark.faults, pytest.mark.long]

TOPICS = ("jobs", "results")
SUBSCRIPTIONS = {f"{topic}-{use}": topic for topic in TOPICS for use in ("steady", "sought")}


def users(stage: Stage) -> list[Publisher | Consumer | Seeker]:
    sizes, fork, history = ((1, 1), (10, 10), (100, 200)), random.Random(4), stage.history
    return [
        *(Publisher(stage.client(f"p{each}"), history, fork, TOPICS, sizes, 0.01) for each in range(4)),
        *(Consumer(stage.client(f"c-{name}"), history, fork, name) for name in SUBSCRIPTIONS),
        *(Seeker(stage.client(f"k-{topic}"), history, fork, f"{topic}-sought") for topic in TOPICS),
    ]


def known_by(history: History, began: float, ended: float) -> History:
    """Return what a history tells of a backup: what was answered before it began happened, what began later did not."""
    attempts = [each for each in history.attempts if each.started < ended]
    return History(history.subscriptions, [each if each.ended < began else _unknown(each, ended) for each in attempts])


def _unknown(attempt: Attempt, ended: float) -> Attempt:
    changed = replace(attempt, outcome=Outcome.UNKNOWN, ended=min(attempt.ended, ended))
    if isinstance(changed, Publish):
        return replace(changed, ids=())
    return replace(changed, messages=()) if isinstance(changed, Pull) else changed


async def test_a_restored_backup_has_all_that_was_answered_before_it_and_breaks_no_law(tmp_path: Path) -> None:
    moments, data = [], tmp_path / "data"
    async with Stage(data, SUBSCRIPTIONS) as played:
        await played.prepare()
        async with asyncio.TaskGroup() as group:
            for user in users(played):
                group.create_task(user.run())
            for number in range(2):
                await asyncio.sleep(0.4)
                began = time.monotonic()
                await asyncio.to_thread(take, str(data), str(tmp_path / f"b{number}"))
                moments.append((began, time.monotonic()))
            played.traffic.stopping = True
    assert played.traffic.dropped == 0
    assert [each for each in played.traffic.refusals if ": 5" in each] == []

    for number, (began, ended) in enumerate(moments):
        known = known_by(played.history, began, ended)
        assert restore(str(tmp_path / f"b{number}"), str(tmp_path / f"r{number}")).report.problems == []
        async with Stage(tmp_path / f"r{number}", SUBSCRIPTIONS) as restored:
            ending = await restored.ending()
            published = await restored.admin.must("/topics/jobs:publish", {"messages": [{"data": "aGk="}]})

        assert known.violations(ending) == []
        assert published["messageIds"] == [str(len(ending.topics["jobs"]))]
        assert sum(len(each.ids) for each in known.attempts if isinstance(each, Publish)) > 0
