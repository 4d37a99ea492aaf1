import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from ams.app.backup.copying import SLICE, copy_file
from ams.app.backup.keeping import answering, keep
from ams.core.errors import Unusable
from ams.storage.folder import Folder
from ams.storage.log.embedded import Part
from tests.support.use_cases import UseCases, open_use_cases

HOUR = 3_600_000


async def test_the_socket_is_for_the_owner_only_and_goes_at_the_end(tmp_path: Path) -> None:
    async with open_use_cases(tmp_path) as use_cases, answering(str(tmp_path), use_cases.engines.log):
        assert (tmp_path / "control").stat().st_mode & 0o777 == 0o600

    assert not (tmp_path / "control").exists()


async def test_a_socket_left_by_a_killed_service_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "control"))
    async with open_use_cases(tmp_path) as use_cases, answering(str(tmp_path), use_cases.engines.log):
        (await asyncio.to_thread(keep, str(tmp_path))).close()


async def test_a_folder_may_lie_deeper_than_the_path_of_a_socket_is_long(tmp_path: Path) -> None:
    deep = tmp_path / ("a" * 100) / ("b" * 100)
    deep.mkdir(parents=True)
    async with open_use_cases(deep) as use_cases, answering(str(deep), use_cases.engines.log):
        (await asyncio.to_thread(keep, str(deep))).close()


async def sealed(use_cases: UseCases) -> None:
    """Publish, and let it become old enough to go."""
    await use_cases.publish(5)
    use_cases.engines.clock.advance(200 * HOUR)


async def test_files_are_kept_until_the_connection_ends(tmp_path: Path) -> None:
    async with open_use_cases(tmp_path) as use_cases, answering(str(tmp_path), use_cases.engines.log):
        await sealed(use_cases)
        kept = await asyncio.to_thread(keep, str(tmp_path))
        parts = await asyncio.to_thread(kept.parts)
        await use_cases.engines.log.retain()
        assert [os.path.exists(tmp_path / "log" / each.name) for each in parts] == [True] * len(parts)
        assert parts == [Part("7d/0000000000000001.log", parts[0].length)]

        kept.close()
        while list((tmp_path / "log").glob("*/*.log")):
            await use_cases.engines.log.retain()
            await asyncio.sleep(0.01)


async def test_an_unknown_question_is_told_what_there_is(tmp_path: Path) -> None:
    async with open_use_cases(tmp_path) as use_cases, answering(str(tmp_path), use_cases.engines.log):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "control"))
        writer.write(b"who are you\n")
        assert await reader.readline() == b'{"error": "ask keep or files"}\n'
        writer.close()


async def test_a_service_that_ends_meanwhile_is_noticed(tmp_path: Path) -> None:
    async with open_use_cases(tmp_path) as use_cases, answering(str(tmp_path), use_cases.engines.log):
        kept = await asyncio.to_thread(keep, str(tmp_path))

    with closing(kept), pytest.raises(Unusable, match="ended while it was copied; try again"):
        kept.confirm()


async def test_a_folder_that_can_hold_no_socket_serves_without_backups(tmp_path: Path) -> None:
    async with open_use_cases(tmp_path) as use_cases:
        (tmp_path / "control").mkdir()
        async with answering(str(tmp_path), use_cases.engines.log):
            assert await use_cases.publish(1) == 0


async def test_a_copy_that_says_nothing_is_given_up_with_a_warning_and_retention_goes_on(tmp_path: Path) -> None:
    async with (
        open_use_cases(tmp_path) as use_cases,
        answering(str(tmp_path), use_cases.engines.log, silent_seconds=0.1),
    ):
        await sealed(use_cases)
        with capture_logs() as logged:
            kept = await asyncio.to_thread(keep, str(tmp_path))
            while list((tmp_path / "log").glob("*/*.log")):
                await use_cases.engines.log.retain()
                await asyncio.sleep(0.01)

        with closing(kept), pytest.raises(Unusable, match=r"gave this backup up: nothing was copied for 0\.1 s"):
            await asyncio.to_thread(kept.confirm)
        assert [each["event"] for each in logged if each["log_level"] == "warning"] == [
            "backup.silent",
            "backup.given_up",
        ]


async def test_a_copy_that_takes_no_answers_is_given_up_too(tmp_path: Path) -> None:
    async with (
        open_use_cases(tmp_path) as use_cases,
        answering(str(tmp_path), use_cases.engines.log, silent_seconds=0.1),
    ):
        await sealed(use_cases)
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.connect(str(tmp_path / "control"))
            with contextlib.suppress(OSError):
                await asyncio.to_thread(deaf.sendall, b"keep\n" * 200_000)
            while list((tmp_path / "log").glob("*/*.log")):
                await use_cases.engines.log.retain()
                await asyncio.sleep(0.01)


async def test_a_copy_that_gets_on_says_so_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ams.app.backup.keeping.SAID_EVERY_SECONDS", 0.0)
    async with open_use_cases(tmp_path / "data") as use_cases, answering(str(tmp_path / "data"), use_cases.engines.log):
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


async def test_a_backup_whose_process_is_suspended_fails_and_says_why(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "ams-data").write_text("1\n")
    async with open_use_cases(data) as use_cases, answering(str(data), use_cases.engines.log, silent_seconds=5.0):
        await sealed(use_cases)
        taken = Folder.take(str(data))  # as a service does
        with (data / "large.pem").open("wb") as large:
            large.truncate(64 << 20)  # takes a while to copy, and no room
        with (
            capture_logs() as logged,
            subprocess.Popen(
                [sys.executable, "-m", "ams.cli.main", "backup", str(tmp_path / "b"), "--data", str(data)],
                stderr=subprocess.PIPE,
            ) as process,
        ):
            while not (tmp_path / "b.partial" / "large.pem").exists():
                assert process.poll() is None
                await asyncio.sleep(0.002)
            process.send_signal(signal.SIGSTOP)
            while not any(each["event"] == "backup.given_up" for each in logged):
                await asyncio.sleep(0.01)
            process.send_signal(signal.SIGCONT)
            _, said = await asyncio.to_thread(process.communicate)
        taken.release()

    assert process.returncode == 1
    assert b"gave this backup up: nothing was copied for 5 s, and retention cannot wait for ever; try again" in said
    assert not (tmp_path / "b").exists()
    assert not (tmp_path / "b.partial").exists()
