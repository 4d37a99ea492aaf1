import subprocess
import sys
from pathlib import Path

import pytest

from ams.core.clock import ManualClock
from ams.core.errors import Unusable
from ams.core.names import new_topic_id
from ams.storage.database.database import sqlite_url
from ams.storage.registry.registry import Registry
from tests.support.administration import KEY, make_project, make_user, open_registry, open_registry_at
from tests.support.plans import searched_through


async def test_everything_is_there_after_a_restart(registry_url: str) -> None:
    async with open_registry_at(registry_url) as registry:
        project = await make_project(registry)
        user = await make_user(registry, "anna", {project.id: ("publisher",)})
        await registry.topics.create(new_topic_id(), project.id, "T")
        await registry.topics.set_access_list(project.id, "T", ["anna"])
        topic = await registry.topics.find(project.id, "T")

    async with open_registry_at(registry_url, ManualClock()) as registry:
        assert await registry.projects.find("P") == project
        assert await registry.topics.find(project.id, "T") == topic
        found = await registry.users.by_name(user.name)
        assert found is not None
        assert found.token == user.token
        assert found.memberships[0].topics == ("T",)


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "registry.db").write_bytes(b"these are not the rows you are looking for" * 100)

    with pytest.raises(Unusable, match=r"^the registry's database is not usable: file is not a database$"):
        await Registry.open(sqlite_url(str(tmp_path / "registry.db")), KEY)


async def test_any_folder_name_will_do(tmp_path: Path) -> None:
    folder = tmp_path / "a b?c#d%20é"
    folder.mkdir()

    async with open_registry(folder):
        assert (folder / "registry.db").exists()


@pytest.mark.long
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

    project = await registry.projects.create("P", "", None)
    assert await registry.is_empty()

    await registry.topics.create(new_topic_id(), project.id, "T")
    assert not await registry.is_empty()


async def test_whose_a_token_or_an_identity_is_needs_an_index_only_however_many_there_are(registry: Registry) -> None:
    anna, ci = await make_user(registry, "anna"), "ci"
    _, text = await registry.named_tokens.create(anna.id, ci, expires_on=None, rights=None, created_by=None)
    await registry.bindings.create(anna.id, "b", "https://i.example", "s", created_by=None)

    for ask in (
        lambda: registry.users.principal(text),
        lambda: registry.users.principal("nobody's"),
        lambda: registry.named_tokens.find(anna.id, ci),
        lambda: registry.bindings.principal("https://i.example", "s"),
        lambda: registry.bindings.of(anna.id),
    ):
        assert await searched_through(registry, ask) == []
