"""The audit trail: where services record events; and failed logins.

An event is a line of the file `audit.jsonl` in the data folder before `record` returns. The file is only appended
to, for the owner only. A line is written by one call and with its end, so that one which a crash or a full disk cut
short is the last; the next begins on a line of its own. Programs that rotate logs rename the file: the next line makes
a new one. The table gets it from there, in batches and in the order of the file, whenever the database can take it:
what is in the table is always a beginning of the file. So a start finds what is missing by looking back from the end of
the file for a line that the table has.

What is refused or fails cannot fill the file, however often it is asked for: the first few requests of a user in a
minute are an event each, and so are those of an address whose user is not known, such as failed logins. The others of
that minute are one event, which says how many they were, when the minute is over. While the disk has too little space
for anything new, changes that are done are counted in the same way, but for deletions, which end by themselves.
"""

import asyncio
import contextlib
import errno
import itertools
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import structlog

from ams.core.clock import DAY, Clock, Milliseconds, publish_time
from ams.core.errors import OUTCOME_UNKNOWN, AmsError
from ams.core.rate import Attempts
from ams.core.retention_clock import RetentionClock
from ams.core.supervisor import Rounds, Supervisor
from ams.storage.audit.event import DONE, FAILED, LOGIN, AuditEvent, fitting, new_event, read, written
from ams.storage.audit.records import AuditRecords
from ams.storage.free_space import UNLIMITED, FreeSpace

BATCH_SECONDS = 1.0  # how often the table is written to, at most, while there is something new
PRUNE_SECONDS = 3600.0
AT_THE_END_SECONDS = 2.0  # how long a stop waits for the database; the next start brings in what is left
TABLE, PRUNING, REPEATS = "audit table", "pruning of the audit table", "repeated refusals"
UNWRITTEN = 1000  # most events kept for the table alone while the file cannot be written
IN_DOUBT = re.compile(rf"{OUTCOME_UNKNOWN}|[\w ]+; it may have been carried out")  # reasons of changes that may be done
MINUTE = 60_000  # milliseconds
MAX_EVENTS_PER_ADDRESS = 10  # failed logins of an address in a minute that are events of their own
MAX_EVENTS_PER_USER = 30  # the same of refusals, and of failures, of an action that a user asks for
DELETION = ":delete"  # end of the actions that remove something: there are no more of them than things to remove
MAX_SOURCES = 1000  # sources and actions that are told apart in a minute; all others are one event an action, unnamed

logger = structlog.get_logger("ams.audit")


