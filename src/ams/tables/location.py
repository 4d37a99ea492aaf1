"""Location of a table: a folder that all machines see by the same path, or a prefix in an S3 bucket.

Neither delta-rs nor pyarrow syncs files in a folder; `sync` does, so a loss of power takes back nothing confirmed. On
S3 there is nothing to sync: a confirmed object is stored whole.

S3 credentials come from the usual chain: `AWS_ACCESS_KEY_ID` and others, profiles, roles of machines and containers.
pyarrow and delta-rs read it in each process, so no address, option or pickled object holds a credential.
`AWS_ENDPOINT_URL` names a server other than Amazon's, `AWS_REGION` the region.
"""

import fcntl
import os
import posixpath
import re
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache

import pyarrow.fs as pafs

from ams.tables import StoreFailed, WrongTable

SCHEME = "s3"
TIMEOUT_SECONDS = 30  # for an answer to delta-rs, which retries idempotent requests
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_ERROR_CHARACTERS = 300


def _s3_address(address: str) -> str:
    bucket, _, prefix = address.removeprefix(f"{SCHEME}:").removeprefix("//").partition("/")
    if "@" in bucket or ":" in bucket or "?" in address:
        login = "credentials and endpoints come from the environment (AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_ENDPOINT_URL)"
        raise WrongTable(f"an address of S3 is s3://BUCKET/PREFIX and nothing more: {login}")
    parts = prefix.strip("/").split("/")
    is_odd = not {"", ".", ".."}.isdisjoint(parts)
    if is_odd or not address.startswith(f"{SCHEME}://") or not _BUCKET.fullmatch(bucket):
        raise WrongTable(f"{address}: a table on S3 lies in s3://BUCKET/PREFIX")
    return f"{SCHEME}://{bucket}/{'/'.join(parts)}"


def s3_filesystem() -> pafs.FileSystem:
    """Return pyarrow's file system for S3."""
    return _opened_filesystem(_checked_s3_endpoint(), _first_set("AWS_REGION", "AWS_DEFAULT_REGION"))


@cache
def _opened_filesystem(endpoint: str | None, region: str | None) -> pafs.FileSystem:
    where = urllib.parse.urlsplit(endpoint) if endpoint else None
    return pafs.S3FileSystem(
        region=region,
        endpoint_override=f"{where.netloc}{where.path.rstrip('/')}" if where else None,
        scheme=where.scheme if where else None,
        allow_delayed_open=True,  # a small file takes one request
    )


def s3_reason(error: BaseException) -> str:
    """Return why a call failed, in one line, without the key ids and signatures that the server sent."""
    text = _COLORS.sub("", str(error))
    code = re.search(r"<Code>(\w+)</Code>", text)
    lines = [line.strip(" \t↳") for line in text.partition("<")[0].splitlines()]
    words = ": ".join(line for line in lines if line)[:_ERROR_CHARACTERS]
    return f"{words} ({code[1]})" if code else words


