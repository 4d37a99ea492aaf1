"""Backups: copied from idle folders and from running services, and restored."""

import asyncio
import contextlib
import fcntl
import json
import os
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from ams.app.backup.files import SYNC_SLICE_BYTES, copy_file, restore
from ams.app.backup.live_copy import _copy, _moment, _source, take
from ams.app.backup.protocol import keep, serve_backups
from ams.app.maintenance import check_folder
from ams.core.clock import SystemClock
from ams.core.errors import Damaged, Unusable
from ams.core.messages import message
from ams.core.names import Offset, SubscriptionId, new_topic_id
from ams.core.supervisor import Supervisor
from ams.storage.cursors.base import NO_DEADLINE
from ams.storage.cursors.embedded import EmbeddedCursors
from ams.storage.folder import RESTORING, Folder
from ams.storage.log.embedded import EmbeddedLog
from tests.support.clock import ManualClock
from tests.support.engines import open_engines
from tests.support.loop_time import pass_loop_time
from tests.support.service import running_service
from tests.support.use_cases import UseCases, open_use_cases
from tests.support.waiting import PATIENCE_SECONDS, wait_until_async


@pytest.fixture(scope="module")
def original_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    (folder / "ams-data").write_text("1\n")
    (folder / "token.key").write_text("0" * 64)
    (folder / "admin.token").write_text("1" * 64)

    async def publish() -> None:
        async with open_use_cases(folder) as use_cases:
            await use_cases.publish(20)

    asyncio.run(publish())
    return folder


@pytest.fixture
def data(original_folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original_folder, tmp_path / "data")


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
    left = {"lock", "token.key.new", "log/reserve", "authn-reserve", "control"}  # drafts, locks and reserves stay
    for name in left:
        (data / name).write_text("x")
    made = take(str(data), str(tmp_path / "b"), clock=ManualClock())

    copied = files_of(tmp_path / "b")
    assert {each.name for each in made.files} == copied - {"ams-data", "backup.json"}
    assert copied & left == set()
    assert check_folder(str(tmp_path / "b")).problems == []
    assert check_folder(str(tmp_path / "b")).log.messages == 20
    assert made.taken == "2023-11-14T22:13:20Z"
    assert made.token_key
    assert (tmp_path / "b" / "token.key").read_text() == "0" * 64
    places = [tmp_path / "b", *(tmp_path / "b").rglob("*")]
    assert {(each.is_dir(), each.stat().st_mode & 0o777) for each in places} == {(True, 0o700), (False, 0o600)}


def written_by_the_certificate_service(data: Path) -> "sqlite3.Connection":
    """Put a certificate service's files beside AMS's; its database is open, with everything still in the WAL."""
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


async def copied_while(tmp_path: Path, change: Coroutine[Any, Any, object]) -> None:
    """Copy a folder whose service makes a change between the start of the copy and its first file."""

    def copy() -> None:
        folder = Folder(str(tmp_path / "data"))
        with _source(folder) as source, _moment(folder, source, ManualClock()) as moment:
            asyncio.run_coroutine_threadsafe(change, loop).result(PATIENCE_SECONDS)
            _copy(folder, source, moment, str(tmp_path / "b"), with_key=True)

    loop = asyncio.get_running_loop()
    (tmp_path / "b").mkdir()
    await asyncio.to_thread(copy)


async def test_what_changes_while_files_are_copied_is_not_in_the_copy(tmp_path: Path) -> None:
    """The moment is fixed first: topics that a growing registry adds later would be missing from the log."""
    async with running_service(tmp_path / "data") as (run, _):
        projects = run.service.registry.projects
        await projects.create("EARLY", "", None)
        await copied_while(tmp_path, projects.create("LATE", "", None))

    async with running_service(tmp_path / "b") as (run, _):
        assert [each.name for each in await run.service.registry.projects.all()] == ["EARLY"]