class Trail:
    """A file of events and the table that follows it. `days` is how long the table keeps events; 0 is no limit.

    Days go by `retention_clock`, absent: by one of the trail's own. When the disk is full, the reserve of `space` is
    given back, and the line is written then.
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
        self._unwritten: deque[AuditEvent] = deque(maxlen=UNWRITTEN)
        self._following: asyncio.Task[None] | None = None
        self._pruning = Rounds(PRUNING, PRUNE_SECONDS, self._prune, partial(logger.warning, "audit.not_pruned"))
        self._by_address = _Repeats("address", MAX_EVENTS_PER_ADDRESS)
        self._by_user = _Repeats("actor", MAX_EVENTS_PER_USER)
        self._changes = _Repeats("actor", MAX_EVENTS_PER_USER, are_changes=True)
        self._is_disk_full = False  # whether anything new is refused for want of space
        self._minute_began = clock.monotonic()
        self._minutes = Rounds(REPEATS, MINUTE / 1000, self._flush_if_over)
        self.failures = 0  # events whose line could not be written

    async def start(self, supervisor: Supervisor) -> None:
        """Begin to bring events into the table; first those that a stop or a crash left in the file alone."""
        try:
            position = await self._end_in_table(self._path)
            if position == 0:
                await self._bring_in_before()
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
        """Record an event: when this returns, its line is in the file. Never raises; failures are logged.

        One that is not done may be counted instead, if its user or address has had many in this minute; on a full disk
        also one that is, or may be.
        """
        event = fitting(event)
        repeats = self._repeats_of(event)
        if repeats is not None:
            await self._flush_if_over()
            if not repeats.is_first(event):
                self._news.set()  # for a look at the disk
                return
        await self._write(event)

    async def flush(self) -> None:
        """Record what was counted in this minute, and begin a new one."""
        self._minute_began = self._clock.monotonic()
        for event in (*self._by_address.end(), *self._by_user.end(), *self._changes.end()):
            await self._write(event)

    async def look_at_space(self) -> None:
        """Note whether the disk has space for anything new: between events, as their lines must not wait for it."""
        self._is_disk_full = await asyncio.to_thread(self._space.growth_refusal) is not None

    def _repeats_of(self, event: AuditEvent) -> "_Repeats | None":
        """Return where an event is counted; None: it is written whatever came before."""
        if event.result == DONE or (event.result == FAILED and IN_DOUBT.fullmatch(event.reason)):
            return self._changes if self._is_disk_full and not event.action.endswith(DELETION) else None
        return self._by_user if event.actor and event.action != LOGIN else self._by_address

    async def _flush_if_over(self) -> None:
        if self._clock.monotonic() - self._minute_began >= MINUTE:
            await self.flush()

    async def _write(self, event: AuditEvent) -> None:
        try:
            try:
                self._lines.append(event)
            except OSError as error:  # without a number: a part of the line was written
                if error.errno not in (None, errno.ENOSPC, errno.EDQUOT) or not self._space.release_reserve():
                    raise
                self._lines.append(event)
        except OSError as error:
            self.failures += 1
            self._unwritten.append(event)
            await logger.aerror("audit.not_written", path=self._path, reason=error.strerror or str(error), id=event.id)
        self._news.set()

    async def close(self) -> None:
        """Bring in what is new, if the database takes it soon, and let go of the file."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait((self._following,))
        await self._pruning.close()
        await self._minutes.close()
        await self.flush()
        with contextlib.suppress(TimeoutError, AmsError, OSError):
            async with asyncio.timeout(AT_THE_END_SECONDS):
                await self.bring_in()
        self._lines.close()

    async def bring_in(self) -> None:
        """Bring all into the table that is only in the file. Raises `RegistryUnavailable` and `OSError`."""
        handle = self._lines.duplicate()
        if handle is not None:
            await asyncio.to_thread(_sync_and_close, handle)
        while events := self._lines.unread():
            await self._records.add(events)
            self._lines.have_read()
        while self._unwritten:
            waiting = list(self._unwritten)
            await self._records.add(waiting)
            added = {event.id for event in waiting}  # by then the oldest may have been dropped for others
            self._unwritten = deque((each for each in self._unwritten if each.id not in added), UNWRITTEN)

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
                if not is_behind:  # once, however long it lasts
                    await logger.awarning("audit.table_behind", reason=str(error))
                is_behind = True
                self._news.set()
            except Exception:  # a defect must not end the following for good
                supervisor.survive(TABLE)
                self._news.set()
            await asyncio.sleep(BATCH_SECONDS)

    async def _prune(self) -> None:
        until = Milliseconds(max(self._retention_clock.wall() - self._days * DAY, 0))
        gone = await self._records.prune(until, self._clock.wall())
        if gone:
            await logger.ainfo("audit.pruned", events=gone, older_than_days=self._days)

    async def _bring_in_before(self) -> None:
        """Bring in the rest of a file that was turned over since the table was written to."""
        path = rotated(self._path)
        if path is None:
            return
        try:
            position = await self._end_in_table(path)
            before = LineFile(path)
            before.open(position)
            while events := before.unread():
                await self._records.add(events)
                before.have_read()
            before.close()
        except (AmsError, OSError) as error:
            await logger.aerror("audit.file_failed", path=path, reason=str(error))

    async def _end_in_table(self, path: str) -> int:
        """Return where the first portion begins, from the end, whose first event the table has; 0 if none has."""
        for position, events in portions_from_the_end(path):
            try:
                if events and await self._records.holds(events[:1]):
                    return position
            except AmsError:
                return 0  # all of it is offered again, and what is there is passed by
        return 0


