"""A process that changes cursors and registry in real SQLite files, and notes what it asks and is answered.

`python -m tests.faults.sqlite_workload FOLDER STEPS SEED`, under strace in `test_sqlite_power_loss.py`.
Each note is one write of one line to the file `notes`, so a trace shows it in order with all other calls.
"""

import asyncio
import contextlib
import json
import os
import random
import sqlite3
import sys
from collections.abc import Awaitable, Iterator
from pathlib import Path

from sqlalchemy import Engine, event

from ams.core.errors import OUTCOME_UNKNOWN, Unavailable
from ams.core.names import Offset, ProjectName, SubscriptionId, TopicId
from ams.core.offsets import Range, ranges_of
from ams.storage.cursors import acks, entries
from ams.storage.cursors.acks import Change, Progress
from ams.storage.cursors.base import NO_DEADLINE
from ams.storage.cursors.sqlite import SqliteCursors
from ams.storage.cursors.sqlite_rows import AckRows
from ams.storage.database.database import sqlite_url
from ams.storage.registry.registry import Registry

TOPIC = TopicId(b"t" * 16)
END = Offset(10_000)
PAGES = 6  # of the WAL, after which SQLite moves what it holds to the database: often, so that power is cut in it often
LONG = 12_000  # characters of a project's description at most: some pages

State = dict[str, str | int]
Call = Awaitable[object]


class Notes:
    """What was asked of a database and what was answered."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def say(self, database: str, what: str, state: State) -> None:
        """Note what is asked, with the state it would make, or what was answered, with the state it left."""
        os.write(self._file, json.dumps([database, what, state]).encode() + b"\n")

    async def ask(self, database: str, before: State, after: State, change: Awaitable[object]) -> State:
        """Make a change and return the state that the process now holds to be the right one."""
        self.say(database, "ask", after)
        try:
            await change
        except Unavailable as error:
            self.say(database, "unknown" if error.message == OUTCOME_UNKNOWN else "failed", before)
            return before
        self.say(database, "done", after)
        return after


def move_often(connection: sqlite3.Connection, _: object) -> None:
    connection.execute(f"PRAGMA wal_autocheckpoint = {PAGES}")


async def use_cursors(cursors: SqliteCursors, notes: Notes, state: State, chance: random.Random) -> State:
    """Create, drop or seek a subscription, ordered or parallel, or acknowledge for several as one group."""
    is_parallel = chance.random() < 0.5
    key = SubscriptionId(f"p{chance.randrange(3)}" if is_parallel else f"s{chance.randrange(40)}")
    offset = Offset(chance.randrange(100 if is_parallel else END))
    after = state | {key: standing(acks.unsettled(offset, 0, 0)) if is_parallel else offset}
    if key not in state:
        return await notes.ask("cursors", state, after, cursors.create(key, TOPIC, offset))
    if chance.random() < 0.1:
        without = {each: value for each, value in state.items() if each != key}
        return await notes.ask("cursors", state, without, cursors.drop(key))
    if chance.random() < (0.1 if is_parallel else 0.3):
        return await notes.ask("cursors", state, after, cursors.seek(key, TOPIC, offset))
    changed, calls = await (settled if is_parallel else acknowledged)(cursors, state, chance)
    return await notes.ask("cursors", state, state | changed, asyncio.gather(*calls))


async def acknowledged(cursors: SqliteCursors, state: State, chance: random.Random) -> tuple[State, list[Call]]:
    moved: State = {}
    ordered = sorted(each for each in state if each.startswith("s"))
    for each in chance.sample(ordered, min(len(ordered), 3)):
        position = await cursors.position(SubscriptionId(each), TOPIC)
        if position.offset < END:
            await cursors.hand_out(SubscriptionId(each), position.generation, END)
            moved[each] = position.offset + chance.randrange(END - position.offset) + 1
    return moved, [
        cursors.acknowledge(SubscriptionId(each), Offset(int(to) - 1), NO_DEADLINE) for each, to in moved.items()
    ]


async def settled(cursors: SqliteCursors, state: State, chance: random.Random) -> tuple[State, list[Call]]:
    changed: State = {}
    calls: list[Call] = []
    for each in [SubscriptionId(each) for each in state if each.startswith("p")]:
        progress = await cursors.progress(each)
        with contextlib.suppress(Unavailable):
            progress = progress if progress.run else await cursors.take_over(each, TOPIC)
        if not progress.run:
            continue
        done = [some_range(progress.floor, chance) for _ in range(chance.randrange(1, 40))]
        changed[each] = standing(acks.settled(progress, Change(done)))
        calls += [cursors.settle(each, progress.epoch, progress.run, Change(half)) for half in (done[::2], done[1::2])]
    return changed, calls


def standing(progress: Progress) -> str:
    return f"{progress.floor} {ranges_of(progress.done)}"


def some_range(floor: int, chance: random.Random) -> Range:
    begin = floor + chance.randrange(60)
    return Offset(begin), Offset(begin + chance.randrange(1, 4))


async def use_registry(registry: Registry, notes: Notes, state: State, chance: random.Random) -> State:
    name = ProjectName(f"p{chance.randrange(12)}")
    text = "".join(chance.choices("abcdefgh", k=chance.randrange(1, LONG)))
    if name not in state:
        return await notes.ask("registry", state, state | {name: text}, registry.projects.create(name, text, None))
    found = await registry.projects.find(name)
    assert found is not None
    assert found.description == state[name]
    if chance.random() < 0.2:
        without = {each: value for each, value in state.items() if each != name}
        return await notes.ask("registry", state, without, registry.projects.delete(found.id))
    return await notes.ask("registry", state, state | {name: text}, registry.projects.update(found.id, name, text))


async def main(folder: Path, steps: int, seed: int) -> None:
    chance = random.Random(seed)
    notes = Notes(folder / "notes")
    entries.MAX_DELTAS = 4  # so that images are written
    cursors = await SqliteCursors.open(str(folder / "cursors.db"), ends={TOPIC: END})
    move_often(cursors._connection, None)
    event.listen(Engine, "connect", move_often)  # here alone: it holds for every engine of the process
    registry = await Registry.open(sqlite_url(str(folder / "registry.db")), bytes(32))
    standing: State = {}
    described: State = {}
    for database in ("cursors", "registry"):
        notes.say(database, "done", {})
    for _ in range(steps):
        standing = await use_cursors(cursors, notes, standing, chance)
        described = await use_registry(registry, notes, described, chance)
    await cursors.close()
    await registry.close()


def stored(path: Path) -> State:
    """Return what a database holds, as a process that opens it next finds it."""
    with opened(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if path.name == "registry.db":
            return dict(connection.execute("SELECT name, description FROM projects").fetchall())
        offsets = dict(connection.execute('SELECT subscription, "offset" FROM cursors').fetchall())
        told = {key: standing(acks.unsettled(offset, 0, 0)) for key, offset in offsets.items() if key.startswith("p")}
        return {**offsets, **told, **{key: standing(each) for key, each in AckRows().load(connection).items()}}


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path)
    try:
        connection.execute("PRAGMA synchronous = OFF")  # it is only looked at
        yield connection
    finally:
        connection.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
