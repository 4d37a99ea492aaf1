"""The audit trail: services record events and failed logins here.

`record` appends a line to `audit.jsonl` (mode 0600) in the data folder before it returns. A line is written by one call
with its newline, so only the last line can be truncated by a crash or a full disk; the next event begins on a new line.
Log rotation renames the file, and the next event creates a new one. A background task copies the lines in order and in
batches to the table, which is always a prefix of the file. So a start searches back from the end of the file for a line
that the table has, and adds the rest.

Refusals and failures cannot fill the file. The first few per minute and user, or per address for unknown users such as
failed logins, are an event each. The rest of the minute is one event with a count. While the disk is nearly full,
successful changes are aggregated too, except deletions, whose number is limited by the things to delete.
"""

import asyncio
import contextlib
import errno
import itertools
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import structlog
from msgspec.structs import replace

from ams.core.clock import DAY, Clock, Milliseconds
from ams.core.errors import OUTCOME_UNKNOWN, AmsError
from ams.core.rate import LoginLimit
from ams.core.retention_clock import RetentionClock
from ams.core.supervisor import Supervisor, Ticker
from ams.storage.audit.event import DONE, FAILED, LOGIN, AuditEvent, decode_event, encode_event, new_event, sanitize
from ams.storage.audit.records import AuditRecords
from ams.storage.free_space import UNLIMITED, FreeSpace

BATCH_SECONDS = 1.0  # minimum interval between writes to the table
PRUNE_SECONDS = 3600.0
CLOSE_SECONDS = 2.0  # a stop waits so long for the database; the next start adds the rest
TABLE, PRUNING, REPEATS = "audit table", "pruning of the audit table", "repeated refusals"
MAX_UNWRITTEN_EVENTS = 1000  # kept in memory for the table while the file cannot be written
DOUBTFUL_REASON = re.compile(rf"{OUTCOME_UNKNOWN}|[\w ]+; it may have been carried out")  # the change may be done
MINUTE = 60_000  # milliseconds
MAX_EVENTS_PER_ADDRESS = 10  # individual events of failed logins per address and minute
MAX_EVENTS_PER_USER = 30  # individual events of refusals, and of failures, per user, action and minute
DELETION = ":delete"  # suffix of actions that delete
MAX_SOURCES = 1000  # sources and actions counted separately per minute; all others share one event per action

logger = structlog.get_logger("ams.audit")


