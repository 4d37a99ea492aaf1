"""Taking a backup: copies a data folder as it is at one moment, while the service runs.

The moment consists of two reads, a few milliseconds apart, while the registry is locked:

1. The registry is locked, so nothing is created or deleted until the second read.
2. The log lists its files: they have every publish and acknowledgement answered before, and every message that a
   cursor in them has passed.

The second read waits for no index: the service starts none from the request to keep its files until it has listed them.
So users of the registry wait for milliseconds.

In the copy no cursor is beyond the end of its topic. Every topic and subscription has its log and its cursor. Nothing
answered before the backup began is missing. The copying itself follows, from the kept files and snapshots.
"""

import contextlib
import errno
import glob
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

import msgspec

from ams import __version__
from ams.app.backup import files
from ams.app.backup.protocol import SOCKET, KeptFiles, keep
from ams.core.clock import Clock, Milliseconds, SystemClock, publish_time
from ams.core.errors import Unusable
from ams.storage.files import NEW, Disk, write_whole
from ams.storage.folder import MARKER, VERSION, Folder, is_in_use, is_ours
from ams.storage.log.embedded import LogFile, parts_in

# Files that grant access by themselves; left out on demand.
SECRETS = ("token.key", "admin.token", "server.key", "authn.key", "authn.seal", "authn-tls/server.key")
_SKIPPED_FILES = ("lock", "authn.lock", "reserve", "authn-reserve", SOCKET, MARKER, files.MANIFEST)
_DATABASE = "registry.db"
_AUTHN_DATABASE, _AUTHN_TLS = "authn.db", "authn-tls"  # of the certificate service, if it uses the folder too


class _Moment(NamedTuple):
    time: Milliseconds
    registry: sqlite3.Connection
    authn: sqlite3.Connection | None  # the certificate service's, of another moment
    parts: Sequence[LogFile]


def take(data: str, target: str, *, with_key: bool = True, clock: Clock | None = None) -> files.Manifest:
    """Copy the data folder `data` to the new folder `target`; blocking. Its service may run or not.

    Without `with_key` the files that grant access (`SECRETS`) are left out. Raises `Unusable`; then `target` does not
    exist.
    """
    folder, target = Folder(data), os.path.abspath(target)
    if not is_ours(folder.path):
        if os.path.exists(folder.place(_AUTHN_DATABASE)):
            raise Unusable(
                f"{folder.path} is the certificate service's alone: copy it while that is stopped; while it runs,"
                f' `sqlite3 {folder.place(_AUTHN_DATABASE)} ".backup FILE"`, and its files authn.key and authn.seal'
            )
        raise Unusable(f"{folder.path} is not a data folder")
    if not os.path.isdir(folder.log):
        raise Unusable(f"{folder.path} holds no messages: its service keeps them on Kafka; back them up there")
    if os.path.commonpath([folder.path, target]) == folder.path:
        raise Unusable(f"{target} is within the data folder; choose a folder elsewhere")
    try:
        with (
            _source(folder) as source,
            files.draft(target) as path,
            _moment(folder, source, clock or SystemClock()) as moment,
        ):
            _check_room(folder, moment, path)
            return _copy(folder, source, moment, path, with_key=with_key)
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
        raise Unusable(f"the backup could not be written: {reason}; nothing is left of it") from error
    except sqlite3.Error as error:
        raise Unusable(f"the backup could not be made: {error}; nothing is left of it") from error


@contextlib.contextmanager
def _source(folder: Folder) -> Iterator[KeptFiles | None]:
    """Yield the service that keeps its files; None: none runs, and the folder is locked so that none starts."""
    if is_in_use(folder.path):
        with closing(keep(folder.path)) as kept:
            yield kept
        return
    taken = Folder.take(folder.path)
    try:
        yield None
    finally:
        taken.release()


@contextlib.contextmanager
def _moment(folder: Folder, source: KeptFiles | None, clock: Clock) -> Iterator[_Moment]:
    if not os.path.exists(folder.registry):
        raise Unusable(f"{folder.registry} is missing: there is nothing to back up")
    with contextlib.ExitStack() as held:
        with files.lock_database(folder.registry):
            parts = source.parts() if source else parts_in(folder.log)
            registry = held.enter_context(closing(files.snapshot_database(folder.registry)))
        authn = folder.place(_AUTHN_DATABASE)
        beside = held.enter_context(closing(files.snapshot_database(authn))) if os.path.exists(authn) else None
        yield _Moment(clock.wall(), registry, beside, parts)


def _check_room(folder: Folder, moment: _Moment, path: str) -> None:
    needed = 0
    for name, length in moment.parts:
        needed += os.path.getsize(os.path.join(folder.log, name)) if length is None else length
    databases = (_DATABASE, _AUTHN_DATABASE) if moment.authn else (_DATABASE,)
    needed += sum(os.path.getsize(folder.place(name)) for name in databases)
    free = Disk().free_bytes(path)
    if needed > free:
        raise OSError(errno.ENOSPC, f"{needed:,} bytes are needed and {free:,} are free", path)


def _copy(folder: Folder, source: KeptFiles | None, moment: _Moment, path: str, *, with_key: bool) -> files.Manifest:
    """Copy everything. The marker, which makes it a data folder, is written last."""
    get_on = source.get_on if source else lambda: None
    entries: list[files.BackupEntry] = []
    for name, snapshot in ((_DATABASE, moment.registry), (_AUTHN_DATABASE, moment.authn)):
        if snapshot is not None:
            entries.append(files.copy_database(snapshot, path, name, get_on))
    for part in moment.parts:
        name = os.path.join("log", part.name)
        entries.append(files.copy_file(os.path.join(folder.log, part.name), path, name, part.length, get_on))
    entries += _copy_others(folder, get_on, path, with_key)
    if source:
        source.confirm()
    [registry_version] = moment.registry.execute("SELECT version_num FROM alembic_version").fetchone()
    made = files.Manifest(
        format=files.FORMAT, ams=__version__, layout=VERSION, registry=registry_version,
        taken=publish_time(moment.time), taken_ms=moment.time,
        token_key=any(each.name == "token.key" for each in entries), files=entries,
    )  # fmt: skip
    write_whole(Disk(), os.path.join(path, files.MANIFEST), msgspec.json.format(msgspec.json.encode(made), indent=1))
    files.sync_folders(path)
    write_whole(Disk(), os.path.join(path, MARKER), f"{VERSION}\n".encode())
    return made


def _copy_others(folder: Folder, get_on: Callable[[], None], path: str, with_key: bool) -> Iterator[files.BackupEntry]:
    below = glob.glob(os.path.join(_AUTHN_TLS, "*"), root_dir=folder.path, include_hidden=True)
    for name in (*sorted(os.listdir(folder.path)), *sorted(below)):
        is_database = name.startswith((_DATABASE, _AUTHN_DATABASE))
        is_secret = name.startswith(SECRETS) and not with_key
        if is_database or is_secret or name in _SKIPPED_FILES or name.endswith(NEW):
            continue
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISREG(os.lstat(folder.place(name)).st_mode):
                yield files.copy_file(folder.place(name), path, name, get_on=get_on)
