"""What becomes of a commit that failed; with real files and syncs in `tests/faults/test_sqlite_power_loss.py`."""

import sqlite3

import pytest

from ams.storage.database.sqlite import Commits


def failure(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("it failed")
    error.sqlite_errorcode = code
    return error


FAILED_SYNC = failure(sqlite3.SQLITE_IOERR_FSYNC)
FULL = failure(sqlite3.SQLITE_FULL)


class Overwriting:
    """Overwrites what a commit left behind, as long as the disk is well."""

    def __init__(self) -> None:
        self.is_well = True
        self.times = 0

    def __call__(self) -> None:
        self.times += 1
        if not self.is_well:
            raise FAILED_SYNC


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_SNAPSHOT])
def test_a_commit_that_wrote_no_end_needs_no_undoing(code: int) -> None:
    overwriting = Overwriting()
    assert Commits().is_undone(failure(code), overwriting)
    assert overwriting.times == 0


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_NOMEM])
def test_a_commit_that_may_be_whole_is_overwritten(code: int) -> None:
    overwriting = Overwriting()
    assert Commits().is_undone(failure(code), overwriting)
    assert overwriting.times == 1


def test_in_doubt_every_failure_is_in_doubt_until_something_is_written() -> None:
    commits, overwriting = Commits(), Overwriting()
    overwriting.is_well = False
    assert not commits.is_undone(FAILED_SYNC, overwriting)
    assert not commits.is_undone(FULL, overwriting)

    overwriting.is_well = True
    assert commits.is_undone(FULL, overwriting)

    overwriting.is_well = False
    assert commits.is_undone(FULL, overwriting)
    assert not commits.is_undone(FAILED_SYNC, overwriting)
    commits.succeeded()
    assert commits.is_undone(FULL, overwriting)