class Trail:
    """File of events, and the table that is filled from it.

    The table keeps events for `days` (0: no limit) by `retention_clock` (None: its own). On a full disk the reserve of
    `space` is released and the line is written again.
    """

    def __init__(
        self,
        path: str,
        records: AuditRecords,
        clock: Clock,
        *,
        days: int = 0,
        space: FreeSpace = UNLIMITED,
        retention_clock: RetentionClock | None = None,
    ) -> None:
        self._space, self._path = space, path
        self._lines = LineFile(path)
        self._records, self._clock, self._days = records, clock, days
        self._retention_clock = retention_clock or RetentionClock(clock)
        self._news = asyncio.Event()
        self._unwritten: deque[AuditEvent] = deque(maxlen=MAX_UNWRITTEN_EVENTS)
        self._following: asyncio.Task[None] | None = None
        self._pruning = Ticker(PRUNING, PRUNE_SECONDS, self._prune, partial(logger.warning, "audit.not_pruned"))
        self._by_address = _Repeats("address", MAX_EVENTS_PER_ADDRESS)
        self._by_user = _Repeats("actor", MAX_EVENTS_PER_USER)
        self._changes = _Repeats("actor", MAX_EVENTS_PER_USER, are_changes=True)
        self._is_disk_full = False  # growth is refused
        self._minute_began = clock.monotonic()
        self._minutes = Ticker(REPEATS, MINUTE / 1000, self._flush_if_over)
        self.failures = 0  # events whose line could not be written

    async def start(self, supervisor: Supervisor) -> None:
        """Start to copy events to the table, first those of earlier runs."""
        try:
            position = await self._find_in_table(self._path)
            if position == 0:
                await self._copy_rotated_file()
            self._lines.open(position)
        except OSError as error:
            await logger.aerror("audit.file_failed", path=self._path, reason=error.strerror)
        self._news.set()
        await self.look_at_space()
        self._following = supervisor.task(TABLE, self._follow(supervisor))
        await self._minutes.start(supervisor)
        if self._days:
            self._pruning.soon()
            await self._pruning.start(supervisor)

    async def record(self, event: AuditEvent) -> None:
        """Record an event: its line is in the file on return. Never raises; failures are logged.

        Repeated refusals and failures of a user or address are only counted; on a nearly full disk also changes.
        """
        event = sanitize(event)
        repeats = self._repeats_of(event)
        if repeats is not None:
            await self._flush_if_over()
            if not repeats.is_first(event):
                self._news.set()  # to check the disk
                return
        await self._write(event)

    async def flush(self) -> None:
        """Record the counts of this minute and start a new minute."""
        self._minute_began = self._clock.monotonic()
        for event in (*self._by_address.end(), *self._by_user.end(), *self._changes.end()):
            await self._write(event)

    async def look_at_space(self) -> None:
        """Update whether growth is refused; called between events, so that no event waits for it."""
        self._is_disk_full = await asyncio.to_thread(self._space.growth_refusal) is not None

    def _repeats_of(self, event: AuditEvent) -> "_Repeats | None":
        """Return the counter for an event; None: it is always written."""
        if event.result == DONE or (event.result == FAILED and DOUBTFUL_REASON.fullmatch(event.reason)):
            return self._changes if self._is_disk_full and not event.action.endswith(DELETION) else None
        return self._by_user if event.actor and event.action != LOGIN else self._by_address

    async def _flush_if_over(self) -> None:
        if self._clock.monotonic() - self._minute_began >= MINUTE:
            await self.flush()

    async def _write(self, event: AuditEvent) -> None:
        try:
            try:
                self._lines.append(event)
            except OSError as error:  # errno is None after a partial write
                if error.errno not in (None, errno.ENOSPC, errno.EDQUOT) or not self._space.release_reserve():
                    raise
                self._lines.append(event)
        except OSError as error:
            self.failures += 1
            self._unwritten.append(event)
            await logger.aerror("audit.not_written", path=self._path, reason=error.strerror or str(error), id=event.id)
        self._news.set()

    async def close(self) -> None:
        """Copy the remaining events, if the database answers soon, and close the file."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait((self._following,))
        await self._pruning.close()
        await self._minutes.close()
        await self.flush()
        with contextlib.suppress(TimeoutError, AmsError, OSError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.bring_in()
        self._lines.close()

    async def bring_in(self) -> None:
        """Copy all new events to the table. Raises `RegistryUnavailable` and `OSError`."""
        handle = self._lines.duplicate()
        if handle is not None:
            await asyncio.to_thread(_sync_and_close, handle)
        while events := self._lines.unread():
            await self._records.add(events)
            self._lines.have_read()
        while self._unwritten:
            waiting = list(self._unwritten)
            await self._records.add(waiting)
            added = {event.id for event in waiting}  # meanwhile the oldest may have been dropped
            self._unwritten = deque((each for each in self._unwritten if each.id not in added), MAX_UNWRITTEN_EVENTS)

    async def _follow(self, supervisor: Supervisor) -> None:
        is_behind = False
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self.look_at_space()
                await self.bring_in()
                is_behind = False
            except (AmsError, OSError) as error:
                if not is_behind:  # log it once
                    await logger.awarning("audit.table_behind", reason=str(error))
                is_behind = True
                self._news.set()
            except Exception:  # a defect must not stop the copying
                supervisor.log_failure(TABLE)
                self._news.set()
            await asyncio.sleep(BATCH_SECONDS)

    async def _prune(self) -> None:
        until = Milliseconds(max(self._retention_clock.wall() - self._days * DAY, 0))
        gone = await self._records.prune(until, self._clock.wall())
        if gone:
            await logger.ainfo("audit.pruned", events=gone, older_than_days=self._days)

    async def _copy_rotated_file(self) -> None:
        path = f"{self._path}.1"  # as logrotate names it
        if not await asyncio.to_thread(os.path.isfile, path):
            return
        try:
            position = await self._find_in_table(path)
            before = LineFile(path)
            before.open(position)
            while events := before.unread():
                await self._records.add(events)
                before.have_read()
            before.close()
        except (AmsError, OSError) as error:
            await logger.aerror("audit.file_failed", path=path, reason=str(error))

    async def _find_in_table(self, path: str) -> int:
        """Return the start of the last portion whose first event is in the table, or 0."""
        with contextlib.suppress(AmsError):
            for position, events in portions_from_the_end(path):
                if events and await self._records.holds(events[0]):
                    return position
        return 0  # add the whole file again; existing events are skipped


def _sync_and_close(handle: int) -> None:
    try:
        os.fdatasync(handle)
    finally:
        os.close(handle)


NAME = "audit.jsonl"
BLOCK_BYTES = 64 * 2**10  # per read
MAX_LINES_PER_READ = 500


class LineFile:
    """Appends events to the file, and reads them from a position."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle: int | None = None
        self._is_torn = False
        self._unread: deque[int] = deque()  # files to read, oldest first; the last one is written to
        self._position = self._ahead = 0  # in the oldest one: of the next line, and after the lines last returned

    def append(self, event: AuditEvent) -> None:
        """Append the line of an event. Raises `OSError`; readers skip a partial line."""
        try:
            is_open = self._handle is not None and os.path.samestat(os.stat(self._path), os.fstat(self._handle))
        except FileNotFoundError:  # log rotation renamed it
            is_open = False
        if not is_open:
            self.open()
        assert self._handle is not None
        line = (b"\n" if self._is_torn else b"") + encode_event(event)
        self._is_torn = True
        self._is_torn = os.write(self._handle, line) < len(line)
        if self._is_torn:
            raise OSError("only a part of the line could be written")

    def open(self, position: int = 0) -> None:
        """Open or create the file, to be read from `position` on. Raises `OSError`."""
        handle = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        size = os.fstat(handle).st_size
        if self._handle is not None:
            os.close(self._handle)
        self._handle = handle
        self._is_torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        if not self._unread:
            self._position = position
        self._unread.append(os.dup(handle))

    def unread(self) -> list[AuditEvent]:
        """Return the next few hundred events, oldest first; empty if all were read. Raises `OSError`.

        The same events are returned until `have_read`. Includes events of a renamed or removed file.
        """
        while self._unread:
            events = self._read_oldest(self._unread[0])
            if events or len(self._unread) == 1:
                return events
            os.close(self._unread.popleft())
            self._position = 0
        return []

    def _read_oldest(self, handle: int) -> list[AuditEvent]:
        if os.fstat(handle).st_size < self._position:  # truncated by somebody
            self._position = 0
        self._ahead = self._position
        events: list[AuditEvent] = []
        for line, end in _whole_lines(handle, self._position):
            self._ahead = end
            events.extend(_event(line))
            if len(events) >= MAX_LINES_PER_READ:
                break
        return events

    def have_read(self) -> None:
        """Advance past the events last returned by `unread`."""
        self._position = self._ahead

    def duplicate(self) -> int | None:
        """Return a duplicate handle, for a thread to sync and close; None if the file is not open."""
        return None if self._handle is None else os.dup(self._handle)

    def close(self) -> None:
        """Close all files."""
        while self._unread:
            os.close(self._unread.pop())
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _whole_lines(handle: int, position: int) -> Iterator[tuple[bytes, int]]:
    rest = b""
    while block := os.pread(handle, BLOCK_BYTES, position + len(rest)):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            position += len(line) + 1
            yield line, position


