"""Where a table lies: a folder that all machines at work see by the same path.

Neither delta-rs nor pyarrow syncs what it writes; `sync` does, so that nothing is told that a loss of power can take
back.
"""

import fcntl
import os
import posixpath
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow.fs as pafs

from ams.tables.errors import WrongTable

_LOCK = "_delta_log/_lock"


@dataclass(frozen=True, slots=True)
class Location:
    """A folder, and the calls that tables need there; paths are below it, with `/`. Can be sent to other machines."""

    root: str

    @classmethod
    def of(cls, path: "str | os.PathLike[str] | Location") -> "Location":
        """Return the location of a plain path or a `file:` address; raises `WrongTable` for other file systems."""
        if isinstance(path, Location):
            return path
        text = os.fspath(path)
        scheme, found, _ = text.partition(":/")
        if found and scheme == "file":
            text = urllib.parse.unquote(urllib.parse.urlsplit(text).path)
        elif found and scheme.isalnum():
            raise WrongTable(f"{text}: tables lie in plain paths and file: addresses, not on {scheme}:")
        if urllib.parse.unquote(text) != text:
            raise WrongTable(f"{text}: delta-rs takes what follows the % for a character; give a folder without")
        return cls(os.path.abspath(text))

    def __truediv__(self, name: str) -> "Location":
        return Location(self.path(name))

    def __str__(self) -> str:
        return self.root

    @property
    def filesystem(self) -> pafs.FileSystem:
        """What pyarrow reads and writes by."""
        return pafs.LocalFileSystem()

    @property
    def options(self) -> dict[str, str] | None:
        """What delta-rs has to know besides the address."""
        return None

    def path(self, relative: str) -> str:
        """Return the whole path of something in the folder."""
        return posixpath.join(self.root, relative)

    def make(self, folder: str = "") -> None:
        """Make a folder and all above it unless they are there."""
        self.filesystem.create_dir(self.path(folder), recursive=True)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; of an absent one none."""
        selector = pafs.FileSelector(self.path(folder), allow_not_found=True)
        return sorted(info.base_name for info in self.filesystem.get_file_info(selector))

    def files(self, ending: str) -> list[str]:
        """Return the files in the folder and below whose names end so, but none below names that begin with `_`."""
        selector = pafs.FileSelector(self.root, recursive=True)
        found = (posixpath.relpath(info.path, self.root) for info in self.filesystem.get_file_info(selector))
        return sorted(path for path in found if path.endswith(ending) and not path.startswith("_"))

    def size(self, path: str) -> int | None:
        """Return the bytes of a file, None when there is no such file."""
        info = self.filesystem.get_file_info(self.path(path))
        return int(info.size) if info.type == pafs.FileType.File else None

    def read(self, path: str) -> bytes:
        """Return what a small file holds."""
        with self.filesystem.open_input_stream(self.path(path)) as stream:
            return bytes(stream.read())

    def write(self, path: str, content: bytes) -> None:
        """Write a small file, not synced."""
        with self.filesystem.open_output_stream(self.path(path)) as stream:
            stream.write(content)

    def remove(self, path: str) -> None:
        """Remove a file; nothing happens when it is absent."""
        with suppress(FileNotFoundError):
            self.filesystem.delete_file(self.path(path))

    def move(self, path: str, other: str) -> None:
        """Give a file or folder another name."""
        self.filesystem.move(self.path(path), self.path(other))

    def sync(self, *paths: str) -> None:
        """Return when files, and names in folders, are on stable storage."""
        for path in paths:
            sync(self.path(path))

    def sync_above(self) -> None:
        """Sync the names of the folder and of all above it, as far as they may be read: some may be new."""
        above = self.root
        while above != (above := os.path.dirname(above)):
            try:
                sync(above)
            except PermissionError:
                return

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes out that come by here too; a kill lets go."""
        with open(self.path(_LOCK), "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def sync(path: str) -> None:
    """Sync one file or folder. All syncing comes by here, and tests put something else in its place."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
