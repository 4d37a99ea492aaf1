"""The registry on the disk of a world: crashes and failing syncs at any moment of its commits, checkpoints included.

Afterwards the database must hold every answered change, and may hold those without an answer yet.
"""

import errno
import itertools
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing

import pytest
from sqlalchemy import Engine, event

from ams.core.errors import OUTCOME_UNKNOWN, Unavailable
from ams.core.names import ProjectName
from ams.storage.database.database import sqlite_url
from ams.storage.registry.registry import Registry
from simulation.disk import NodeDisk
from simulation.process import SimProcess
from simulation.seams import install_seams
from simulation.sqlite_files import sqlite_files
from simulation.world import World
from tests.simulation.planted import Planted, doubtful_commit, unsynced_database
from tests.support.memory import in_a_process

pytestmark = pytest.mark.embedded("the simulator has the embedded engines")

FOLDER = "/world"
PATH = f"{FOLDER}/registry.db"
LONG = 12_000  # characters of a description at most: some pages
SEEDS = 40
State = dict[str, str]


class RegistryLife:
    """The life of one registry, its permitted contents by its answers, and counts of these."""

    def __init__(self, seed: int) -> None:
        self.world, self.chance = World(seed), random.Random(seed)
        self.disk = NodeDisk(self.world, 1 << 30)
        self.disk.make_durable(FOLDER)
        self.lawful: list[State] = []
        self.outcomes = Counter[str]()
        self.cut_at = self.chance.uniform(0.2, 0.6)  # seconds of the world

    async def live(self) -> None:
        registry = await Registry.open(sqlite_url(PATH), bytes(32))
        state: State = {}
        self.lawful = [state]
        fails_at = self.chance.randrange(20)
        for number in itertools.count():
            if number == fails_at:
                times = self.chance.choice((0, 1, 1, 3, 9))
                self.disk.fail("sync", errno.EIO, after=self.chance.randint(0, 2), times=times, where="registry.db")
            state = await self._change(registry, state)

    async def _change(self, registry: Registry, state: State) -> State:
        name = ProjectName(f"p{self.chance.randrange(8)}")
        text = "".join(self.chance.choices("abcdefgh", k=self.chance.randrange(1, LONG)))
        found, after = await registry.projects.find(name), state | {name: text}
        assert (found.description if found else None) == state.get(name)
        if found is None:
            change = registry.projects.create(name, text, None)
        elif self.chance.random() < 0.2:
            change, after = registry.projects.delete(found.id), {each: state[each] for each in state if each != name}
        else:
            change = registry.projects.update(found.id, name, text)
        self.lawful = [*self.lawful, after]
        try:
            await change
        except Unavailable as error:
            self.outcomes["unknown" if error.message == OUTCOME_UNKNOWN else "failed"] += 1
            if error.message != OUTCOME_UNKNOWN:
                self.lawful = [state]
            if self.chance.random() < 0.5:  # the end comes before the next commit
                self.cut_at = self.world.now + self.chance.uniform(0, 0.003)
            return state
        self.outcomes["done"] += 1
        self.lawful = [after]
        return after

    def is_broken(self) -> bool:
        """Live, end by a power cut or a kill, and return whether the contents contradict the answers."""
        process = SimProcess(self.world, "node")
        with install_seams(self.world, lambda _: None), sqlite_files().mount(FOLDER, self.disk):
            life = process.loop.create_task(self.live())
            while self.world.now < self.cut_at or not self.lawful:
                assert not life.done(), life.exception()
                self.world.step()
            self.disk.halt()
            process.die()
            if self.chance.random() < 0.6:
                self.disk.power_loss(self.world.chance)
            self.disk.revive()  # after a kill with all that was written
            try:
                with closing(sqlite3.connect(PATH)) as connection:
                    whole = connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                    found = dict(connection.execute("SELECT name, description FROM projects").fetchall())
            except sqlite3.DatabaseError:
                return True
        return not whole or found not in self.lawful


def play_lives() -> tuple[list[int], Counter[str]]:
    """Return the seeds of lives that broke a law, and how many of each outcome there were in all."""
    event.listen(Engine, "connect", move_often)
    lives = [RegistryLife(seed) for seed in range(SEEDS)]
    broken = [seed for seed, life in enumerate(lives) if life.is_broken()]
    return broken, sum((each.outcomes for each in lives), Counter[str]())


def finds_fault(fault: Callable[[], Planted]) -> bool:
    """Return whether a life with a fault breaks a law."""
    event.listen(Engine, "connect", move_often)
    with fault():
        return any(RegistryLife(seed).is_broken() for seed in range(SEEDS))


def move_often(connection: sqlite3.Connection, _: object) -> None:
    """Let SQLite checkpoint the WAL often, so that power cuts often hit a checkpoint."""
    connection.execute("PRAGMA wal_autocheckpoint = 20")


def test_after_a_power_cut_or_a_kill_all_is_there_that_was_answered_and_no_part_of_what_failed() -> None:
    broken, outcomes = in_a_process(play_lives)

    assert broken == []
    assert outcomes["done"] > 10 * SEEDS
    assert outcomes["failed"] > 2
    assert outcomes["unknown"] > 2


@pytest.mark.parametrize("fault", [unsynced_database, doubtful_commit])
def test_a_fault_of_its_commits_shows(fault: Callable[[], Planted]) -> None:
    assert in_a_process(finds_fault, fault)
