"""Backups of a service under load, restored and held against the history; and kills while one is taken."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ams.app.backup import restore, take
from ams.app.backup.keeping import keep
from ams.core.errors import Unusable
from tests.faults import scene
from tests.faults.attempts import Attempt, Outcome, Publish, Pull
from tests.faults.history import History
from tests.faults.http_client import HttpClient, Traffic
from tests.faults.target import Target
from tests.faults.workload import Consumer, Publisher, Seeker
from tests.support.service import live_service

pytestmark = pytest.mark.faults

TOPICS = ("jobs", "results")
SUBSCRIPTIONS = {f"{topic}-{use}": topic for topic in TOPICS for use in ("steady", "sought")}


@dataclass
class Scene:
    """A service in use."""

    data: Path
    history: History = field(default_factory=lambda: History(SUBSCRIPTIONS))
    traffic: Traffic = field(default_factory=Traffic)

    def __post_init__(self) -> None:
        self.target = Target(self.data)

    def client(self, name: str) -> HttpClient:
        return HttpClient(name, self.target, self.traffic)

    def users(self) -> list[Publisher | Consumer | Seeker]:
        sizes = ((1, 1), (10, 10), (100, 200))
        fork = random.Random(4)
        users: list[Publisher | Consumer | Seeker] = [
            Publisher(self.client(f"p{number}"), self.history, fork, TOPICS, sizes, 0.01) for number in range(4)
        ]
        users += [Consumer(self.client(f"c-{name}"), self.history, fork, name) for name in SUBSCRIPTIONS]
        users += [Seeker(self.client(f"k-{topic}"), self.history, fork, f"{topic}-sought") for topic in TOPICS]
        return users

    @asynccontextmanager
    async def in_use(self) -> AsyncIterator[None]:
        """Use the service until the block ends."""
        users = self.users()
        async with self.served() as admin, asyncio.TaskGroup() as group:
            await scene.prepare(admin, SUBSCRIPTIONS)
            for user in users:
                group.create_task(user.run())
            await asyncio.sleep(0.5)
            yield
            self.traffic.stopping = True
        for user in users:
            user.client.close()

    @asynccontextmanager
    async def served(self) -> AsyncIterator[HttpClient]:
        """Run the service until the block ends; gives the client that prepares and reads."""
        try:
            await self.target.start()
            with closing(self.client("admin")) as admin:
                yield admin
        finally:
            await self.target.stop()


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
    played = Scene(tmp_path / "data")
    moments = []
    async with played.in_use():
        for number in range(2):
            began = time.monotonic()
            await asyncio.to_thread(take, str(played.data), str(tmp_path / f"b{number}"))
            moments.append((began, time.monotonic()))
            await asyncio.sleep(0.3)
    assert played.traffic.dropped == 0
    assert [each for each in played.traffic.refusals if ": 5" in each] == []

    for number, (began, ended) in enumerate(moments):
        known = known_by(played.history, began, ended)
        assert restore(str(tmp_path / f"b{number}"), str(tmp_path / f"r{number}")).report.problems == []
        async with Scene(tmp_path / f"r{number}").served() as admin:
            ending = await scene.ending(admin, SUBSCRIPTIONS)
            published = await admin.must("/topics/jobs:publish", {"messages": [{"data": "aGk="}]})

        assert known.violations(ending) == []
        assert published["messageIds"] == [str(len(ending.topics["jobs"]))]
        assert sum(len(each.ids) for each in known.attempts if isinstance(each, Publish)) > 0


def backup_process(data: Path, target: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ams.cli.main", "backup", str(target), "--data", str(data)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def until(condition: "os.PathLike[str]", process: subprocess.Popen[bytes]) -> None:
    """Wait for a file to appear while a process runs."""
    while not os.path.exists(condition):
        assert process.poll() is None
        time.sleep(0.002)


def test_a_backup_that_is_killed_leaves_nothing_that_looks_like_one_and_the_service_goes_on(tmp_path: Path) -> None:
    with live_service(tmp_path / "data") as live:
        with (tmp_path / "data" / "large.pem").open("wb") as large:
            large.truncate(1 << 30)  # takes a while to copy, and no room
        process = backup_process(live.data, tmp_path / "b")
        until(tmp_path / "b.partial" / "large.pem", process)
        process.send_signal(signal.SIGKILL)
        process.communicate()

        assert not (tmp_path / "b").exists()
        with pytest.raises(Unusable, match="is not a whole backup"):
            restore(str(tmp_path / "b.partial"), str(tmp_path / "new"))
        (tmp_path / "data" / "large.pem").unlink()
        take(str(live.data), str(tmp_path / "b"))
        assert live.stop() == 0
    restore(str(tmp_path / "b"), str(tmp_path / "new"))


def test_a_service_that_is_killed_meanwhile_ends_the_backup_and_starts_again(tmp_path: Path) -> None:
    with live_service(tmp_path / "data") as live:
        with (tmp_path / "data" / "large.pem").open("wb") as large:
            large.truncate(16 << 20)
        process = backup_process(live.data, tmp_path / "b")
        until(tmp_path / "b.partial", process)
        live.kill()
        _, said = process.communicate()

    assert process.returncode == 1
    assert b"ended while it was copied; try again" in said
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith("b")] == []
    with live_service(tmp_path / "data") as live, closing(keep(str(live.data))) as kept:
        kept.confirm()
