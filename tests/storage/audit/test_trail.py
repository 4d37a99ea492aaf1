"""The audit trail: lines of a file that become rows of a table, and failed logins."""

import contextlib
import errno
import json
import os
import secrets
import stat
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from ams.core.clock import DAY, Milliseconds, publish_time
from ams.core.errors import OUTCOME_UNKNOWN, RegistryUnavailable
from ams.core.rate import LoginLimit
from ams.core.supervisor import Supervisor
from ams.http.audit import CUT_SHORT_REASON
from ams.storage.audit.event import FAILED, REFUSED, decode_event, encode_event, moment, result_of
from ams.storage.audit.records import AuditRecords
from ams.storage.audit.trail import (
    MAX_EVENTS_PER_ADDRESS,
    MAX_EVENTS_PER_USER,
    MAX_SOURCES,
    FailedLogins,
    LineFile,
    Trail,
    events_in,
    portions_from_the_end,
)
from ams.storage.files import Disk
from ams.storage.free_space import FreeSpace
from tests.storage.audit.events import NOON, event, list_events
from tests.support.clock import ManualClock
from tests.support.waiting import wait_until_async


@contextlib.asynccontextmanager
async def start_trail(path: str, records: AuditRecords) -> AsyncIterator[Trail]:
    trail = Trail(path, records, ManualClock())
    await trail.start(Supervisor())
    yield trail
    await trail.close()


async def test_a_line_is_there_when_record_returns_and_the_row_soon(path: str, records: AuditRecords) -> None:
    one = event()
    async with start_trail(path, records) as trail:
        await trail.record(one)
        assert list(events_in(path)) == [one]

    assert await list_events(records) == [one]


class ReserveSpace(FreeSpace):
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
    space = ReserveSpace(is_there=is_there)
    trail, write = Trail(path, records, ManualClock(), space=space), os.write

    def on_full_disk(handle: int, line: bytes) -> int:
        if space.is_there or not is_there:
            raise OSError(code, os.strerror(code))
        return write(handle, line)

    monkeypatch.setattr(os, "write", on_full_disk)
    await trail.record(event())
    monkeypatch.undo()
    assert (trail.failures, len(list(events_in(path)))) == ((0, 1) if written else (1, 0))
    await trail.close()


async def test_lines_that_a_crash_left_are_brought_in_at_the_next_start(path: str, records: AuditRecords) -> None:
    """It came between the lines and their rows, and within a line."""
    before = [event(each) for each in range(700)]
    await records.add(before[:300])
    lines = LineFile(path)
    for each in before:
        lines.append(each)
    with Path(path).open("ab") as file:
        file.write(b'{"time":"2023-11-14T22:1')

    async with start_trail(path, records) as trail:
        await trail.record(event(2000, id="after"))

    assert [each.id for each in await list_events(records)][:2] == ["after", before[-1].id]
    assert len(await list_events(records)) == 701


async def test_lines_of_a_file_turned_over_after_a_crash_are_brought_in(path: str, records: AuditRecords) -> None:
    lines, events = LineFile(path), [event(each) for each in range(3)]
    lines.append(events[0])
    lines.append(events[1])
    await records.add(events[:1])
    os.rename(path, path + ".1")
    lines.append(events[2])
    lines.close()

    async with start_trail(path, records):
        pass

    assert await list_events(records) == events[::-1]


async def test_a_database_that_is_away_gets_everything_when_it_is_back(path: str, records: AuditRecords) -> None:
    class AwayRecords(AuditRecords):
        def __init__(self) -> None:
            self.is_away = True

        async def add(self, events: object) -> None:
            if self.is_away:
                raise RegistryUnavailable
            await records.add(events)  # type: ignore[arg-type]  # passed on as it is

        async def holds(self, event: object) -> bool:
            raise RegistryUnavailable

    away = AwayRecords()
    one, two = event(1), event(2)
    async with start_trail(path, away) as trail:
        await trail.record(one)
        with contextlib.suppress(RegistryUnavailable):
            await trail.bring_in()
        os.rename(path, path + ".1")
        await trail.record(two)
        away.is_away = False

    assert await list_events(records) == [two, one]