def _sync_and_close(handle: int) -> None:
    try:
        os.fdatasync(handle)
    finally:
        os.close(handle)


NAME = "audit.jsonl"
BLOCK = 64 * 2**10  # bytes read at a time
PORTION = 500  # most lines read at a time


class LineFile:
    """Appends events to the file, and reads them again from where a reader stands."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle: int | None = None
        self._is_torn = False
        self._unread: deque[_Reader] = deque()

    def append(self, event: AuditEvent) -> None:
        """Write the line of an event. Raises `OSError`; what was written of the line then is passed by by readers."""
        if self._handle is None or not self._is_still_named(self._handle):
            self.open()
        assert self._handle is not None
        line = (b"\n" if self._is_torn else b"") + written(event)
        self._is_torn = True
        if os.write(self._handle, line) == len(line):
            self._is_torn = False
            return
        raise OSError("only a part of the line could be written")

    def open(self, position: int = 0) -> None:
        """Open or make the file; it is read from `position` on. Raises `OSError`."""
        handle = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        size = os.fstat(handle).st_size
        if self._handle is not None:
            os.close(self._handle)
        self._handle = handle
        self._is_torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        self._unread.append(_Reader(os.dup(handle), position))

    def unread(self) -> list[AuditEvent]:
        """Return the next events, a few hundred at most, oldest first; none when all were read. Raises `OSError`.

        They are returned again until `have_read`. Also those of a file that was renamed or removed.
        """
        while self._unread:
            events = self._unread[0].next()
            if events or len(self._unread) == 1:
                return events
            self._unread.popleft().close()
        return []

    def have_read(self) -> None:
        """Go on behind the events that `unread` returned last."""
        if self._unread:
            self._unread[0].advance()

    def duplicate(self) -> int | None:
        """Return another handle of the file, for a thread to sync and close; None: it is not open."""
        return None if self._handle is None else os.dup(self._handle)

    def close(self) -> None:
        """Close all files."""
        for each in self._unread:
            each.close()
        self._unread.clear()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _is_still_named(self, handle: int) -> bool:
        try:
            named = os.stat(self._path)
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(handle))


class _Reader:
    def __init__(self, handle: int, position: int) -> None:
        self._handle, self._position, self._ahead = handle, position, position

    def next(self) -> list[AuditEvent]:
        if os.fstat(self._handle).st_size < self._position:  # it was truncated
            self._position = 0
        self._ahead = self._position
        events: list[AuditEvent] = []
        for line, end in _whole_lines(self._handle, self._position):
            self._ahead = end
            events.extend(_event(line))
            if len(events) >= PORTION:
                break
        return events

    def advance(self) -> None:
        self._position = self._ahead

    def close(self) -> None:
        os.close(self._handle)


def _whole_lines(handle: int, position: int) -> Iterator[tuple[bytes, int]]:
    """Yield lines that have their end, and where that is."""
    rest = b""
    while block := os.pread(handle, BLOCK, position + len(rest)):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            position += len(line) + 1
            yield line, position


def _event(line: bytes) -> list[AuditEvent]:
    """Return the event of a line; none for a line that was cut short."""
    try:
        return [read(line)]
    except ValueError:
        return []


def events_in(path: str) -> Iterator[AuditEvent]:
    """Yield the events of a file, oldest first. Raises `OSError`."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for line, _ in _whole_lines(handle, 0):
            yield from _event(line)
    finally:
        os.close(handle)