async def test_no_cursor_of_a_copy_is_beyond_the_log_it_was_copied_with(tmp_path: Path) -> None:
    """Messages, acknowledgements and images stored after that moment are not in the copy."""
    subscription, topic = SubscriptionId("s"), new_topic_id()
    async with running_service(tmp_path / "data") as (run, _):
        log, cursors = run.service.embedded, run.service.cursors
        assert log is not None

        async def advance() -> None:
            await log.append(topic, [message("aGk=")])
            position = await cursors.position(subscription, topic)
            await cursors.hand_out(subscription, position.generation, Offset(1))
            await cursors.acknowledge(subscription, Offset(0), NO_DEADLINE)
            await log.journal.store_checkpoint()
            await log.retain()

        await log.create(topic)
        await cursors.create(subscription, topic, Offset(0))
        await log.journal.store_checkpoint()
        await copied_while(tmp_path, advance())
        assert (await cursors.position(subscription, topic)).offset == 1

    log = await EmbeddedLog.open(str(tmp_path / "b" / "log"))
    cursors = await EmbeddedCursors.open(log.journal, {}, SystemClock(), Supervisor())
    assert (await log.bounds(topic)).end == 0
    assert (await cursors.places())[subscription].offset == 0
    await cursors.close()
    await log.close()


@pytest.mark.parametrize("target", ["data/b", "data", "there", "nowhere/b"])
def test_a_bad_target_is_refused_in_one_line(data: Path, tmp_path: Path, target: str) -> None:
    (tmp_path / "there").mkdir()

    with pytest.raises(Unusable) as refused:
        take(str(data), str(tmp_path / target))

    assert str(tmp_path) in refused.value.message
    assert "\n" not in refused.value.message
    assert sorted(os.listdir(tmp_path)) == ["data", "there"]


def test_a_folder_that_cannot_be_backed_up_is_refused(data: Path, original_folder: Path, tmp_path: Path) -> None:
    (data / "registry.db").unlink()
    Folder.take(str(tmp_path / "node")).release()
    for name in ("other", "authn"):
        (tmp_path / name).mkdir()
    (tmp_path / "authn" / "authn.db").touch()
    taken = Folder.take(str(shutil.copytree(original_folder, tmp_path / "taken")))

    for folder, said in (("data", r"registry\.db is missing: there is nothing to back up"),
                         ("node", "its service keeps them on Kafka"), ("other", "is not a data folder"),
                         ("authn", "the certificate service's alone: copy it while that is stopped; .*sqlite3"),
                         ("taken", "its service does not answer")):  # fmt: skip
        with pytest.raises(Unusable, match=said):
            take(str(tmp_path / folder), str(tmp_path / "b"))
    taken.release()
    assert sorted(os.listdir(tmp_path)) == ["authn", "data", "node", "other", "taken"]


def test_a_full_disk_leaves_nothing_behind(data: Path, tmp_path: Path) -> None:
    (data / "large.pem").write_bytes(bytes(4 << 20))
    with no_file_over(2 << 20), pytest.raises(Unusable, match="could not be written: .*; nothing is left of it"):
        take(str(data), str(tmp_path / "b"))
    assert sorted(os.listdir(tmp_path)) == ["data"]


