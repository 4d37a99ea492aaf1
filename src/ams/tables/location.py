"""Where a table lies: a folder that all machines at work see by the same path, or a prefix in a bucket of S3.

Neither delta-rs nor pyarrow syncs what it writes in a folder; `sync` does, so that nothing is told that a loss of power
can take back. On S3 there is nothing to sync: what the server has confirmed is stored, whole.

Credentials of S3 come by the usual chain (`AWS_ACCESS_KEY_ID` and others, profiles, roles of machines and containers),
which pyarrow and delta-rs follow in each process by themselves. So they are in no address, no option, and nothing that
is sent to other machines. `AWS_ENDPOINT_URL` names another server than Amazon's, and `AWS_REGION` the region.
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
TIMEOUT_SECONDS = 30  # for an answer to delta-rs, which then asks again where that does no harm
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_LONGEST = 300


def _s3_address(address: str) -> str:
    bucket, _, prefix = address.removeprefix(f"{SCHEME}:").removeprefix("//").partition("/")
    if "@" in bucket or ":" in bucket or "?" in address:
        raise WrongTable(
            "an address of S3 is s3://BUCKET/PREFIX and nothing more: credentials and endpoints come from the "
            "environment (AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_ENDPOINT_URL)"
        )
    parts = prefix.strip("/").split("/")
    if (
        not address.startswith(f"{SCHEME}://")
        or not _BUCKET.fullmatch(bucket)
        or any(part in ("", ".", "..") for part in parts)
    ):
        raise WrongTable(f"{address}: a table on S3 lies in s3://BUCKET/PREFIX")
    return f"{SCHEME}://{bucket}/{'/'.join(parts)}"


def s3_filesystem() -> pafs.FileSystem:
    """Return what pyarrow reads and writes by."""
    return _opened_filesystem(_endpoint(), _first(_REGIONS))


@cache
def _opened_filesystem(endpoint: str | None, region: str | None) -> pafs.FileSystem:
    where = urllib.parse.urlsplit(endpoint) if endpoint else None
    return pafs.S3FileSystem(
        region=region,
        endpoint_override=f"{where.netloc}{where.path.rstrip('/')}" if where else None,
        scheme=where.scheme if where else None,
        allow_delayed_open=True,  # so that a small file is one request
    )


def _s3_options() -> dict[str, str]:
    endpoint = _endpoint()
    told = {"AWS_ENDPOINT_URL": endpoint} if endpoint else {}
    if endpoint and endpoint.startswith("http:"):
        told["AWS_ALLOW_HTTP"] = "true"
    # A commit is a PUT that the server refuses where there is one already; no setting in the environment changes that.
    sure = {"AWS_CONDITIONAL_PUT": "etag", "AWS_S3_ALLOW_UNSAFE_RENAME": "false"}
    return {**told, **sure, "timeout": f"{TIMEOUT_SECONDS}s"}


def s3_reason(error: BaseException) -> str:
    """Return why a call failed, in one line; what the server sent with it (key ids, signatures) is left out."""
    text = _COLORS.sub("", str(error))
    code = re.search(r"<Code>(\w+)</Code>", text)
    lines = [line.strip(" \t↳") for line in text.partition("<")[0].splitlines()]
    words = ": ".join(line for line in lines if line)[:_LONGEST]
    return f"{words} ({code[1]})" if code else words


def _endpoint() -> str | None:
    found = _first(_ENDPOINTS)
    if found is None:
        return None
    where = urllib.parse.urlsplit(found)
    if where.scheme not in ("http", "https") or not where.hostname or "@" in where.netloc or where.query:
        raise WrongTable("AWS_ENDPOINT_URL is an address http://HOST:PORT or https://HOST:PORT, without credentials")
    return found.rstrip("/")


def _first(names: tuple[str, ...]) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


_LOCK = "_delta_log/_lock"


@dataclass(frozen=True, slots=True)
class Location:
    """A folder, and the calls that tables need there; paths are below it, with `/`. Can be sent to other machines."""

    root: str  # of a prefix in a bucket its address, `s3://BUCKET/PREFIX`

    @classmethod
    def of(cls, path: "str | os.PathLike[str] | Location") -> "Location":
        """Return the location of a plain path, a `file:` or an `s3://` address; raises `WrongTable` for others."""
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
        """True if it is an object store: a file is there whole or not at all, and an answer to a write may be lost."""
        return self.root.startswith(f"{SCHEME}://")

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Raise `StoreFailed`, without what the server sent, when what is done in this context fails there."""
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
        """What pyarrow reads and writes by; paths in it are below the folder."""
        if self.is_store:
            return pafs.SubTreeFileSystem(self.root.removeprefix(f"{SCHEME}://"), s3_filesystem())
        return pafs.SubTreeFileSystem(self.root, pafs.LocalFileSystem())

    @property
    def options(self) -> dict[str, str] | None:
        """What delta-rs has to know besides the address."""
        return _s3_options() if self.is_store else None

    def path(self, relative: str) -> str:
        """Return the whole path of something in the folder, for people and delta-rs."""
        return posixpath.join(self.root, relative)

    def make(self, folder: str = "") -> None:
        """Make a folder and all above it unless they are there; a store has none, and people make buckets."""
        if not self.is_store:
            os.makedirs(self.path(folder), exist_ok=True)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; of an absent one none."""
        selector = pafs.FileSelector(folder, allow_not_found=True)
        with self.asking():
            return sorted(info.base_name for info in self.filesystem.get_file_info(selector))

    def files(self, ending: str) -> list[str]:
        """Return the files in the folder and below whose names end so, but none below names that begin with `_`."""
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
        """Return what a small file holds."""
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
        """Return when files, and names in folders, are on stable storage, as all is that a store confirmed."""
        for path in () if self.is_store else paths:
            sync(self.path(path))

    def sync_above(self) -> None:
        """Sync the names of the folder and of all above it, as far as they may be read: some may be new."""
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
        """Keep other processes out that come by here too; a kill lets go. In a store there is no lock."""
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
    """Sync one file or folder. All syncing comes by here, and tests put something else in its place."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
