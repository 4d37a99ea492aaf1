"""Commits in SQLite files: one that failed must not be there after a restart.

In WAL mode a commit appends its pages to the file `-wal` and syncs it. When the sync fails, SQLite rolls back, but only
in memory: the pages stay in the file with valid checksums, and the next process that opens the database takes the
commit for made (https://www.sqlite.org/walformat.html, 4). So one more commit, which changes nothing, is written in
their place. Once that is synced, the old state is what a restart finds.
"""

import os
import sqlite3
from collections.abc import Callable

from ams.core.errors import Unusable
from ams.storage.files import Disk, make_private

OVERWRITE = "PRAGMA user_version = 0"  # writes a page without changing anything: the version is always 0

# Errors after which the file holds no whole commit that failed.
_NOTHING_WRITTEN = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CONSTRAINT,
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_FULL,  # the end of the commit is missing
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
    }
)


def make_file(path: str) -> None:
    """Make the file, for the owner only, before SQLite does; its journals inherit the mode. Raises `Unusable`."""
    try:
        make_private(path)
    except OSError as error:
        raise Unusable(f"{path} cannot be opened: {error.strerror}") from error


def write_ahead(connection: sqlite3.Connection, path: str) -> None:
    """Have commits written to a WAL and synced. Raises `sqlite3.Error`."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    keep_files(connection, path)


def keep_files(connection: sqlite3.Connection, path: str) -> None:
    """Sync the folder of a database in WAL mode: SQLite passes over an error. Raises `sqlite3.OperationalError`."""
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # the first read makes the WAL
    try:
        Disk().sync_folder(os.path.dirname(path) or ".")
    except OSError as error:
        raise sqlite3.OperationalError(f"its folder cannot be synced: {error.strerror}") from error


class Commits:
    """Whether a restart would find the state that this process sees. For one writer at a time."""

    def __init__(self) -> None:
        self._in_doubt = False

    def succeeded(self) -> None:
        """Note a commit: it was written in the place of any that had failed before."""
        self._in_doubt = False

    def is_undone(self, error: BaseException | None, overwrite: Callable[[], None]) -> bool:
        """Whether a failed commit is surely not there after a restart; `overwrite` commits `OVERWRITE` where needed."""
        code = getattr(error, "sqlite_errorcode", None)
        has_written = code is not None and code & 0xFF not in _NOTHING_WRITTEN  # the low byte is the kind of error
        if not self._in_doubt and not has_written:
            return True
        try:
            overwrite()
        except sqlite3.Error:
            self._in_doubt = True
        else:
            self._in_doubt = False
        return not self._in_doubt
