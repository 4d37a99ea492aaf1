import subprocess
import sys
from pathlib import Path

import pytest

from ams.core.clock import ManualClock
from ams.core.errors import Unusable
from ams.core.names import ProjectName, TopicName, new_topic_id
from ams.storage.database.database import sqlite_url
from ams.storage.registry.registry import Registry
from tests.support.administration import KEY, make_project, make_user, open_registry, open_registry_at


async def test_everything_is_there_after_a_restart(registry_url: str) -> None:
    async with open_registry_at(registry_url) as registry:
        project = await make_project(registry)
        user = await make_user(registry, "anna", {project.id: ("publisher",)})
        await registry.topics.create(new_topic_id(), project.id, TopicName("T"))
        await registry.topics.set_access_list(project.id, TopicName("T"), ["anna"])
        topic = await registry.topics.find(project.id, TopicName("T"))

    async with open_registry_at(registry_url, ManualClock()) as registry:
        assert await registry.projects.find("P") == project
        assert await registry.topics.find(project.id, TopicName("T")) == topic
        found = await registry.users.by_name(user.name)
        assert found is not None
        assert found.token == user.token
        assert found.memberships[0].topics == ("T",)


async def test_the_folder_does_not_contain_the_text_of_any_token(tmp_path: Path) -> None:
    async with open_registry(tmp_path) as registry:
        first = await make_user(registry, "anna")
        second = await registry.users.refresh_token(first.id)
        assert second is not None

        tokens = [str(each.token).encode() for each in (first, second)]
        for path in tmp_path.iterdir():
            stored = path.read_bytes()
            for token in tokens:
                assert token not in stored, path.name
                assert bytes.fromhex(token.decode()) not in stored, path.name


async def test_another_key_is_refused(registry_url: str) -> None:
    async with open_registry_at(registry_url):
        pass

    with pytest.raises(Unusable, match="the token key is not the one"):
        await Registry.open(registry_url, bytes(32))


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "registry.db").write_bytes(b"these are not the rows you are looking for" * 100)

    with pytest.raises(Unusable, match=r"^the registry's database is not usable: file is not a database$"):
        await Registry.open(sqlite_url(str(tmp_path / "registry.db")), KEY)


async def test_any_folder_name_will_do(tmp_path: Path) -> None:
    folder = tmp_path / "a b?c#d%20é"
    folder.mkdir()

    async with open_registry(folder):
        assert (folder / "registry.db").exists()


def test_a_start_does_not_load_the_migration_library(tmp_path: Path) -> None:
    """It alone would take a third of the second a start may take."""
    script = f"""
import asyncio, sys
from ams.storage.database.database import sqlite_url
from ams.storage.registry.registry import Registry

async def start():
    registry = await Registry.open(sqlite_url({str(tmp_path / "registry.db")!r}), bytes(32))
    await registry.close()

asyncio.run(start())
sys.exit("alembic" in sys.modules)
"""
    for _ in ("a new database", "an old one"):
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


async def test_it_is_empty_until_there_is_a_user_or_a_topic(registry: Registry) -> None:
    assert await registry.is_empty()

    project = await registry.projects.create(ProjectName("P"), "", None)
    assert await registry.is_empty()

    await registry.topics.create(new_topic_id(), project.id, TopicName("T"))
    assert not await registry.is_empty()
