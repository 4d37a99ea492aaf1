"""Failed commits; the simulated worlds test power cuts and failing syncs."""

import sqlite3

import pytest

from ams.storage.database.sqlite import Commits


def failure(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("it failed")
    error.sqlite_errorcode = code
    return error


FAILED_SYNC = failure(sqlite3.SQLITE_IOERR_FSYNC)
FULL_ERROR = failure(sqlite3.SQLITE_FULL)


class Overwriting:
    """Overwrites the rest of a failed commit, as long as the disk works."""

    def __init__(self) -> None:
        self.is_well = True
        self.times = 0

    def __call__(self) -> None:
        self.times += 1
        if not self.is_well:
            raise FAILED_SYNC


@pytest.mark.parametrize(("code", "times"), [
    (sqlite3.SQLITE_FULL, 0), (sqlite3.SQLITE_BUSY, 0), (sqlite3.SQLITE_BUSY_SNAPSHOT, 0),
    (sqlite3.SQLITE_IOERR_FSYNC, 1), (sqlite3.SQLITE_IOERR_SHMSIZE, 1), (sqlite3.SQLITE_NOMEM, 1),
])  # fmt: skip
def test_a_commit_is_overwritten_if_it_may_be_whole_and_not_if_it_wrote_no_end(code: int, times: int) -> None:
    overwriting = Overwriting()
    assert Commits().is_undone(failure(code), overwriting)
    assert overwriting.times == times


def test_in_doubt_every_failure_is_in_doubt_until_something_is_written() -> None:
    commits, overwriting = Commits(), Overwriting()
    overwriting.is_well = False
    assert not commits.is_undone(FAILED_SYNC, overwriting)
    assert not commits.is_undone(FULL_ERROR, overwriting)

    overwriting.is_well = True
    assert commits.is_undone(FULL_ERROR, overwriting)

    overwriting.is_well = False
    assert commits.is_undone(FULL_ERROR, overwriting)
    assert not commits.is_undone(FAILED_SYNC, overwriting)
    commits.note_commit()
    assert commits.is_undone(FULL_ERROR, overwriting)
