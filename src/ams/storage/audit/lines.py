"""The file of JSON lines: `audit.jsonl` in the data folder, only ever appended to, for the owner only.

A line is written by one call and with its end, so that one which a crash or a full disk cut short is the last; the
next begins on a line of its own. Whoever turns logs over renames the file: the next line makes a new one.
"""

import os
from collections import deque
from collections.abc import Iterator, Sequence

from ams.storage.audit.event import AuditEvent
from ams.storage.audit.shape import read, written

NAME = "audit.jsonl"
BLOCK = 64 * 2**10
"""Bytes read at a time."""
PORTION = 500
"""Most lines read at a time."""


class LineFile:
    """Appends events to the file, and reads them again from where a reader stands."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle: int | None = None
        self._is_torn = False
        self._unread: deque[_Reader] = deque()

    def append(self, event: AuditEvent) -> None:
        """Write the line of an event. Raises `OSError`; what was written of the line then is passed by by readers."""
        handle = self._writable()
        line = (b"\n" if self._is_torn else b"") + written(event)
        self._is_torn = True
        if os.write(handle, line) == len(line):
            self._is_torn = False
            return
        raise OSError("only a part of the line could be written")

    def open(self, position: int = 0) -> None:
        """Open or make the file; it is read from `position` on. Raises `OSError`."""
        self._open(position)

    def unread(self) -> list[AuditEvent]:
        """Return the next events, a few hundred at most, oldest first; none when all were read. Raises `OSError`.

        They are returned again until `have_read` says that they are where they belong. Also those of a file that has
        another name by now, or none.
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
        """Return another handle of the file that is written now, for a thread to sync and close; None for none."""
        return None if self._handle is None else os.dup(self._handle)

    def close(self) -> None:
        """Let go of all files."""
        for each in self._unread:
            each.close()
        self._unread.clear()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _writable(self) -> int:
        if self._handle is None or not self._is_still_named(self._handle):
            self._open(0)
        assert self._handle is not None
        return self._handle

    def _is_still_named(self, handle: int) -> bool:
        try:
            named = os.stat(self._path)
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(handle))

    def _open(self, position: int) -> None:
        handle = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        size = os.fstat(handle).st_size
        if self._handle is not None:
            os.close(self._handle)
        self._handle = handle
        self._is_torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        self._unread.append(_Reader(os.dup(handle), position))


class _Reader:
    """Where in a file reading stands."""

    def __init__(self, handle: int, position: int) -> None:
        self._handle = handle
        self._position = position
        self._ahead = position

    def next(self) -> list[AuditEvent]:
        if os.fstat(self._handle).st_size < self._position:  # somebody emptied it
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
