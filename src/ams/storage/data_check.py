"""Whether a data folder is still usable: checked periodically, also without requests.

Files that were deleted or replaced under a running process go on working for it and are gone with it, and a database
that another process locks shows only when something is written. So a thread looks; it never keeps the event loop.
"""

import asyncio
import contextlib
import errno
import os
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from urllib.parse import quote

from ams.core.supervisor import Supervisor

LOOK_SECONDS = 1.0
"""Between two looks."""
BUSY_SECONDS = 0.5
"""How long a look waits for a locked database."""
LOCKED_SECONDS = 4.0
"""How long a database may be locked before it is reported: our own writes lock it too, for much less."""
SILENT_SECONDS = 15.0
"""A look that takes longer hangs: the disk does not answer."""


class DataCheck:
    """Looks at folders and SQLite databases that are to stay what they were when this was made."""

    def __init__(
        self, folders: Sequence[str], databases: Sequence[str], files: Callable[[], Sequence[str]] = tuple
    ) -> None:
        """Remember what there is; `files` names those that must be there now. Raises `OSError` for what is missing."""
        self._files = files
        self._gone: set[str] = set()
        """Files that were missing at the last look: one that is being removed may still be named."""
        self._databases = databases
        self._before = {path: _identity(path) for path in (*folders, *databases)}
        self._found: str | None = None
        self._looked_at = time.monotonic()
        self._busy_since: dict[str, float] = {}
        self._stop = threading.Event()

    @property
    def trouble(self) -> str | None:
        """Why nothing can be stored as it should, as of the last look; None when there is nothing wrong."""
        if time.monotonic() - self._looked_at > SILENT_SECONDS:
            return "the data folder does not answer"
        return self._found

    @contextlib.asynccontextmanager
    async def running(self, supervisor: Supervisor) -> AsyncIterator[None]:
        """Look until the block ends."""
        thread = supervisor.thread("check of the data folder", "ams-data-check", self._run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            await asyncio.to_thread(thread.join, 2 * BUSY_SECONDS)  # longer only on a disk that does not answer

    def look(self) -> None:
        """Look once. May block as long as the disk does."""
        troubles = (*map(self._missing, self._before), *map(self._locked, self._databases), *self._missing_files())
        self._found = next(filter(None, troubles), None)
        self._looked_at = time.monotonic()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            self.look()

    def _missing_files(self) -> Sequence[str]:
        before, self._gone = self._gone, {path for path in self._files() if not os.path.exists(path)}
        return [f"{path}: {os.strerror(errno.ENOENT)}" for path in sorted(before & self._gone)]

    def _missing(self, path: str) -> str | None:
        try:
            same = _identity(path) == self._before[path]
        except OSError as error:
            return f"{path}: {error.strerror}"
        return None if same else f"{path} was replaced while it was in use"

    def _locked(self, path: str) -> str | None:
        """Begin what any write begins with; a database with another fault fails at once."""
        try:
            _begin_writing(path)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                return f"{path}: {error}"
            since = self._busy_since.setdefault(path, time.monotonic())
            return f"{path} is locked by another process" if time.monotonic() - since >= LOCKED_SECONDS else None
        except sqlite3.Error as error:
            return f"{path}: {error}"
        self._busy_since.pop(path, None)
        return None


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _begin_writing(path: str) -> None:
    uri = f"file:{quote(path)}?mode=rw"  # never made anew
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
