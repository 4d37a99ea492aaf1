"""The few things tables do with files: one promise, kept on this machine's disks and on Hadoop's file systems.

Paths are absolute texts. Every call may be the last one before a kill: a file or folder either has its new name with
all it holds, or its old one. What `write`, `replace` and `move` did is on stable storage when they return.
"""

import os
import shutil
import urllib.parse
import uuid
from typing import Any, Protocol

from pyspark.sql import SparkSession

NEW = "._new"
"""Ending of a file that is being written, until it is whole and gets its name."""


class Storage(Protocol):
    """The calls."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; of an absent one none. Checksum files of Hadoop are not told."""
        ...

    def move(self, source: str, target: str) -> None:
        """Give a file or folder another place where nothing is, in one step; makes the folder above."""
        ...

    def replace(self, source: str, target: str) -> None:
        """Put a file in the place of another, or where nothing is, in one step; makes the folder above."""
        ...

    def write(self, path: str, content: bytes) -> None:
        """Write a new file whole or not at all; raise `FileExistsError` when there is one."""
        ...

    def read(self, path: str) -> bytes:
        """Return what a small file holds."""
        ...

    def size(self, path: str) -> int:
        """Return the bytes of a file."""
        ...

    def tail(self, path: str, length: int) -> bytes:
        """Return the last bytes of a file."""
        ...

    def sync(self, folder: str) -> None:
        """Return when all files in a folder and below are on stable storage."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with all in it; nothing happens when it is absent."""
        ...


def files_of(spark: SparkSession, root: str) -> Storage:
    """Return the files where `root` lies: a path, or an address such as `hdfs://names.example/archive`."""
    hadoop = Files(spark)
    return LocalFiles() if hadoop.scheme(root) == "file" else hadoop


def local_path(path: str) -> str:
    """Return the plain path of a `file:` address, and a plain path as it is."""
    return urllib.parse.unquote(urllib.parse.urlsplit(path).path) if path.startswith("file:") else path


class LocalFiles:
    """Plain calls of the system. Hadoop's own do not sync, and copy where a rename fails."""

    def exists(self, path: str) -> bool:
        """Look for it."""
        return os.path.exists(local_path(path))

    def names(self, folder: str) -> list[str]:
        """List a folder."""
        try:
            return sorted(name for name in os.listdir(local_path(folder)) if not _is_checksum(name))
        except FileNotFoundError:
            return []

    def move(self, source: str, target: str) -> None:
        """Rename; a target that is there and not empty is an error."""
        self._make_above(target)
        os.rename(local_path(source), local_path(target))
        _sync(os.path.dirname(local_path(target)))

    def replace(self, source: str, target: str) -> None:
        """Rename over."""
        self._make_above(target)
        os.replace(local_path(source), local_path(target))
        _sync(os.path.dirname(local_path(target)))

    def write(self, path: str, content: bytes) -> None:
        """Write beside, sync, and link: a link never replaces."""
        self._make_above(path)
        path = local_path(path)
        beside = f"{path}.{uuid.uuid4().hex[:8]}{NEW}"
        try:
            with open(beside, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.link(beside, path)
        finally:
            self.delete(beside)
        _sync(os.path.dirname(path))

    def read(self, path: str) -> bytes:
        """Read it whole."""
        with open(local_path(path), "rb") as file:
            return file.read()

    def size(self, path: str) -> int:
        """Ask the system."""
        return os.path.getsize(local_path(path))

    def tail(self, path: str, length: int) -> bytes:
        """Read from near the end."""
        with open(local_path(path), "rb") as file:
            file.seek(max(0, self.size(path) - length))
            return file.read()

    def sync(self, folder: str) -> None:
        """Sync each file and each folder."""
        for above, _, names in os.walk(local_path(folder)):
            for name in names:
                _sync(os.path.join(above, name))
            _sync(above)

    def delete(self, path: str) -> None:
        """Remove it."""
        path = local_path(path)
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)

    def _make_above(self, path: str) -> None:
        """Make the folder above, and see that the names of new folders last."""
        above = os.path.dirname(local_path(path))
        if os.path.isdir(above):
            return
        self._make_above(above)
        os.makedirs(above, exist_ok=True)
        _sync(os.path.dirname(above))


class Files:
    """Hadoop's file systems, through the driver's Java. What is closed there is stored."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._fs = jvm.org.apache.hadoop.fs
        self._configuration = spark._jsc.hadoopConfiguration()
        self._gateway: Any = spark.sparkContext._gateway

    def scheme(self, path: str) -> str:
        """Return which file system a path is of."""
        return str(self._system(path).getUri().getScheme())

    def exists(self, path: str) -> bool:
        """Ask the system."""
        return bool(self._system(path).exists(self._path(path)))

    def names(self, folder: str) -> list[str]:
        """List a folder."""
        if not self.exists(folder):
            return []
        found = (str(each.getPath().getName()) for each in self._system(folder).listStatus(self._path(folder)))
        return sorted(name for name in found if not _is_checksum(name))

    def move(self, source: str, target: str) -> None:
        """Rename; a target that is there is an error."""
        self._rename(source, target, overwrite=False)

    def replace(self, source: str, target: str) -> None:
        """Rename over."""
        self._rename(source, target, overwrite=True)

    def write(self, path: str, content: bytes) -> None:
        """Write beside, and rename where nothing is."""
        if self.exists(path):
            raise FileExistsError(path)
        beside = f"{path}.{uuid.uuid4().hex[:8]}{NEW}"
        stream = self._system(path).create(self._path(beside), True)
        stream.write(bytearray(content))
        stream.hsync()
        stream.close()
        self._rename(beside, path, overwrite=False)

    def read(self, path: str) -> bytes:
        """Read it whole."""
        return self.tail(path, self.size(path))

    def size(self, path: str) -> int:
        """Ask the system."""
        return int(self._system(path).getFileStatus(self._path(path)).getLen())

    def tail(self, path: str, length: int) -> bytes:
        """Read from near the end."""
        stream = self._system(path).open(self._path(path))
        try:
            stream.seek(max(0, self.size(path) - length))
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def sync(self, folder: str) -> None:
        """Nothing: files were closed, and these systems keep what was closed on several machines."""

    def delete(self, path: str) -> None:
        """Remove it."""
        self._system(path).delete(self._path(path), True)

    def _rename(self, source: str, target: str, *, overwrite: bool) -> None:
        self._system(target).mkdirs(self._path(target).getParent())
        kind = self._fs.Options.Rename
        flags = self._gateway.new_array(kind, 1)
        flags[0] = kind.OVERWRITE if overwrite else kind.NONE
        context = self._fs.FileContext.getFileContext(self._path(target).toUri(), self._configuration)
        context.rename(self._path(source), self._path(target), flags)

    def _path(self, path: str) -> Any:
        return self._fs.Path(path)

    def _system(self, path: str) -> Any:
        return self._path(path).getFileSystem(self._configuration)


def folders_at(files: Storage, root: str, depth: int) -> list[str]:
    """Return the paths below `root` of the partitions `depth` levels down; of depth 0 the one path `.`."""
    if depth == 0:
        return ["."]
    return [
        name if depth == 1 else f"{name}/{below}"
        for name in files.names(root)
        if "=" in name
        for below in folders_at(files, f"{root}/{name}", depth - 1)
    ]


def below(root: str, path: str) -> str:
    """Join a path below a root; `.` is the root itself."""
    return root if path == "." else f"{root}/{path.removeprefix('./')}"


def _is_checksum(name: str) -> bool:
    return name.startswith(".") and name.endswith(".crc")


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
