import contextlib
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from ams.core.clock import DAY, ManualClock
from ams.core.errors import RegistryUnavailable
from ams.core.supervisor import Supervisor
from ams.storage.audit.records import AuditRecords
from ams.storage.audit.trail import FileTrail, LineFile, events_in
from tests.storage.audit.events import event, kept


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "audit.jsonl")


async def test_a_line_is_there_when_record_returns_and_the_row_soon(path: str, records: AuditRecords) -> None:
    trail = FileTrail(path, records, ManualClock())
    await trail.start(Supervisor())
    one = event()

    await trail.record(one)
    assert list(events_in(path)) == [one]

    await trail.close()
    assert await kept(records) == [one]


async def test_a_name_of_any_length_keeps_no_other_event_from_the_table(path: str, records: AuditRecords) -> None:
    """Anybody can show a certificate with a subject of 100 kB; an index of PostgreSQL takes three."""
    trail = FileTrail(path, records, ManualClock())
    await trail.start(Supervisor())

    long = secrets.token_urlsafe(60_000)
    await trail.record(event(1, actor=long, resource=long, reason=long, address=long, request=long))
    await trail.record(event(2))
    await trail.close()

    assert [len(each.actor) for each in await kept(records)] == [len(event(2).actor), 500]
    assert len(Path(path).read_bytes()) < 4000


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

    trail = FileTrail(path, records, ManualClock())
    await trail.start(Supervisor())
    await trail.record(event(2000, id="after"))
    await trail.close()

    assert [each.id for each in await kept(records)][:2] == ["after", "killed"]
    assert len(await kept(records)) == 702


async def test_lines_of_a_file_that_was_turned_over_after_a_crash_are_brought_in(
    path: str, records: AuditRecords
) -> None:
    lines, events = LineFile(path), [event(each) for each in range(3)]
    lines.append(events[0])
    lines.append(events[1])
    await records.add(events[:1])
    os.rename(path, path + ".1")
    lines.append(events[2])
    lines.close()

    trail = FileTrail(path, records, ManualClock())
    await trail.start(Supervisor())
    await trail.close()

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
    trail = FileTrail(path, away, ManualClock())
    await trail.start(Supervisor())
    one, two = event(1), event(2)
    await trail.record(one)
    with contextlib.suppress(RegistryUnavailable):
        await trail.bring_in()
    os.rename(path, path + ".1")
    await trail.record(two)
    away.is_away = False

    await trail.close()

    assert await kept(records) == [two, one]


async def test_a_file_that_cannot_be_written_is_said_and_counted_and_the_table_has_the_event(
    tmp_path: Path, records: AuditRecords
) -> None:
    trail = FileTrail(str(tmp_path / "none" / "audit.jsonl"), records, ManualClock())
    one = event()

    with capture_logs() as logs:
        await trail.start(Supervisor())
        await trail.record(one)
        await trail.close()

    assert trail.failures == 1
    assert "audit.not_written" in [each["event"] for each in logs]
    assert await kept(records) == [one]


async def test_events_older_than_their_days_go_from_the_table_and_stay_in_the_file(
    path: str, records: AuditRecords, clock: ManualClock
) -> None:
    old, new = event(0), event(3 * DAY)
    clock.now = new.at
    trail = FileTrail(path, records, clock, days=2)
    await trail.record(old)
    await trail.record(new)
    await trail.bring_in()

    await trail.start(Supervisor())
    while len(await kept(records)) > 1:
        pass
    await trail.close()

    assert await kept(records) == [new]
    assert list(events_in(path)) == [old, new]


async def test_of_what_clients_write_no_more_is_kept_than_fits_and_nothing_like_a_token(
    path: str, records: AuditRecords
) -> None:
    trail, token = FileTrail(path, records, ManualClock()), secrets.token_hex(32)
    await trail.record(event(resource=f"/users:{token}", actor="\ud800" * 70_000, reason=f"{token} is none"))
    await trail.close()

    [line] = Path(path).read_text().splitlines()
    assert token not in line
    assert len(line) < 1000
    assert await kept(records) == list(events_in(path))
