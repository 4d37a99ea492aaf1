"""Restoring: a backup becomes a new data folder, every byte compared with what the manifest says."""

import contextlib
import os
import shutil
from typing import NamedTuple

from ams.app.backup.copying import Manifest, copy_file, read_manifest, sync_folders
from ams.app.maintenance import FolderReport, check_folder
from ams.core.errors import Damaged, Unusable
from ams.storage.files import Disk, write_whole
from ams.storage.folder import MARKER, RESTORING, VERSION, is_being_restored, is_in_use


class Restored(NamedTuple):
    """A data folder made of a backup."""

    folder: str
    manifest: Manifest
    report: FolderReport  # what a check of the new folder found


def restore(backup: str, data: str) -> Restored:
    """Make the data folder `data`, which must be new or empty, of a backup; blocking.

    Raises `Unusable` with one line, `Damaged` when a file of the backup is not what was written. A restore that failed
    or was killed leaves a mark in the folder, so that no service takes it for a new one; another restore does.
    """
    backup, data = os.path.abspath(backup), os.path.abspath(data)
    made = read_manifest(backup)
    if made.layout != VERSION:
        raise Unusable(f"{backup} holds layout {made.layout!r}, this program reads {VERSION!r}; upgrade it")
    try:
        _make_empty(data)
        _fill(backup, data, made)
        report = check_folder(data)
        _finish(data)
    except OSError as error:
        raise Unusable(f"{data} could not be restored: {error.strerror}; no service takes it as it is") from error
    return Restored(data, made, report)


def _make_empty(data: str) -> None:
    if is_in_use(data):
        raise Unusable(f"data folder {data} is in use by another process; name a new folder with --data")
    Disk().make_folder(data)
    if is_being_restored(data):
        _clear(data)
    elif os.listdir(data):
        raise Unusable(f"{data} is not empty; name a new folder with --data")
    write_whole(Disk(), os.path.join(data, RESTORING), b"")
    Disk().sync_folder(os.path.dirname(data))


def _fill(backup: str, data: str, made: Manifest) -> None:
    try:
        for each in made.files:
            if copy_file(os.path.join(backup, each.name), data, each.name) != each:
                raise Damaged(f"{os.path.join(backup, each.name)} is not what was backed up; use another backup")
        sync_folders(data)
        write_whole(Disk(), os.path.join(data, MARKER), f"{VERSION}\n".encode())
    except BaseException:
        _clear(data)
        raise


def _finish(data: str) -> None:
    """Take the mark away, durably: from here on the folder may be served."""
    Disk().unlink(os.path.join(data, RESTORING))
    Disk().sync_folder(data)


def _clear(data: str) -> None:
    """Remove what was copied, not the folder, which may be a mounted one, nor its mark."""
    for entry in os.scandir(data):
        if entry.name == RESTORING:
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(entry.path)
