import contextlib
import os
from pathlib import Path

import pytest

from ams.app.maintenance import rotate_key
from ams.app.wiring import service
from ams.core.errors import Damaged, Unusable
from ams.core.settings import Bytes, Settings
from ams.core.supervisor import Supervisor
from ams.storage.database.database import Database, sqlite_url
from ams.storage.files import Disk
from ams.storage.folder import Folder
from ams.storage.registry.tables import REGISTRY, users
from tests.support.administration import make_user

CHANGING = ("open", "write", "sync", "rename", "unlink", "sync_folder")
STEPS = 10  # changes of files that a rotation makes
KEY, OTHER = "ab" * 32, "cd" * 32


class ProcessKilled(BaseException):
    """The process is gone."""


class MortalDisk(Disk):
    """A disk under a process that is killed before its n-th change of a file."""

    def __init__(self, changes: int) -> None:
        self.changes = changes

    def __getattribute__(self, name: str) -> object:
        if name in CHANGING:
            if self.changes == 0:
                raise ProcessKilled
            self.changes -= 1
        return super().__getattribute__(name)


def settings(data: Path, token_key: str = "") -> Settings:
    return Settings(
        data=str(data), token_key=token_key, min_free_bytes=Bytes(0), reserve_bytes=Bytes(0), push_enabled=False
    )


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    async with service(settings(tmp_path / "data"), Supervisor()):
        return tmp_path / "data"


async def is_let_in(data: Path, token: str, token_key: str = "") -> bool:
    """Return whether reopened engines find the owner of a token and can show the token."""
    async with service(settings(data, token_key), Supervisor()) as made:
        user = await made.registry.users.by_token(token)
        return user is not None and user.token == token


async def test_all_tokens_stay_valid_under_another_key(data: Path) -> None:
    before = (data / "token.key").read_text()
    async with service(settings(data), Supervisor()) as made:
        tokens = {(await make_user(made.registry, f"u{number}")).token for number in range(30)}
    tokens.add((data / "admin.token").read_text().strip())

    assert await rotate_key(str(data)) == (31, str(data / "token.key"))

    assert (data / "token.key").read_text() != before
    assert (data / "token.key").stat().st_mode & 0o777 == 0o600
    async with service(settings(data), Supervisor()) as made:
        found = [await made.registry.users.by_token(token) for token in tokens]
    assert {user.token for user in found if user} == tokens


async def test_another_key_has_deliveries_signed_by_another_one(data: Path) -> None:
    kids = set()
    for _ in range(2):
        async with service(settings(data), Supervisor()) as made:
            kids |= {key["kid"] for key in await made.push.identity.keys()}
        await rotate_key(str(data))

    assert len(kids) == 2


@pytest.mark.parametrize("changes", range(STEPS + 1))
async def test_killed_before_any_step_the_next_start_finds_the_right_key(data: Path, changes: int) -> None:
    token = (data / "admin.token").read_text().strip()

    with contextlib.suppress(ProcessKilled):
        await rotate_key(str(data), files=MortalDisk(changes))

    assert await is_let_in(data, token)
    assert not (data / "token.key.next").exists()


async def test_the_steps_above_are_all_there_are(data: Path) -> None:
    await rotate_key(str(data), files=MortalDisk(STEPS))
    with pytest.raises(ProcessKilled):
        await rotate_key(str(data), files=MortalDisk(STEPS - 1))


async def test_killed_before_the_last_step_another_rotation_begins_with_the_right_key(data: Path) -> None:
    token = (data / "admin.token").read_text().strip()
    with pytest.raises(ProcessKilled):
        await rotate_key(str(data), files=MortalDisk(STEPS - 2))
    assert (data / "token.key.next").exists()

    await rotate_key(str(data))

    assert await is_let_in(data, token)


async def test_a_key_of_neither_file_leaves_both_where_they_are(data: Path) -> None:
    (data / "token.key.next").write_text(KEY)
    (data / "token.key").write_text(OTHER)

    with pytest.raises(Unusable, match="the token key is not the one"):
        async with service(settings(data), Supervisor()):
            pass
    assert {"token.key", "token.key.next"} <= set(os.listdir(data))


async def test_a_key_that_is_a_setting_is_changed_in_one_transaction(tmp_path: Path) -> None:
    async with service(settings(tmp_path / "data", KEY), Supervisor()):
        token = (tmp_path / "data" / "admin.token").read_text().strip()

    with pytest.raises(Unusable, match="give the new one as AMS_NEW_TOKEN_KEY"):
        await rotate_key(str(tmp_path / "data"), token_key=KEY)
    assert await rotate_key(str(tmp_path / "data"), token_key=KEY, new_token_key=OTHER) == (1, "")

    assert await is_let_in(tmp_path / "data", token, token_key=OTHER)
    with pytest.raises(Unusable, match="the token key is not the one"):
        await rotate_key(str(tmp_path / "data"), token_key=KEY, new_token_key=OTHER)
    with pytest.raises(Unusable, match="if the key is a setting, give AMS_TOKEN_KEY and AMS_NEW_TOKEN_KEY"):
        await rotate_key(str(tmp_path / "data"))


async def test_a_token_that_cannot_be_read_changes_nothing(data: Path) -> None:
    before = (data / "token.key").read_text()
    url = sqlite_url(str(data / "registry.db"))
    database = Database(url, REGISTRY)
    await database.write(lambda connection: connection.execute(users.update().values(token_sealed=b"x" * 40)))
    await database.close()

    with pytest.raises(Damaged, match="the stored token of user"):
        await rotate_key(str(data))

    assert (data / "token.key").read_text() == before
    async with service(settings(data), Supervisor()):
        assert not (data / "token.key.next").exists()


async def test_a_folder_in_use_or_without_a_registry_is_refused(data: Path, tmp_path: Path) -> None:
    taken = Folder.take(str(data))
    with pytest.raises(Unusable, match="in use by another process"):
        await rotate_key(str(data))
    taken.release()
    with pytest.raises(Unusable, match="is not a data folder"):
        await rotate_key(str(tmp_path / "none"))
    (data / "registry.db").unlink()
    with pytest.raises(Unusable, match=r"registry\.db is missing"):
        await rotate_key(str(data))
