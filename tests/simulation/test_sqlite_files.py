import asyncio
import sqlite3
from contextlib import closing

import pytest

from simulation.disk import NodeDisk
from simulation.process import SimProcess
from simulation.sqlite_files import sqlite_files
from simulation.world import World

FOLDER = "/world"
PATH = f"{FOLDER}/registry.db"
ROWS = 3  # of a commit


@pytest.mark.parametrize("seed", range(12))
def test_a_power_cut_leaves_each_commit_whole_or_not_at_all_and_all_that_were_answered(seed: int) -> None:
    world, answered = World(seed), list[int]()
    disk, process = NodeDisk(world, 1 << 30), SimProcess(world, "node")
    disk.make_durable(FOLDER)

    def commit() -> None:
        with closing(sqlite3.connect(PATH, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA wal_autocheckpoint = 9")
            connection.execute("CREATE TABLE rows (number INTEGER, text TEXT)")
            disk.sync_folder(FOLDER)
            for number in range(1000):
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany("INSERT INTO rows VALUES (?, ?)", [(number, "x" * 700)] * ROWS)
                connection.execute("COMMIT")
                answered.append(number)

    async def live() -> None:
        asyncio.get_running_loop().run_in_executor(None, commit)
        await asyncio.sleep(world.chance.uniform(0.1, 0.4))

    with sqlite_files().mount(FOLDER, disk):
        process.run(live())
        before = list(answered)
        disk.halt()
        process.die()
        disk.power_loss(world.chance)
        disk.revive()
        with closing(sqlite3.connect(PATH)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            found = dict(connection.execute("SELECT number, count(*) FROM rows GROUP BY number ORDER BY number"))

    assert len(before) > 3
    assert list(found)[: len(before)] == before
    assert len(found) <= len(before) + 1
    assert set(found.values()) == {ROWS}
