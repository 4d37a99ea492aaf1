"""Changing a table: what is to change is decided on the newest version, and committed on just that one."""

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from ams.tables import log
from ams.tables.errors import StoreFailed, WrongTable
from ams.tables.files import File, NewFile
from ams.tables.location import Location
from ams.tables.snapshot import Snapshot, newest

_TRIES = 20
_UNANSWERED_TRIES = 5
_PAUSE_SECONDS = 0.2
"""Before a second try when there was no answer; each more waits twice as long."""


class Change(NamedTuple):
    """What a commit changes."""

    what: str
    """For the history: `append`, `merge`."""
    add: Sequence[NewFile] = ()
    remove: Sequence[File] = ()
    numbers: Mapping[str, int] | None = None
    """A query with the number of its batch, and others that are kept with it."""
    is_other_rows: bool = True
    """Whether the rows are others afterwards; not so of a merge."""


def commit(
    location: Location,
    change: Callable[[Snapshot], Change | None],
    fit: Callable[[Snapshot], bool] = lambda _: False,
) -> bool:
    """Commit what `change` finds to do in the newest version, on just that version; False when it finds nothing.

    When another writer was faster, or `fit` has changed the table, both look again at what is there then. It is on
    stable storage when this returns. Raises `WrongTable` when others are faster all the time.

    An object store may store a commit and its answer be lost; delta-rs, which asks again, then finds the version taken.
    So a commit has a mark, and is looked for. Raises `StoreFailed` when the store does not answer for long: the commit
    may be there then, or come to be.
    """
    mark = str(uuid.uuid4()) if location.is_store else None
    unanswered = 0
    lost: CommitFailedError | StoreFailed | None = None
    for _ in range(_TRIES):
        snapshot = newest(location)
        log.sync(location, snapshot.version)  # whoever wrote it may have been killed before
        found = change(snapshot)
        if found is None:
            return False
        try:
            if fit(snapshot):
                continue
            _write(snapshot, found, mark)
            version = snapshot.version + 1
        except (CommitFailedError, StoreFailed) as error:
            made = log.marked(location, snapshot.version, mark) if mark else None
            if made is None:
                lost = error
                unanswered += isinstance(error, StoreFailed)
                _pause(error, unanswered)
                continue
            version = made
        log.sync(location, version)
        if version % log.CHECKPOINT_EVERY == 0:
            log.checkpoint(location, version)
        return True
    raise WrongTable(f"{location} is changed by others all the time; nothing was stored") from lost


def _pause(error: Exception, unanswered: int) -> None:
    """Wait a little when the store did not answer; raise the error when that was so again and again."""
    if not isinstance(error, StoreFailed):
        return
    if unanswered == _UNANSWERED_TRIES:
        raise error
    time.sleep(_PAUSE_SECONDS * 2**unanswered)


def _write(snapshot: Snapshot, change: Change, mark: str | None) -> None:
    check_files(snapshot.location, change.add)
    now = round(time.time() * 1000)
    actions: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.size, file.partition, now, change.is_other_rows, file.stats) for file in change.add
    ]
    actions += [
        RemoveAction(
            file.path,
            data_change=change.is_other_rows,
            deletion_timestamp=now,
            size=file.size,
            partition_values=file.partition,
        )
        for file in change.remove
    ]
    said = log.properties(change.what, len(actions) + len(change.numbers or ()), change.numbers, mark)
    with snapshot.location.asking():
        snapshot.delta._table.create_write_transaction(
            actions, "append", list(snapshot.partition_by), snapshot.delta.schema(), None, said, log.HOOKS
        )


def check_files(location: Location, files: Iterable[NewFile]) -> None:
    """Raise `WrongTable` unless all files are there and have the sizes they say: delta-rs takes any."""
    for file in files:
        found = location.size(file.path)
        if found != file.size:
            what = "is not there" if found is None else f"has {found} bytes instead of {file.size}"
            raise WrongTable(f"{location.path(file.path)} {what}; nothing was stored")
