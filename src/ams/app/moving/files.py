"""The file of an export: for its owner only, read line by line; `-` is stdout or stdin, `.gz` is compressed."""

import contextlib
import gzip
import itertools
import os
import sys
import zlib
from collections.abc import Iterator
from typing import IO, cast

from ams.core.errors import InvalidInput, Unusable
from ams.storage.export_format import AnyLine, decode_line

MAX_LINE = 256 << 20  # bytes of a line; longer ones are not of an export
STANDARD = "-"
_GZIP_SUFFIX = ".gz"


@contextlib.contextmanager
def writing(path: str) -> Iterator[IO[bytes]]:
    """Open a new file for writing: durable when the block ends, removed when it fails. Raises `Unusable`."""
    if path == STANDARD:
        try:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        except OSError as error:
            raise Unusable(f"stdout: {error.strerror or error}; the export is not whole") from error
        return
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as raw:
            if path.endswith(_GZIP_SUFFIX):  # higher levels are far slower, and compress base64 little more
                with gzip.GzipFile(filename="", mode="wb", compresslevel=3, fileobj=raw) as file:
                    yield cast("IO[bytes]", file)
            else:
                yield raw
            raw.flush()
            os.fsync(raw.fileno())
    except BaseException as error:
        os.unlink(path)
        if isinstance(error, OSError):
            raise Unusable(f"{path}: {error.strerror or error}; nothing is left of it") from error
        raise


@contextlib.contextmanager
def reading(path: str) -> Iterator[IO[bytes]]:
    """Open a file for reading. Raises `Unusable`."""
    if path == STANDARD:
        yield sys.stdin.buffer
        return
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror}") from error
    with os.fdopen(handle, "rb") as raw:
        yield cast("IO[bytes]", gzip.GzipFile(mode="rb", fileobj=raw)) if path.endswith(_GZIP_SUFFIX) else raw


def lines(file: IO[bytes], path: str) -> Iterator[tuple[int, AnyLine]]:
    """Yield numbers, from 1, and lines of an export, without empty ones. Raises `Unusable` with the line number."""
    for number in itertools.count(1):
        try:
            data = file.readline(MAX_LINE + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise Unusable(f"{path}, line {number}: the file cannot be read on: {error}") from error
        if len(data) > MAX_LINE:
            raise Unusable(f"{path}, line {number}: longer than a line can be")
        if not data:
            return
        if data.isspace():
            continue
        try:
            yield number, decode_line(data)
        except InvalidInput as error:
            raise Unusable(f"{path}, line {number}: {error.message}") from None