def portions_from_the_end(path: str) -> Iterator[tuple[int, Sequence[AuditEvent]]]:
    """Yield portions of a file, the last first: where one begins, and its events. Nothing for no file."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        end = os.fstat(handle).st_size
        while end > 0:
            begin = _line_begin(handle, max(end - BLOCK, 0))
            if begin >= end:  # a line longer than a block
                begin = 0
            yield begin, [event for line, at in _whole_lines(handle, begin) if at <= end for event in _event(line)]
            end = begin
    finally:
        os.close(handle)


def _line_begin(handle: int, position: int) -> int:
    """Return where the first line begins that begins at `position` or behind it."""
    if position == 0:
        return 0
    for _, end in _whole_lines(handle, position - 1):
        return end
    return os.fstat(handle).st_size


def rotated(path: str) -> str | None:
    """Return the file that had this name before it was turned over, named as logrotate does; None if there is none."""
    before = f"{path}.1"
    return before if os.path.isfile(before) else None


OTHERS = ""


@dataclass(slots=True)
class _Minute:
    """Events of one source and action within a minute."""

    times: int = 0
    more: AuditEvent | None = None  # stands for those beyond the first few
    since: Milliseconds = Milliseconds(0)  # when the first of these came


class _Repeats:
    """Events of a minute, by source (the `field` of an event), action and result.

    One that stands for many has the resource and the reason of the last. Of changes, all must stay findable: it has
    what their resources have in common, the reason if it is always the same, and when the first came.
    """

    def __init__(self, field: str, each: int, *, are_changes: bool = False) -> None:
        self._field, self._each, self._are_changes = field, each, are_changes
        self._minutes: dict[tuple[str, ...], _Minute] = {}

    def is_first(self, event: AuditEvent) -> bool:
        """Count an event; return whether it is one of the first few of its source and action."""
        source = getattr(event, self._field), event.action, event.result
        is_known = source in self._minutes or len(self._minutes) < MAX_SOURCES
        if not is_known:
            source = OTHERS, event.action, event.result
            event = replace(event, actor=OTHERS) if self._field == "actor" else replace(event, address=OTHERS)
        minute = self._minutes.setdefault(source, _Minute())
        minute.times += 1
        if minute.times <= self._each and is_known:
            return True
        more = minute.more or event
        if minute.more is None:
            minute.since = event.at
        if self._are_changes:
            reason = event.reason if event.reason == more.reason else ""
            event = replace(event, resource=_common_path(event.resource, more.resource), reason=reason)
        minute.more = replace(  # who and where stay only while all say the same; the rest is that of the last
            event,
            actor=event.actor if event.actor == more.actor else "",
            address=event.address if event.address == more.address else "",
            times=1 if minute.more is None else more.times + 1,
        )
        return False

    def end(self) -> list[AuditEvent]:
        """Return the events that stand for all that was counted, and begin anew."""
        minutes, self._minutes = self._minutes, {}
        return [self._summed(minute.more, minute.since) for minute in minutes.values() if minute.more is not None]

    def _summed(self, event: AuditEvent, since: Milliseconds) -> AuditEvent:
        if not self._are_changes or event.times == 1:
            return event
        first = f"the first at {publish_time(since)}"
        return replace(event, reason=f"{first}; {event.reason}" if event.reason else first)


def _common_path(one: str, other: str) -> str:
    """Return a path if both are the same, else the folder that both are in."""
    if one == other:
        return one
    pairs = zip(one.split("/")[:-1], other.split("/")[:-1], strict=False)
    same = [part for part, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)]
    return "".join(f"{part}/" for part in same)


class FailedLogins:
    """Records logins that failed, of one service. `attempts` has the limit, and counts."""

    def __init__(self, service: str, trail: Trail, attempts: Attempts, clock: Clock) -> None:
        self._service, self._trail, self._clock, self.attempts = service, trail, clock, attempts

    @property
    def failures(self) -> int:
        """Since the start."""
        return self.attempts.failures

    async def failed(
        self, address: str, *, code: int, reason: str, resource: str, actor: str = "", request: str = ""
    ) -> None:
        """Count a login that failed and record it. `actor` is who it claimed to be, if it did."""
        self.attempts.failed(address)
        await self.refused(address, code=code, reason=reason, resource=resource, actor=actor, request=request)

    async def refused(
        self, address: str, *, code: int, reason: str, resource: str, actor: str = "", request: str = ""
    ) -> None:
        """Record one that was refused for the limit, which does not count against the address again."""
        event = new_event(
            self._clock.wall(), self._service, LOGIN, resource, code=code, actor=actor, address=address,
            reason=reason, request=request,
        )  # fmt: skip
        await self._trail.record(event)
