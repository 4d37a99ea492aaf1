"""The draft of a backup: a folder under another name, until all of it is on stable storage."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator

from ams.core.errors import Unusable
from ams.storage.files import Disk

PARTIAL = ".partial"
"""Ending of a folder that is no backup yet."""


@contextlib.contextmanager
def draft(target: str) -> Iterator[str]:
    """Give an empty folder that gets the name `target` when the block ends well, and goes when it does not.

    What a backup that was killed left there goes first. Raises `Unusable` when `target` exists, its parent does not,
    or another backup is writing the draft.
    """
    path = target + PARTIAL
    if os.path.lexists(target):
        raise Unusable(f"{target} exists; name a folder that does not")
    if not os.path.isdir(os.path.dirname(target)):
        raise Unusable(f"the folder {os.path.dirname(target)} does not exist")
    os.makedirs(path, mode=0o700, exist_ok=True)
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(lock, path)
        _empty(path)
        yield path
        os.rename(path, target)
        Disk().sync_folder(os.path.dirname(target))
    except _Busy:
        raise Unusable(f"another backup is writing to {path}") from None
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    finally:
        os.close(lock)


class _Busy(Exception):
    """Somebody else is writing the draft."""


def _lock(handle: int, path: str) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise _Busy(path) from None


def _empty(path: str) -> None:
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