def _event(line: bytes) -> list[AuditEvent]:
    try:
        return [decode_event(line)]
    except ValueError:  # a truncated line
        return []


def events_in(path: str) -> Iterator[AuditEvent]:
    """Yield the events of a file, oldest first. Raises `OSError`."""
    with open(path, "rb") as file:
        for line, _ in _whole_lines(file.fileno(), 0):
            yield from _event(line)


def portions_from_the_end(path: str) -> Iterator[tuple[int, Sequence[AuditEvent]]]:
    """Yield portions of a file from the end: start position and events. Yields nothing without a file."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        handle = file.fileno()
        end = os.fstat(handle).st_size
        while end > 0:
            begin = max(end - BLOCK_BYTES, 0)
            if begin:  # the next line begins there
                _, begin = next(_whole_lines(handle, begin - 1), (b"", end))
            if begin >= end:  # the line is longer than a block
                begin = 0
            yield begin, [event for line, at in _whole_lines(handle, begin) if at <= end for event in _event(line)]
            end = begin


NO_SOURCE = ""


@dataclass(slots=True)
class _Minute:
    times: int = 0
    more: AuditEvent | None = None  # aggregate of the events beyond the first few
    since: str = ""  # time of the first of these


class _Repeats:
    """Aggregates the events of a minute by source (the `field` of an event), action and result.

    An aggregate has resource and reason of its last event. An aggregate of changes must stay findable, so it has the
    common path of their resources, the reason if all agree, and the time of the first.
    """

    def __init__(self, field: str, each: int, *, are_changes: bool = False) -> None:
        self._field, self._each, self._are_changes = field, each, are_changes
        self._minutes: dict[tuple[str, ...], _Minute] = {}

    def is_first(self, event: AuditEvent) -> bool:
        """Count an event; return whether it is among the first few of its source and action."""
        source = getattr(event, self._field), event.action, event.result
        is_known = source in self._minutes or len(self._minutes) < MAX_SOURCES
        if not is_known:
            source = NO_SOURCE, event.action, event.result
            event = replace(event, actor=NO_SOURCE) if self._field == "actor" else replace(event, address=NO_SOURCE)
        minute = self._minutes.setdefault(source, _Minute())
        minute.times += 1
        if minute.times <= self._each and is_known:
            return True
        more = minute.more or event
        if minute.more is None:
            minute.since = event.time
        if self._are_changes:
            reason = event.reason if event.reason == more.reason else ""
            event = replace(event, resource=_common_path(event.resource, more.resource), reason=reason)
        minute.more = replace(  # actor and address only if all agree; the rest is that of the last event
            event,
            actor=event.actor if event.actor == more.actor else "",
            address=event.address if event.address == more.address else "",
            times=1 if minute.more is None else more.times + 1,
        )
        return False

    def end(self) -> list[AuditEvent]:
        """Return the aggregates and reset the counts."""
        minutes, self._minutes = self._minutes, {}
        return [self._summarise(minute.more, minute.since) for minute in minutes.values() if minute.more is not None]

    def _summarise(self, event: AuditEvent, since: str) -> AuditEvent:
        if not self._are_changes or event.times == 1:
            return event
        first = f"the first at {since}"
        return replace(event, reason=f"{first}; {event.reason}" if event.reason else first)


def _common_path(one: str, other: str) -> str:
    """Return the path if both are equal, else their common parent."""
    if one == other:
        return one
    pairs = zip(one.split("/")[:-1], other.split("/")[:-1], strict=False)
    same = [part for part, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)]
    return "".join(f"{part}/" for part in same)


class FailedLogins:
    """Records failed logins of one service; `attempts` counts and limits them."""

    def __init__(self, service: str, trail: Trail, attempts: LoginLimit, clock: Clock) -> None:
        self._service, self._trail, self._clock, self.attempts = service, trail, clock, attempts

    async def record_failure(
        self, address: str, *, code: int, resource: str, is_counted: bool = True, **said: str
    ) -> None:
        """Record a failed login; it counts against the address if `is_counted`. `said` is as for `new_event`."""
        if is_counted:
            self.attempts.count_failure(address)
        now = self._clock.wall()
        event = new_event(now, self._service, LOGIN, resource, code=code, address=address, **said)
        await self._trail.record(event)
