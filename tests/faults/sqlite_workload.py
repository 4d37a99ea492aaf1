"""A process that changes the registry in a real SQLite file, and notes what it asks and is answered.

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
from ams.core.names import ProjectName
from ams.storage.database.database import sqlite_url
from ams.storage.registry.registry import Registry

PAGES = 6  # of the WAL, after which SQLite moves what it holds to the database: often, so that power is cut in it often
LONG = 12_000  # characters of a project's description at most: some pages

State = dict[str, str]


class Notes:
    """What was asked of the registry and what was answered."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def say(self, what: str, state: State) -> None:
        """Note what is asked, with the state it would make, or what was answered, with the state it left."""
        os.write(self._file, json.dumps([what, state]).encode() + b"\n")

    async def ask(self, before: State, after: State, change: Awaitable[object]) -> State:
        """Make a change and return the state that the process now holds to be the right one."""
        self.say("ask", after)
        try:
            await change
        except Unavailable as error:
            self.say("unknown" if error.message == OUTCOME_UNKNOWN else "failed", before)
            return before
        self.say("done", after)
        return after


def move_often(connection: sqlite3.Connection, _: object) -> None:
    connection.execute(f"PRAGMA wal_autocheckpoint = {PAGES}")


async def use_registry(registry: Registry, notes: Notes, state: State, chance: random.Random) -> State:
    name = ProjectName(f"p{chance.randrange(12)}")
    text = "".join(chance.choices("abcdefgh", k=chance.randrange(1, LONG)))
    if name not in state:
        return await notes.ask(state, state | {name: text}, registry.projects.create(name, text, None))
    found = await registry.projects.find(name)
    assert found is not None
    assert found.description == state[name]
    if chance.random() < 0.2:
        without = {each: value for each, value in state.items() if each != name}
        return await notes.ask(state, without, registry.projects.delete(found.id))
    return await notes.ask(state, state | {name: text}, registry.projects.update(found.id, name, text))


async def main(folder: Path, steps: int, seed: int) -> None:
    chance = random.Random(seed)
    notes = Notes(folder / "notes")
    event.listen(Engine, "connect", move_often)  # here alone: it holds for every engine of the process
    registry = await Registry.open(sqlite_url(str(folder / "registry.db")), bytes(32))
    described: State = {}
    notes.say("done", {})
    for _ in range(steps):
        described = await use_registry(registry, notes, described, chance)
    await registry.close()


def stored(path: Path) -> State:
    """Return what the registry holds, as a process that opens it next finds it."""
    with opened(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return dict(connection.execute("SELECT name, description FROM projects").fetchall())


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