def test_a_full_disk_is_told_before_the_copy(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ams.storage.files.Disk.free_bytes", lambda *_: 1000)
    with pytest.raises(Unusable, match="bytes are needed and 1,000 are free; nothing is left of it"):
        take(str(data), str(tmp_path / "b"))
    assert sorted(os.listdir(tmp_path)) == ["data"]


def test_what_a_killed_backup_left_is_replaced(data: Path, tmp_path: Path) -> None:
    (tmp_path / "b.partial" / "log").mkdir(parents=True)
    (tmp_path / "b.partial" / "log" / "junk").write_text("junk")
    (tmp_path / "b.partial" / "registry.db").write_text("half")

    take(str(data), str(tmp_path / "b"))

    _, report = restore(str(tmp_path / "b"), str(tmp_path / "new"))
    assert report.problems == []
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
    (segment,) = (tmp_path / "log").glob("7d/*.log")

    with pytest.raises(Unusable, match="ends at .* instead of 9999999"):
        copy_file(str(segment), str(tmp_path / "b"), "x.log", 9_999_999)


@pytest.fixture
def backup(data: Path, tmp_path: Path) -> Path:
    take(str(data), str(tmp_path / "b"))
    return tmp_path / "b"


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


async def test_a_restored_folder_goes_on_where_the_backup_was_taken(backup: Path, tmp_path: Path) -> None:
    _, report = restore(str(backup), str(tmp_path / "new"))

    assert report.problems == []
    assert report.log.messages == 20
    async with open_engines(tmp_path / "new") as engines:
        use_cases = UseCases(engines, await engines.caller())
        assert await use_cases.publish(1) == 20


def test_a_folder_that_holds_something_is_refused_and_left_alone(backup: Path, data: Path) -> None:
    before = sorted(os.listdir(data))
    with pytest.raises(Unusable, match="is not empty; name a new folder with --data"):
        restore(str(backup), str(data))
    assert sorted(os.listdir(data)) == before


def test_a_folder_in_use_is_refused(backup: Path, tmp_path: Path) -> None:
    taken = Folder.take(str(tmp_path / "new"))
    try:
        with pytest.raises(Unusable, match="in use by another process"):
            restore(str(backup), str(tmp_path / "new"))
    finally:
        taken.release()


@pytest.mark.parametrize(("spoil", "name", "said"), [
    (damage, "registry.db", "not what was backed up"), (damage, "log/cursors/*.img", "not what was backed up"),
    (damage, "token.key", "not what was backed up"), (os.unlink, "log/cursors/*.img", "No such file"),
])  # fmt: skip
def test_a_spoiled_backup_is_refused(backup: Path, tmp_path: Path, spoil: Callable[[Path], None], name: str, said: str):
    (path,) = backup.glob(name)
    spoil(path)

    with pytest.raises((Damaged, Unusable), match=said):
        restore(str(backup), str(tmp_path / "new"))
    assert os.listdir(tmp_path / "new") == [RESTORING]
    with pytest.raises(Unusable, match="holds a restore that was not finished; restore into it again, or remove it"):
        Folder.take(str(tmp_path / "new"))


def test_a_folder_without_a_whole_manifest_is_no_backup(backup: Path, data: Path, tmp_path: Path) -> None:
    (backup / "backup.json").write_text('{"format":1,')

    for folder, said in ((data, ""), (backup, " cannot be read")):
        with pytest.raises(Unusable, match=rf"is not a whole backup: backup\.json{said}"):
            restore(str(folder), str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("change", "said"), [
    ({"format": 2}, "upgrade it"), ({"layout": "2"}, "upgrade it"),
    *(({"files": [{"name": name, "bytes": 0, "sha256": ""}]}, r"backup\.json names")
      for name in ("../elsewhere", "/etc/elsewhere", "log/../../elsewhere")),
])  # fmt: skip
def test_a_newer_or_bad_manifest_is_refused(backup: Path, tmp_path: Path, change: dict[str, object], said: str) -> None:
    path = backup / "backup.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(Unusable, match=said):
        restore(str(backup), str(tmp_path / "new"))


def test_a_restore_is_done_again_over_what_another_left(backup: Path, data: Path, tmp_path: Path) -> None:
    damage(backup / "registry.db")
    with pytest.raises(Damaged):
        restore(str(backup), str(tmp_path / "new"))
    (tmp_path / "new" / "leftover").write_text("of one that was killed")
    take(str(data), str(tmp_path / "another"))

    restore(str(tmp_path / "another"), str(tmp_path / "new"))

    Folder.take(str(tmp_path / "new")).release()
    assert not {RESTORING, "leftover"} & set(os.listdir(tmp_path / "new"))


HOUR = 3_600_000


@contextlib.asynccontextmanager
async def open_with_backups(data: Path, **options: float) -> AsyncIterator[UseCases]:
    async with open_use_cases(data) as use_cases, serve_backups(str(data), use_cases.engines.log, **options):
        yield use_cases


async def test_the_socket_is_for_the_owner_only_and_goes_at_the_end(tmp_path: Path) -> None:
    async with open_with_backups(tmp_path):
        assert (tmp_path / "control").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "control").exists()


async def test_a_socket_left_by_a_killed_service_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "control"))
    async with open_with_backups(tmp_path):
        (await asyncio.to_thread(keep, str(tmp_path))).close()


async def test_a_folder_may_lie_deeper_than_the_path_of_a_socket_is_long(tmp_path: Path) -> None:
    deep = tmp_path / ("a" * 100) / ("b" * 100)
    deep.mkdir(parents=True)
    async with open_with_backups(deep):
        (await asyncio.to_thread(keep, str(deep))).close()