async def test_a_file_that_cannot_be_written_is_told_and_counted(tmp_path: Path, records: AuditRecords) -> None:
    one = event()

    with capture_logs() as logs:
        async with start_trail(str(tmp_path / "none" / "audit.jsonl"), records) as trail:
            await trail.record(one)

    assert trail.failures == 1
    assert "audit.not_written" in [each["event"] for each in logs]
    assert await list_events(records) == [one]


async def test_old_events_leave_the_table_not_the_file(path: str, records: AuditRecords, clock: ManualClock) -> None:
    old, new = event(0), event(3 * DAY)
    clock.now = moment(new.time)
    trail = Trail(path, records, clock, days=2)
    await trail.record(old)
    await trail.record(new)
    await trail.bring_in()

    await trail.start(Supervisor())

    async def is_pruned() -> bool:
        return len(await list_events(records)) == 1

    await wait_until_async(is_pruned)
    await trail.close()

    assert await list_events(records) == [new]
    assert list(events_in(path)) == [old, new]


async def test_a_clock_that_leaps_ahead_removes_no_events(path: str, records: AuditRecords, clock: ManualClock) -> None:
    one = event(0)
    clock.now = moment(one.time)
    trail = Trail(path, records, clock, days=2)
    await trail.record(one)
    clock.step(8 * DAY)
    with capture_logs() as logs:
        await trail.start(Supervisor())
        await trail.bring_in()
        await trail._prune()
        await trail.close()
    clock.step(-8 * DAY)

    assert await list_events(records) == [one]
    assert [each["seconds"] for each in logs if each["event"] == "log.clock_leapt"] == [8 * DAY // 1000]


async def test_what_clients_write_is_cut_and_nothing_like_a_token_kept(path: str, records: AuditRecords) -> None:
    trail, token = Trail(path, records, ManualClock()), secrets.token_hex(32)
    await trail.record(event(resource=f"/users:{token}", actor="\ud800" * 70_000, reason=f"{token} is none"))
    await trail.close()

    [line] = Path(path).read_text().splitlines()
    assert token not in line
    assert len(line) < 1000
    assert await list_events(records) == list(events_in(path))


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@settings(max_examples=20, deadline=None)
@given(actor=TEXT, resource=TEXT, reason=TEXT, at=st.integers(-(10**9), 10**9), times=st.integers(1, 10**6))
def test_what_is_written_is_one_line_and_read_back(actor: str, resource: str, reason: str, at: int, times: int) -> None:
    one = event(at, actor=actor, resource=resource, reason=reason, times=times)
    assert (decode_event(encode_event(one)), encode_event(one).count(b"\n")) == (one, 1)


def test_times_are_those_of_rfc_3339() -> None:
    assert b'"time":"2023-11-14T22:13:20.005Z"' in encode_event(event(5))
    assert moment("2023-11-14T22:13:20.005Z") == moment("2023-11-14T23:13:20.005+01:00") == NOON + 5
    assert moment("2023-11-14") == moment("2023-11-14T00:00:00") == moment("2023-11-14T00:00:00Z")


def test_the_file_is_for_the_owner_only_and_after_a_torn_line_the_next_one_is_whole(path: str) -> None:
    first, second, third = event(), event(), event()
    LineFile(path).append(first)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with Path(path).open("ab") as file:
        file.write(encode_event(second)[:40])

    LineFile(path).append(third)

    assert list(events_in(path)) == [first, third]


@pytest.mark.parametrize("said", [
    {"code": 10**12}, {"code": -1}, {"times": 2**31}, {"times": 0}, {"id": "x" * 37},
    {"time": "yesterday"},
])  # fmt: skip
def test_a_line_that_somebody_else_wrote_and_no_table_takes_is_passed_by(path: str, said: dict[str, object]) -> None:
    """It would block all later lines."""
    one = event()
    Path(path).write_bytes(json.dumps(json.loads(encode_event(one)) | said).encode() + b"\n" + encode_event(one))
    assert list(events_in(path)) == [one]


def test_a_file_that_is_renamed_or_removed_is_left_to_itself(path: str) -> None:
    lines, events = LineFile(path), [event() for _ in range(4)]
    lines.append(events[0])
    os.rename(path, path + ".1")
    lines.append(events[1])
    os.unlink(path)
    lines.append(events[2])
    lines.append(events[3])

    assert (list(events_in(path + ".1")), list(events_in(path))) == (events[:1], events[2:])
    seen = []
    while found := lines.unread():
        seen += found
        lines.have_read()
    assert seen == events


@settings(max_examples=10, deadline=None)
@given(lengths=st.lists(st.integers(0, 40_000), max_size=8))
def test_portions_from_the_end_are_all_events(tmp_path_factory: pytest.TempPathFactory, lengths: list[int]) -> None:
    path = str(tmp_path_factory.mktemp("audit") / "audit.jsonl")
    lines, events = LineFile(path), [event(reason="x" * length) for length in lengths]
    for each in events:
        lines.append(each)
    lines.close()

    portions = list(portions_from_the_end(path))

    assert [each for _, portion in reversed(portions) for each in portion] == events
    assert [begin for begin, _ in portions][-1:] == [0][: len(portions)]


@dataclass
class Refusals:
    trail: Trail
    path: str

    async def login(self, address: str, times: int = 1, actor: str = "") -> None:
        logins = FailedLogins("ams", self.trail, LoginLimit(0, ManualClock()), ManualClock())
        for _ in range(times):
            await logins.record_failure(address, code=401, reason="Unauthorized", resource="/users", actor=actor)
        assert logins.attempts.failures == times

    def list_refusals(self) -> list[tuple[str, str, str, int, int]]:
        return [(each.actor, each.address, each.result, each.code, each.times) for each in events_in(self.path)]


@pytest.fixture
def refusals(path: str, records: AuditRecords, clock: ManualClock) -> Refusals:
    return Refusals(Trail(path, records, clock), path)


async def test_a20_the_others_of_a_minute_are_one_event_of_who_it_always_was(refusals: Refusals, clock: ManualClock):
    await refusals.login("192.0.2.1", MAX_EVENTS_PER_ADDRESS + 500, actor="CN=a")
    assert refusals.list_refusals() == [("CN=a", "192.0.2.1", "refused", 401, 1)] * MAX_EVENTS_PER_ADDRESS

    clock.advance(60_000)
    await refusals.login("192.0.2.2", MAX_EVENTS_PER_ADDRESS)
    for name in ("CN=b", "CN=c"):
        await refusals.login("192.0.2.2", actor=name)
    await refusals.trail.close()

    first, *rest = refusals.list_refusals()[MAX_EVENTS_PER_ADDRESS:]
    assert first == ("CN=a", "192.0.2.1", "refused", 401, 500)
    assert rest == [
        *[("", "192.0.2.2", "refused", 401, 1)] * MAX_EVENTS_PER_ADDRESS, ("", "192.0.2.2", "refused", 401, 2),
    ]  # fmt: skip


async def test_many_addresses_fill_neither_memory_nor_file(refusals: Refusals) -> None:
    for each in range(MAX_SOURCES + 50):
        await refusals.login(f"10.0.{each // 256}.{each % 256}")
    await refusals.trail.close()

    assert len(refusals.list_refusals()) == MAX_SOURCES + 1
    assert refusals.list_refusals()[-1] == ("", "", "refused", 401, 50)


async def test_what_a_user_is_refused_again_and_again_is_counted_and_what_is_done_is_not(refusals: Refusals) -> None:
    for code in (403, 500, 200):
        for each in range(MAX_EVENTS_PER_USER + 5):
            at = f"192.0.2.{each % 2}" if code == 500 else "192.0.2.9"
            await refusals.trail.record(event(code=code, result=result_of(code), address=at))
    await refusals.trail.close()

    told = Counter((result, times) for _, _, result, _, times in refusals.list_refusals())
    assert told == {(each, 1): MAX_EVENTS_PER_USER for each in ("refused", "failed")} | {
        ("done", 1): MAX_EVENTS_PER_USER + 5, ("refused", 5): 1, ("failed", 5): 1,
    }  # fmt: skip
    assert refusals.list_refusals()[-2:] == [("anna", "192.0.2.9", "refused", 403, 5), ("anna", "", "failed", 500, 5)]


async def test_a_change_that_may_be_done_is_an_event_and_no_action_hides_another(refusals: Refusals) -> None:
    for _ in range(MAX_EVENTS_PER_USER + 5):
        await refusals.trail.record(event(code=503, result=FAILED, reason=CUT_SHORT_REASON))
        await refusals.trail.record(event(code=500, result=FAILED, reason=OUTCOME_UNKNOWN))
        await refusals.trail.record(event(code=403, result=REFUSED))
    await refusals.trail.record(event(code=403, result=REFUSED, action="users:update"))
    assert Counter((each.code, each.action) for each in events_in(refusals.path)) == {
        (503, "topics:create"): MAX_EVENTS_PER_USER + 5, (500, "topics:create"): MAX_EVENTS_PER_USER + 5,
        (403, "topics:create"): MAX_EVENTS_PER_USER, (403, "users:update"): 1,
    }  # fmt: skip
    await refusals.trail.close()


class FullDisk(FreeSpace):
    def __init__(self) -> None:
        super().__init__(Disk(), "/", 0)
        self.is_full = True

    def growth_refusal(self) -> str | None:
        return "free space is below min_free_bytes" if self.is_full else None


async def test_a_full_disk_counts_repeated_changes(path: str, records: AuditRecords, clock: ManualClock) -> None:
    space = FullDisk()
    trail = Trail(path, records, clock, space=space)
    await trail.look_at_space()
    count = MAX_EVENTS_PER_USER
    for number in range(2_000):
        done = event(number, action="subscriptions:modifyOffset", resource=f"/projects/P/subscriptions/s{number % 7}")
        await trail.record(done)
        await trail.record(event(number, action="push:update", actor="bob", reason="by token ci"))
        await trail.record(event(number, action="topics:update", code=500, result=FAILED, reason=OUTCOME_UNKNOWN))
        await trail.record(event(number, action="topics:delete", resource=f"/projects/P/topics/t{number}"))
    assert len(list(events_in(path))) == 3 * count + 2_000, "what is deleted is an event each: there is only so much"
    clock.advance(60_000)
    await trail.record(event(60_000, action="topics:delete"))
    await trail.flush()

    summed = [each for each in events_in(path) if each.times > 1]
    since = publish_time(Milliseconds(NOON + count))
    found = [(each.action, each.actor, moment(each.time), each.times, each.resource, each.reason) for each in summed]
    assert found == [
        ("subscriptions:modifyOffset", "anna", NOON + 1_999, 2_000 - count, "/projects/P/subscriptions/",
         f"the first at {since}"),
        ("push:update", "bob", NOON + 1_999, 2_000 - count, "/projects/P/topics/t",
         f"the first at {since}; by token ci"),
        ("topics:update", "anna", NOON + 1_999, 2_000 - count, "/projects/P/topics/t",
         f"the first at {since}; {OUTCOME_UNKNOWN}"),
    ]  # fmt: skip
    assert sum(each.times for each in events_in(path)) == 4 * 2_000 + 1

    space.is_full = False
    await trail.look_at_space()
    for number in range(2 * count):
        await trail.record(event(70_000 + number))
    assert [each.times for each in events_in(path) if moment(each.time) >= NOON + 70_000] == [1] * 2 * count
    await trail.close()


async def test_the_disk_is_looked_at_while_there_are_events(path: str, records: AuditRecords) -> None:
    space = FullDisk()
    trail = Trail(path, records, ManualClock(), space=space)
    await trail.start(Supervisor())
    for _ in range(MAX_EVENTS_PER_USER + 1):
        await trail.record(event())
    assert len(list(events_in(path))) == MAX_EVENTS_PER_USER
    space.is_full = False

    async def is_written() -> bool:
        before = len(list(events_in(path)))
        await trail.record(event())
        return len(list(events_in(path))) > before

    await wait_until_async(is_written)
    await trail.close()
