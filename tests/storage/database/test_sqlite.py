import contextlib
import sqlite3
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, func, insert, select

from ams.core.errors import RegistryUnavailable, Unusable
from ams.storage.database import opening
from ams.storage.database.database import Database, sqlite_url
from ams.storage.free_space import UnlimitedSpace
from ams.storage.registry.tables import REGISTRY, projects


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = Database(sqlite_url(str(tmp_path / "registry.db")), REGISTRY)
    await opened.write(lambda connection: opening.prepare(connection, REGISTRY))
    yield opened
    await opened.close()


def count_projects(connection: Connection) -> int | None:
    return connection.scalar(select(func.count()).select_from(projects))


def pragma(connection: Connection, name: str) -> object:
    return connection.exec_driver_sql(f"PRAGMA {name}").scalar()


@pytest.mark.parametrize(
    ("name", "value"), [("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1), ("busy_timeout", 5000)]
)
async def test_every_connection_is_durable_and_holds_the_rules(database: Database, name: str, value: object) -> None:
    assert await database.write(lambda connection: pragma(connection, name)) == value
    assert await database.read(lambda connection: pragma(connection, name)) == value


async def test_the_file_is_for_its_owner_only(database: Database, tmp_path: Path) -> None:
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name


async def test_reads_do_not_wait_for_a_write_under_way(database: Database, tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "registry.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    assert await database.read(count_projects) == 0

    other.execute("ROLLBACK")
    other.close()


class FullDisk(UnlimitedSpace):
    """A disk with room for so many pages, which can be given more."""

    def __init__(self, path: Path, *, helps: bool) -> None:
        self.asked = 0
        self.pages = 60
        self.database = Database(sqlite_url(str(path / "registry.db")), REGISTRY, self)
        self._helps = helps

    def release_reserve(self) -> bool:
        self.asked += 1
        if self._helps:
            self.pages = 1_000
        return self._helps

    def fill(self, connection: Connection) -> None:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {self.pages}")
        for number in range(60):
            connection.execute(
                insert(projects).values(
                    id=str(number), name=str(number), description="x" * 8_000, created_on=0, modified_on=0
                )
            )


@pytest.mark.parametrize("helps", [True, False], ids=["which helps", "in vain"])
async def test_on_a_full_disk_room_is_asked_for_once_and_nothing_is_stored_by_half(tmp_path: Path, helps: bool) -> None:
    disk = FullDisk(tmp_path, helps=helps)
    await disk.database.write(lambda connection: opening.prepare(connection, REGISTRY))

    with contextlib.nullcontext() if helps else pytest.raises(RegistryUnavailable):
        await disk.database.write(disk.fill)

    assert disk.asked == 1
    assert await disk.database.read(count_projects) == (60 if helps else 0)
    await disk.database.close()


def test_a_place_where_no_file_can_be_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="cannot be opened: No such file or directory"):
        Database(sqlite_url(str(tmp_path / "nowhere" / "registry.db")), REGISTRY)
