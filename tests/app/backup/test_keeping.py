import asyncio
import contextlib
import os
import socket
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from ams.app.backup import take
from ams.app.backup.copying import SLICE, copy_file
from ams.app.backup.keeping import answering, keep
from ams.core.errors import Unusable
from ams.storage.folder import Folder
from ams.storage.log.embedded import Part
from tests.support.use_cases import UseCases, open_use_cases
from tests.support.waiting import wait_until_async

HOUR = 3_600_000


@contextlib.asynccontextmanager
async def answered(data: Path, **options: float) -> AsyncIterator[UseCases]:
    """Open the engines in a folder, and answer those who copy it."""
    async with open_use_cases(data) as use_cases, answering(str(data), use_cases.engines.log, **options):
        yield use_cases


async def test_the_socket_is_for_the_owner_only_and_goes_at_the_end(tmp_path: Path) -> None:
    async with answered(tmp_path):
        assert (tmp_path / "control").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "control").exists()


async def test_a_socket_left_by_a_killed_service_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "control"))
    async with answered(tmp_path):
        (await asyncio.to_thread(keep, str(tmp_path))).close()


async def test_a_folder_may_lie_deeper_than_the_path_of_a_socket_is_long(tmp_path: Path) -> None:
    deep = tmp_path / ("a" * 100) / ("b" * 100)
    deep.mkdir(parents=True)
    async with answered(deep):
        (await asyncio.to_thread(keep, str(deep))).close()


async def until_dropped(use_cases: UseCases, data: Path) -> None:
    """Let retention run until no segment is kept."""

    async def is_dropped() -> bool:
        await use_cases.engines.log.retain()
        return not list((data / "log").glob("*/*.log"))

    await wait_until_async(is_dropped)


async def sealed(use_cases: UseCases) -> None:
    """Publish, and let it become old enough to go."""
    await use_cases.publish(5)
    use_cases.engines.clock.advance(200 * HOUR)


async def test_files_are_kept_until_the_connection_ends(tmp_path: Path) -> None:
    async with answered(tmp_path) as use_cases:
        await sealed(use_cases)
        kept = await asyncio.to_thread(keep, str(tmp_path))
        parts = await asyncio.to_thread(kept.parts)
        await use_cases.engines.log.retain()
        assert [os.path.exists(tmp_path / "log" / each.name) for each in parts] == [True] * len(parts)
        assert parts == [Part("7d/0000000000000001.log", parts[0].length)]

        kept.close()
        await until_dropped(use_cases, tmp_path)


async def test_an_unknown_question_is_told_what_there_is(tmp_path: Path) -> None:
    async with answered(tmp_path):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "control"))
        writer.write(b"who are you\n")
        assert await reader.readline() == b'{"error": "ask keep or files"}\n'
        writer.close()


async def test_a_service_that_ends_meanwhile_is_noticed(tmp_path: Path) -> None:
    async with answered(tmp_path):
        kept = await asyncio.to_thread(keep, str(tmp_path))

    with closing(kept), pytest.raises(Unusable, match="ended while it was copied; try again"):
        kept.confirm()


async def test_a_folder_that_can_hold_no_socket_serves_without_backups(tmp_path: Path) -> None:
    async with open_use_cases(tmp_path) as use_cases:
        (tmp_path / "control").mkdir()
        async with answering(str(tmp_path), use_cases.engines.log):
            assert await use_cases.publish(1) == 0


async def test_a_copy_that_says_nothing_is_given_up_with_a_warning_and_retention_goes_on(tmp_path: Path) -> None:
    async with answered(tmp_path, silent_seconds=0.1) as use_cases:
        await sealed(use_cases)
        with capture_logs() as logged:
            kept = await asyncio.to_thread(keep, str(tmp_path))
            await until_dropped(use_cases, tmp_path)

        with closing(kept), pytest.raises(Unusable, match=r"gave this backup up: nothing was copied for 0\.1 s"):
            await asyncio.to_thread(kept.confirm)
        assert [each["event"] for each in logged if each["log_level"] == "warning"] == [
            "backup.silent",
            "backup.given_up",
        ]


async def test_a_copy_that_takes_no_answers_is_given_up_too(tmp_path: Path) -> None:
    async with answered(tmp_path, silent_seconds=0.1) as use_cases:
        await sealed(use_cases)
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.connect(str(tmp_path / "control"))
            with contextlib.suppress(OSError):
                await asyncio.to_thread(deaf.sendall, b"keep\n" * 200_000)
            await until_dropped(use_cases, tmp_path)


async def test_a_copy_that_gets_on_says_so_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ams.app.backup.keeping.SAID_EVERY_SECONDS", 0.0)
    async with answered(tmp_path / "data"):
        kept = await asyncio.to_thread(keep, str(tmp_path / "data"))
        asked: list[str] = []
        monkeypatch.setattr(kept, "_ask", asked.append)

        (tmp_path / "file").write_bytes(bytes(2 * SLICE + 1))
        copy_file(str(tmp_path / "file"), str(tmp_path), "copy", get_on=kept.get_on)
        kept.close()

    assert asked == ["keep"] * 3


async def test_how_long_a_copy_has_kept_files_is_known_while_it_lasts(tmp_path: Path) -> None:
    async with open_use_cases(tmp_path) as use_cases:
        log = use_cases.engines.log
        assert log.kept_for() is None
        async with log.kept():
            use_cases.engines.clock.advance(HOUR)
            async with log.kept():
                assert log.kept_for() == HOUR
        assert log.kept_for() is None


async def test_a_backup_that_stands_still_for_too_long_fails_and_says_why(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "ams-data").write_text("1\n")
    async with answered(data, silent_seconds=0.1):
        taken = Folder.take(str(data))  # as a service does
        with capture_logs() as logged, closing(sqlite3.connect(data / "registry.db", isolation_level=None)) as slow:
            slow.execute("BEGIN IMMEDIATE")  # copying waits until it ends
            backup = asyncio.create_task(asyncio.to_thread(take, str(data), str(tmp_path / "b")))
            await wait_until_async(lambda: any(each["event"] == "backup.given_up" for each in logged))
            slow.execute("ROLLBACK")
            with pytest.raises(Unusable, match=r"gave this backup up: nothing was copied for 0\.1 s"):
                await backup
        taken.release()

    assert sorted(os.listdir(tmp_path)) == ["data"]
