"""Cursors after a power loss: the database is put back as it was at a commit, with or without a torn one behind it.

A commit is synced before it is answered (WAL and synchronous FULL: `tests/cursors/test_sqlite.py`), so what the files
held when a commit returned is what a power loss leaves, and any part of what was written since.
"""

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ams.clock import Milliseconds
from ams.cursors import sqlite
from ams.cursors.sqlite import SqliteCursors
from ams.names import Offset, SubscriptionId, TopicId
from tests.faults.in_process import Clients, prepare
from tests.support.engines import open_engines

TOPIC = TopicId(b"t" * 16)
SUBSCRIPTIONS = tuple(SubscriptionId(f"s{number}") for number in range(4))
END = Offset(1_000)
DEADLINE = Milliseconds(10_000)
DATABASE, WAL = "cursors.db", "cursors.db-wal"

Files = Mapping[str, bytes]


class Answered(NamedTuple):
    """A cursor that was said to stand at `offset` or beyond, when there had been so many commits."""

    commits: int
    subscription: SubscriptionId
    offset: int


class Recorded:
    """The cursor database's files after every commit, and what was answered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.commits: list[Files] = []
        self.answers: list[Answered] = []
        self._folder = folder
        store = sqlite._store

        def storing(connection: sqlite3.Connection, *changes: Any) -> None:
            store(connection, *changes)
            self.commits.append({name: (folder / name).read_bytes() for name in (DATABASE, WAL)})

        monkeypatch.setattr(sqlite, "_store", storing)

    async def run(self) -> None:
        """Acknowledge for several subscriptions at once, again and again."""
        cursors = await opened(self._folder)
        for each in SUBSCRIPTIONS:
            await cursors.create(each, TOPIC, Offset(0))
            await cursors.hand_out(each, 0, END)
        for last in range(10):
            await asyncio.gather(
                *(self._acknowledge(cursors, each, last * 5 + place) for place, each in enumerate(SUBSCRIPTIONS))
            )
        await cursors.close()

    async def _acknowledge(self, cursors: SqliteCursors, subscription: SubscriptionId, last: int) -> None:
        await cursors.acknowledge(subscription, Offset(last), DEADLINE)
        self.answers.append(Answered(len(self.commits), subscription, last + 1))


@pytest.fixture
async def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    folder = tmp_path / "live"
    folder.mkdir()
    recorded = Recorded(monkeypatch, folder)
    await recorded.run()
    monkeypatch.undo()
    return recorded


async def opened(folder: Path) -> SqliteCursors:
    return await SqliteCursors.open(str(folder / DATABASE), ends={TOPIC: END})


async def offsets(folder: Path, files: Files) -> dict[SubscriptionId, int]:
    """Put files into a fresh folder, as a machine finds them when power is back, and read the cursors."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    cursors = await opened(folder)
    found = {each: (await cursors.position(each, TOPIC)).offset for each in await cursors.subscriptions()}
    await cursors.close()
    return dict(found)


def torn(before: Files, after: Files, chance: random.Random) -> Files:
    """Return files of which the second commit's writes reached the disk in part: some blocks did, others did not."""
    old, new = before[WAL], after[WAL]
    blocks = bytearray(new[: chance.randrange(len(old), len(new))])
    for start in range(len(old), len(blocks), 512):
        if chance.random() < 0.3:
            blocks[start : start + 512] = bytes(len(blocks[start : start + 512]))
    return {DATABASE: before[DATABASE], WAL: bytes(blocks)}


async def test_the_database_as_of_a_commit_holds_every_acknowledgement_answered_until_then(
    tmp_path: Path, recorded: Recorded
) -> None:
    assert len(recorded.answers) == 10 * len(SUBSCRIPTIONS)
    for number, files in enumerate(recorded.commits, start=1):
        found = await offsets(tmp_path / "restored", files)

        answered = [each for each in recorded.answers if each.commits <= number]
        assert [each for each in answered if found[each.subscription] < each.offset] == []


async def test_a_commit_torn_by_a_power_loss_is_there_wholly_or_not_at_all(tmp_path: Path, recorded: Recorded) -> None:
    chance = random.Random(1)
    for before, after in zip(recorded.commits, recorded.commits[1:], strict=False):
        assert before[DATABASE] == after[DATABASE]  # nothing moved out of the WAL between them
        assert after[WAL].startswith(before[WAL])
        whole = [await offsets(tmp_path / "restored", files) for files in (before, after)]

        for _ in range(3):
            assert await offsets(tmp_path / "restored", torn(before, after, chance)) in whole


async def test_cursors_ahead_of_a_log_put_back_from_a_copy_go_on_at_its_end(tmp_path: Path) -> None:
    await prepare(tmp_path)
    log, copy = tmp_path / "log", tmp_path / "copy"
    async with open_engines(tmp_path) as engines:
        clients = await Clients.of(engines)
        await clients.publish(3)
    shutil.copytree(log, copy)
    async with open_engines(tmp_path) as engines:
        clients = await clients.again(engines)
        await clients.publish(4)
        await clients.pull()
        await clients.acknowledge(6)
    shutil.rmtree(log)
    copy.rename(log)

    async with open_engines(tmp_path) as engines:
        clients = await clients.again(engines)
        published = await clients.publish(2)
        pulled = await clients.pull()

    assert published.ids == (3, 4)
    assert [each.name for each in pulled.messages] == list(published.names)
