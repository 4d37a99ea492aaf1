import contextlib
import errno
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from ams.core.clock import DAY, ManualClock
from ams.core.errors import RegistryUnavailable
from ams.core.supervisor import Supervisor
from ams.storage.audit.records import AuditRecords
from ams.storage.audit.trail import FileTrail, LineFile, events_in
from ams.storage.free_space import FreeSpace
from tests.storage.audit.events import event, kept
from tests.support.waiting import wait_until_async


@contextlib.asynccontextmanager
async def started(path: str, records: AuditRecords) -> AsyncIterator[FileTrail]:
    trail = FileTrail(path, records, ManualClock())
    await trail.start(Supervisor())
    yield trail
    await trail.close()


async def test_a_line_is_there_when_record_returns_and_the_row_soon(path: str, records: AuditRecords) -> None:
    one = event()
    async with started(path, records) as trail:
        await trail.record(one)
        assert list(events_in(path)) == [one]

    assert await kept(records) == [one]


class Reserve(FreeSpace):
    """A full disk with a reserve, perhaps."""

    def __init__(self, *, is_there: bool) -> None:
        self.is_there = is_there

    def release_reserve(self) -> bool:
        there, self.is_there = self.is_there, False
        return there


@pytest.mark.parametrize(("code", "is_there", "written"), [
    (errno.ENOSPC, True, True), (errno.EDQUOT, True, True), (errno.ENOSPC, False, False), (errno.EIO, True, False),
])  # fmt: skip
async def test_on_a_full_disk_a_line_gets_the_reserve(
    path: str, records: AuditRecords, monkeypatch: pytest.MonkeyPatch, code: int, is_there: bool, written: bool
) -> None:
    space = Reserve(is_there=is_there)
    trail, write = FileTrail(path, records, ManualClock(), space=space), os.write

    def on_full_disk(handle: int, line: bytes) -> int:
        if space.is_there or not is_there:
            raise OSError(code, os.strerror(code))
        return write(handle, line)

    monkeypatch.setattr(os, "write", on_full_disk)
    await trail.record(event())
    monkeypatch.undo()
    assert (trail.failures, len(list(events_in(path)))) == ((0, 1) if written else (1, 0))
    await trail.close()


@pytest.mark.long
async def test_lines_that_a_crash_left_are_brought_in_at_the_next_start(path: str, records: AuditRecords) -> None:
    """A process is killed between the line and the row."""
    before = [event(each) for each in range(700)]
    await records.add(before[:300])
    lines = LineFile(path)
    for each in before:
        lines.append(each)
    script = (
        "import os, sys; from ams.storage.audit.trail import LineFile; from tests.storage.audit.events import event\n"
        "LineFile(sys.argv[1]).append(event(1000, id='killed')); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", script, path], check=False).returncode == -9
    with Path(path).open("ab") as file:
        file.write(b'{"time":"2023-11-14T22:1')

    async with started(path, records) as trail:
        await trail.record(event(2000, id="after"))

    assert [each.id for each in await kept(records)][:2] == ["after", "killed"]
    assert len(await kept(records)) == 702


async def test_lines_of_a_file_turned_over_after_a_crash_are_brought_in(path: str, records: AuditRecords) -> None:
    lines, events = LineFile(path), [event(each) for each in range(3)]
    lines.append(events[0])
    lines.append(events[1])
    await records.add(events[:1])
    os.rename(path, path + ".1")
    lines.append(events[2])
    lines.close()

    async with started(path, records):
        pass

    assert await kept(records) == events[::-1]


async def test_a_database_that_is_away_gets_everything_when_it_is_back(path: str, records: AuditRecords) -> None:
    class Away(AuditRecords):
        def __init__(self) -> None:
            self.is_away = True

        async def add(self, events: object) -> None:
            if self.is_away:
                raise RegistryUnavailable
            await records.add(events)  # type: ignore[arg-type]  # passed on as it is

        async def holds(self, events: object) -> set[str]:
            raise RegistryUnavailable

    away = Away()
    one, two = event(1), event(2)
    async with started(path, away) as trail:
        await trail.record(one)
        with contextlib.suppress(RegistryUnavailable):
            await trail.bring_in()
        os.rename(path, path + ".1")
        await trail.record(two)
        away.is_away = False

    assert await kept(records) == [two, one]


async def test_a_file_that_cannot_be_written_is_told_and_counted(tmp_path: Path, records: AuditRecords) -> None:
    one = event()

    with capture_logs() as logs:
        async with started(str(tmp_path / "none" / "audit.jsonl"), records) as trail:
            await trail.record(one)

    assert trail.failures == 1
    assert "audit.not_written" in [each["event"] for each in logs]
    assert await kept(records) == [one]


async def test_old_events_leave_the_table_not_the_file(path: str, records: AuditRecords, clock: ManualClock) -> None:
    old, new = event(0), event(3 * DAY)
    clock.now = new.at
    trail = FileTrail(path, records, clock, days=2)
    await trail.record(old)
    await trail.record(new)
    await trail.bring_in()

    await trail.start(Supervisor())

    async def is_pruned() -> bool:
        return len(await kept(records)) == 1

    await wait_until_async(is_pruned)
    await trail.close()

    assert await kept(records) == [new]
    assert list(events_in(path)) == [old, new]


async def test_what_clients_write_is_cut_and_nothing_like_a_token_kept(path: str, records: AuditRecords) -> None:
    trail, token = FileTrail(path, records, ManualClock()), secrets.token_hex(32)
    await trail.record(event(resource=f"/users:{token}", actor="\ud800" * 70_000, reason=f"{token} is none"))
    await trail.close()

    [line] = Path(path).read_text().splitlines()
    assert token not in line
    assert len(line) < 1000
    assert await kept(records) == list(events_in(path))