def _checked_s3_endpoint() -> str | None:
    found = _first_set("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    if found is None:
        return None
    where = urllib.parse.urlsplit(found)
    if where.scheme not in ("http", "https") or not where.hostname or "@" in where.netloc or where.query:
        raise WrongTable("AWS_ENDPOINT_URL is an address http://HOST:PORT or https://HOST:PORT, without credentials")
    return found.rstrip("/")


def _first_set(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


_LOCK = "_delta_log/_lock"


@dataclass(frozen=True, slots=True)
class Location:
    """A table's folder and its file operations; paths are relative, with `/`. Picklable."""

    root: str  # a path, or `s3://BUCKET/PREFIX`

    @classmethod
    def of(cls, path: "str | os.PathLike[str] | Location") -> "Location":
        """Return the location of a path, a `file:` or an `s3://` address. Raises `WrongTable` for other addresses."""
        if isinstance(path, Location):
            return path
        text = os.fspath(path)
        scheme, found, _ = text.partition(":/")
        if found and scheme == SCHEME:
            return Location(_plain(_s3_address(text)))
        if found and scheme == "file":
            text = urllib.parse.unquote(urllib.parse.urlsplit(text).path)
        elif found and scheme.isalnum():
            raise WrongTable(f"{text}: tables lie in plain paths, file: and s3: addresses, not on {scheme}:")
        return Location(os.path.abspath(_plain(text)))

    def __str__(self) -> str:
        return self.root

    @property
    def is_store(self) -> bool:
        """True for an object store: files appear whole or not at all, and the answer to a write may be lost."""
        return self.root.startswith(f"{SCHEME}://")

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Turn failures of the store inside this context into `StoreFailed`, without the server's text."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            if not self.is_store:
                raise
            raise StoreFailed(f"{self}: {s3_reason(error)}") from None

    @property
    def filesystem(self) -> pafs.FileSystem:
        """File system of pyarrow; its paths are relative to the folder."""
        if self.is_store:
            return pafs.SubTreeFileSystem(self.root.removeprefix(f"{SCHEME}://"), s3_filesystem())
        return pafs.SubTreeFileSystem(self.root, pafs.LocalFileSystem())

    @property
    def options(self) -> dict[str, str] | None:
        """Storage options for delta-rs."""
        if not self.is_store:
            return None
        # A commit is a PUT that the server refuses if the object exists; the environment cannot change that.
        found = {"AWS_CONDITIONAL_PUT": "etag", "AWS_S3_ALLOW_UNSAFE_RENAME": "false", "timeout": f"{TIMEOUT_SECONDS}s"}
        if endpoint := _checked_s3_endpoint():
            found["AWS_ENDPOINT_URL"] = endpoint
            if endpoint.startswith("http:"):
                found["AWS_ALLOW_HTTP"] = "true"
        return found

    def path(self, relative: str) -> str:
        """Return the full path of a relative path, for people and delta-rs."""
        return posixpath.join(self.root, relative)

    def make(self, folder: str = "") -> None:
        """Make a folder and its parents. Does nothing on a store; users make buckets."""
        if not self.is_store:
            os.makedirs(self.path(folder), exist_ok=True)

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder; an absent folder has none."""
        selector = pafs.FileSelector(folder, allow_not_found=True)
        with self.asking():
            return sorted(info.base_name for info in self.filesystem.get_file_info(selector))

    def files(self, ending: str) -> list[str]:
        """Return all files below the folder with this ending; names that begin with `_` are skipped."""
        selector = pafs.FileSelector("", recursive=True)
        with self.asking():
            found = [info.path for info in self.filesystem.get_file_info(selector)]
        return sorted(path for path in found if path.endswith(ending) and not path.startswith("_"))

    def size(self, path: str) -> int | None:
        """Return the bytes of a file, None when there is no such file."""
        with self.asking():
            info = self.filesystem.get_file_info(path)
        return int(info.size) if info.type == pafs.FileType.File else None

    def read(self, path: str) -> bytes:
        """Return the content of a small file."""
        with self.asking(), self.filesystem.open_input_stream(path) as stream:
            return bytes(stream.read())

    def write(self, path: str, content: bytes) -> None:
        """Write a small file, not synced."""
        with self.asking(), self.filesystem.open_output_stream(path) as stream:
            stream.write(content)

    def remove(self, path: str) -> None:
        """Remove a file; nothing happens when it is absent."""
        with suppress(FileNotFoundError), self.asking():
            self.filesystem.delete_file(path)

    def sync(self, *paths: str) -> None:
        """Sync files, and the names in folders, to stable storage. Does nothing on a store."""
        for path in () if self.is_store else paths:
            sync(self.path(path))

    def sync_above(self) -> None:
        """Sync the folder and its readable parents: some may be new."""
        if self.is_store:
            return
        above = self.root
        while above != (above := os.path.dirname(above)):
            try:
                sync(above)
            except PermissionError:
                return

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder's lock against other processes; a kill releases it. A store has no lock."""
        if self.is_store:
            yield
            return
        with open(self.path(_LOCK), "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _plain(text: str) -> str:
    if urllib.parse.unquote(text) != text:
        raise WrongTable(f"{text}: delta-rs takes what follows the % for a character; give a folder without")
    return text


def sync(path: str) -> None:
    """Sync one file or folder. Tests replace this function."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