async def until_dropped(use_cases: UseCases, data: Path) -> None:
    async def is_dropped() -> bool:
        await use_cases.engines.log.retain()
        return not list((data / "log").glob("7d/*.log"))

    await wait_until_async(is_dropped)


async def publish_old_messages(use_cases: UseCases) -> None:
    await use_cases.publish(5)
    use_cases.engines.clock.advance(200 * HOUR)


async def test_files_are_kept_until_the_connection_ends(tmp_path: Path) -> None:
    async with open_with_backups(tmp_path) as use_cases:
        await publish_old_messages(use_cases)
        kept = await asyncio.to_thread(keep, str(tmp_path))
        parts = await asyncio.to_thread(kept.parts)
        await use_cases.engines.log.retain()
        assert [os.path.exists(tmp_path / "log" / each.name) for each in parts] == [True] * len(parts)
        assert [each.name for each in parts] == ["7d/0000000000000001.log", "cursors/0000000000000002.log"]

        kept.close()
        await until_dropped(use_cases, tmp_path)


async def test_a_service_that_ends_meanwhile_is_noticed(tmp_path: Path) -> None:
    async with open_with_backups(tmp_path):
        kept = await asyncio.to_thread(keep, str(tmp_path))
    with closing(kept), pytest.raises(Unusable, match="ended while it was copied; try again"):
        kept.confirm()


async def test_retention_goes_on_after_a_copy_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_with_backups(tmp_path, silent_seconds=60) as use_cases:
        await publish_old_messages(use_cases)
        with capture_logs() as logged:
            kept = await asyncio.to_thread(keep, str(tmp_path))
            pass_loop_time(monkeypatch, 30)
            await wait_until_async(lambda: "backup.silent" in [each["event"] for each in logged])
            pass_loop_time(monkeypatch, 30)
            await until_dropped(use_cases, tmp_path)

        with closing(kept), pytest.raises(Unusable, match=r"gave this backup up: nothing was copied for 60 s"):
            await asyncio.to_thread(kept.confirm)
        assert [each["event"] for each in logged if each["log_level"] == "warning"] == [
            "backup.silent", "backup.given_up",
        ]  # fmt: skip


@pytest.mark.long
async def test_a_backup_whose_process_is_suspended_fails_and_says_why(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "ams-data").write_text("1\n")
    command = [sys.executable, "-m", "ams.cli.main", "backup", str(tmp_path / "b"), "--data", str(data)]
    async with open_with_backups(data, silent_seconds=5.0) as use_cases:
        await publish_old_messages(use_cases)
        taken = Folder.take(str(data))  # as a service does
        with (data / "large.pem").open("wb") as large:
            large.truncate(64 << 20)  # takes a while to copy, and no room
        with capture_logs() as logged, subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            await wait_until_async((tmp_path / "b.partial" / "large.pem").exists)
            process.send_signal(signal.SIGSTOP)
            await wait_until_async(lambda: [each for each in logged if each["event"] == "backup.given_up"])
            process.send_signal(signal.SIGCONT)
            _, said = await asyncio.to_thread(process.communicate)
        taken.release()

    assert process.returncode == 1
    assert b"nothing was copied for 5 s, and retention cannot wait for ever; try again" in said
    assert sorted(os.listdir(tmp_path)) == ["data"]


async def test_a_copy_that_takes_no_answers_is_given_up_too(tmp_path: Path) -> None:
    async with open_with_backups(tmp_path, silent_seconds=0.1) as use_cases:
        await publish_old_messages(use_cases)
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.connect(str(tmp_path / "control"))
            with contextlib.suppress(OSError):
                await asyncio.to_thread(deaf.sendall, b"keep\n" * 200_000)
            await until_dropped(use_cases, tmp_path)


async def test_a_copy_that_gets_on_says_so_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ams.app.backup.protocol.SAID_EVERY_SECONDS", 0.0)
    async with open_with_backups(tmp_path / "data"):
        kept = await asyncio.to_thread(keep, str(tmp_path / "data"))
        asked: list[str] = []
        monkeypatch.setattr(kept, "_ask", asked.append)

        (tmp_path / "file").write_bytes(bytes(2 * SYNC_SLICE_BYTES + 1))
        copy_file(str(tmp_path / "file"), str(tmp_path), "copy", get_on=kept.get_on)
        kept.close()

    assert asked == ["keep"] * 3
