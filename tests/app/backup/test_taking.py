import asyncio
import fcntl
import os
import resource
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap64

from ams.app.backup import restore, take
from ams.app.backup.copying import copy_file
from ams.app.backup.taking import _copy, _moment, _source
from ams.app.maintenance import check_folder
from ams.core.clock import ManualClock
from ams.core.errors import Unusable
from ams.core.messages import message
from ams.core.names import Offset, SubscriptionId, new_topic_id
from ams.storage.cursors.base import NO_DEADLINE
from ams.storage.cursors.sqlite import SqliteCursors
from ams.storage.folder import Folder
from tests.support.service import running_service
from tests.support.use_cases import open_use_cases


def files_of(folder: Path) -> set[str]:
    return {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()}


@contextmanager
def no_file_over(size: int) -> Iterator[None]:
    """Let every write beyond a size fail, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_folder_at_rest_is_copied_whole_for_the_owner_only_and_is_a_data_folder(data: Path, tmp_path: Path) -> None:
    for name in ("lock", "token.key.new", "log/reserve", "control"):  # drafts, locks and the reserve stay
        (data / name).write_text("x")
    made = take(str(data), str(tmp_path / "b"), clock=ManualClock())

    copied = files_of(tmp_path / "b")
    assert {each.name for each in made.files} == copied - {"ams-data", "backup.json"}
    assert copied & {"lock", "token.key.new", "log/reserve", "control"} == set()
    assert check_folder(str(tmp_path / "b")).problems == []
    assert check_folder(str(tmp_path / "b")).log.messages == 20
    assert made.taken == "2023-11-14T22:13:20Z"
    assert made.token_key
    assert (tmp_path / "b" / "token.key").read_text() == "0" * 64
    places = [tmp_path / "b", *(tmp_path / "b").rglob("*")]
    assert {(each.is_dir(), each.stat().st_mode & 0o777) for each in places} == {(True, 0o700), (False, 0o600)}


def written_by_the_certificate_service(data: Path) -> "sqlite3.Connection":
    """Put a certificate service's files beside AMS's; its database is open, and all in it is in the WAL still."""
    for name in ("authn.key", "authn.seal", "authn.lock", "authn-audit.jsonl"):
        (data / name).write_text(name)
    (data / "authn-tls").mkdir()
    for name in ("ca.pem", "server.pem", "server.key"):
        (data / "authn-tls" / name).write_text(name)
    database = sqlite3.connect(data / "authn.db", isolation_level=None)
    database.executescript("PRAGMA journal_mode = WAL; CREATE TABLE bindings (name); INSERT INTO bindings VALUES ('j')")
    return database


def test_the_certificate_service_in_the_folder_is_copied_as_of_one_moment(data: Path, tmp_path: Path) -> None:
    with closing(written_by_the_certificate_service(data)):
        take(str(data), str(tmp_path / "b"))

    copied = {name for name in files_of(tmp_path / "b") if name.startswith("authn")}
    tls = {"authn-tls/ca.pem", "authn-tls/server.pem", "authn-tls/server.key"}
    assert copied == {"authn.db", "authn.key", "authn.seal", "authn-audit.jsonl", *tls}
    restore(str(tmp_path / "b"), str(tmp_path / "new"))
    with closing(sqlite3.connect(tmp_path / "new" / "authn.db")) as database:
        assert database.execute("SELECT name FROM bindings").fetchall() == [("j",)]


def test_without_the_key_nothing_in_a_copy_opens_anything(data: Path, tmp_path: Path) -> None:
    (data / "server.key").write_text("a private key")
    with closing(written_by_the_certificate_service(data)):
        made = take(str(data), str(tmp_path / "b"), with_key=False)

    assert not made.token_key
    keys = {"token.key", "admin.token", "server.key", "authn.key", "authn.seal", "authn-tls/server.key"}
    assert not files_of(tmp_path / "b") & keys
    assert "authn.db" in files_of(tmp_path / "b")


async def test_a_running_service_is_copied_as_it_is_and_goes_on(tmp_path: Path) -> None:
    async with running_service(tmp_path / "data") as (run, _):
        await asyncio.to_thread(take, str(tmp_path / "data"), str(tmp_path / "b"))

        assert check_folder(str(tmp_path / "b")).problems == []
        assert await run.service.registry.users.exist()

    async with running_service(tmp_path / "b") as (_, token):
        assert token == (tmp_path / "data" / "admin.token").read_text().strip()


async def test_what_is_done_of_a_parallel_subscription_is_copied_and_checked(data: Path, tmp_path: Path) -> None:
    subscription, topic = SubscriptionId("s"), new_topic_id()
    cursors = await SqliteCursors.open(str(data / "cursors.db"), ends={})
    await cursors.create(subscription, topic, Offset(2))
    await cursors.restore(subscription, topic, Offset(2), BitMap64([5, 6]))
    await cursors.close()

    take(str(data), str(tmp_path / "b"))
    restore(str(tmp_path / "b"), str(tmp_path / "new"))

    cursors = await SqliteCursors.open(str(tmp_path / "new" / "cursors.db"), ends={})
    assert list((await cursors.progress(subscription)).done) == [5, 6]
    await cursors.close()
    with closing(sqlite3.connect(tmp_path / "b" / "cursors.db")) as damaged:
        damaged.execute("UPDATE acks SET entry = x'01aabbccdd90'")
        damaged.commit()
    assert check_folder(str(tmp_path / "b")).problems == [
        f"{tmp_path}/b/cursors.db: of subscription s an entry that does not match its checksum"
    ]


async def test_what_changes_while_files_are_copied_is_not_in_the_copy(tmp_path: Path) -> None:
    """The moment comes first; a registry that grows meanwhile must not be in the copy with topics the log lacks."""
    folder = Folder.look(str(tmp_path / "data"))
    async with running_service(tmp_path / "data") as (run, _):
        projects = run.service.registry.projects

        def copy_slowly() -> None:
            with _source(folder) as source, _moment(folder, source, ManualClock()) as moment:
                asyncio.run_coroutine_threadsafe(projects.create("LATE", "", None), loop).result()
                _copy(folder, source, moment, str(tmp_path / "b"), with_key=True)

        loop = asyncio.get_running_loop()
        (tmp_path / "b").mkdir()
        await projects.create("EARLY", "", None)
        await asyncio.to_thread(copy_slowly)

    async with running_service(tmp_path / "b") as (run, _):
        assert [each.name for each in await run.service.registry.projects.all()] == ["EARLY"]


async def test_no_cursor_of_a_copy_is_beyond_the_log_it_was_copied_with(tmp_path: Path) -> None:
    """What is published and acknowledged between the looks at cursors and log must not be seen in the cursors only."""
    subscription, topic = SubscriptionId("s"), new_topic_id()
    folder = Folder.look(str(tmp_path / "data"))
    async with running_service(tmp_path / "data") as (run, _):
        log, cursors = run.service.log, run.service.cursors

        async def advance() -> None:
            await log.append(topic, [message("aGk=")])
            position = await cursors.position(subscription, topic)
            await cursors.hand_out(subscription, position.generation, Offset(1))
            await cursors.acknowledge(subscription, Offset(0), NO_DEADLINE)

        class Busy:
            """A source with whose log a message is published and acknowledged right after it was looked at."""

            def __init__(self, kept: Any) -> None:
                self.kept = kept

            def parts(self) -> Any:
                found = self.kept.parts()
                asyncio.run_coroutine_threadsafe(advance(), loop).result(10)
                return found

        def looked_at() -> object:
            with _source(folder) as source, _moment(folder, Busy(source), ManualClock()) as moment:  # type: ignore[arg-type]  # all that a moment asks
                return moment.cursors.scalar('SELECT "offset" FROM cursors')

        loop = asyncio.get_running_loop()
        await log.create(topic)
        await cursors.create(subscription, topic, Offset(0))
        assert await asyncio.to_thread(looked_at) == 0
        assert (await cursors.position(subscription, topic)).offset == 1


@pytest.mark.parametrize("target", ["data/b", "data", "there", "nowhere/b"])
def test_a_bad_target_is_refused_in_one_line(data: Path, tmp_path: Path, target: str) -> None:
    (tmp_path / "there").mkdir()

    with pytest.raises(Unusable) as refused:
        take(str(data), str(tmp_path / target))

    assert str(tmp_path) in refused.value.message
    assert "\n" not in refused.value.message
    assert sorted(os.listdir(tmp_path)) == ["data", "there"]


def test_a_folder_that_cannot_be_backed_up_is_refused(data: Path, made: Path, tmp_path: Path) -> None:
    (data / "registry.db").unlink()
    Folder.take(str(tmp_path / "node")).release()
    for name in ("other", "authn"):
        (tmp_path / name).mkdir()
    (tmp_path / "authn" / "authn.db").touch()
    taken = Folder.take(str(shutil.copytree(made, tmp_path / "taken")))

    for folder, said in (
        ("data", r"registry\.db is missing: there is nothing to back up"),
        ("node", "its service keeps them on Kafka"),
        ("other", "is not a data folder"),
        ("authn", "the certificate service's alone: copy it while that is stopped; .*sqlite3"),
        ("taken", "its service does not answer"),
    ):
        with pytest.raises(Unusable, match=said):
            take(str(tmp_path / folder), str(tmp_path / "b"))
    taken.release()
    assert sorted(os.listdir(tmp_path)) == ["authn", "data", "node", "other", "taken"]


def test_a_full_disk_leaves_nothing_behind(data: Path, tmp_path: Path) -> None:
    (data / "large.pem").write_bytes(bytes(4 << 20))

    with no_file_over(2 << 20), pytest.raises(Unusable, match="could not be written: .*; nothing is left of it"):
        take(str(data), str(tmp_path / "b"))

    assert sorted(os.listdir(tmp_path)) == ["data"]


def test_a_disk_without_room_is_told_before_a_copy(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ams.storage.files.Disk.free_bytes", lambda *_: 1000)

    with pytest.raises(Unusable, match="bytes are needed and 1,000 are free; nothing is left of it"):
        take(str(data), str(tmp_path / "b"))
    assert sorted(os.listdir(tmp_path)) == ["data"]


def test_what_a_killed_backup_left_is_replaced(data: Path, tmp_path: Path) -> None:
    (tmp_path / "b.partial" / "log").mkdir(parents=True)
    (tmp_path / "b.partial" / "log" / "junk").write_text("junk")
    (tmp_path / "b.partial" / "registry.db").write_text("half")

    take(str(data), str(tmp_path / "b"))

    assert restore(str(tmp_path / "b"), str(tmp_path / "new")).report.problems == []
    assert not (tmp_path / "b.partial").exists()


def test_a_draft_that_another_backup_is_writing_is_left_alone(data: Path, tmp_path: Path) -> None:
    (tmp_path / "b.partial").mkdir()
    (tmp_path / "b.partial" / "registry.db").write_text("half")
    lock = os.open(tmp_path / "b.partial", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)

    with pytest.raises(Unusable, match="another backup is writing to"):
        take(str(data), str(tmp_path / "b"))

    os.close(lock)
    assert (tmp_path / "b.partial" / "registry.db").read_text() == "half"


async def test_a_log_that_ends_too_early_is_not_backed_up_as_if_it_were_whole(tmp_path: Path) -> None:
    (tmp_path / "ams-data").write_text("1\n")

    async with open_use_cases(tmp_path) as use_cases:
        await use_cases.publish(5)
    (segment,) = (tmp_path / "log").glob("*/*.log")

    with pytest.raises(Unusable, match="ends at .* instead of 9999999"):
        copy_file(str(segment), str(tmp_path / "b"), "x.log", 9_999_999)
