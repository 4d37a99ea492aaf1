"""Files for secrets that are shown once; checked to be writable before the secret is made."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ams.cli.exit_codes import Usage, file_named
from ams.client.connection import read_secret

Keep = Callable[[str], None]  # writes the secret, or raises `Usage`


@contextmanager
def new_file(path: str) -> Iterator[Keep]:
    """Yield a function that writes a secret into a new file, readable by its owner only.

    Raises `Usage` at once if the file exists or cannot be made. Without a secret no file is left.
    """
    with file_named(path):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.close(handle)
    kept = False
    try:

        def keep(secret: str) -> None:
            nonlocal kept
            with file_named(path):
                _write(path, secret)
            kept = True

        yield keep
    finally:
        if not kept:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


@contextmanager
def secret_file(path: str) -> Iterator[Keep]:
    """Yield a function that replaces a file by a secret atomically, readable by its owner only.

    Raises `Usage` at once if the file cannot be made. Without a secret the old file stays.
    """
    if os.path.isdir(path):
        raise Usage(f"{path}: is a folder")
    with file_named(path):
        handle, draft = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=os.path.dirname(path) or ".")
    os.close(handle)
    try:

        def keep(secret: str) -> None:
            with file_named(path):
                _write(draft, secret)
                os.replace(draft, path)

        yield keep
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)


def secret_of(path: str, what: str) -> str:
    """Return the secret in a file. Raises `Usage` if it is empty, `BadConnection` if it cannot be read."""
    found = read_secret(path, what)
    if not found:
        raise Usage(f"{what} file {path} is empty")
    return found


def check_place(path: str) -> None:
    """Raise `Usage` if no secret file can be made there."""
    with secret_file(path):
        pass


def _write(draft: str, secret: str) -> None:
    with open(draft, "w", encoding="ascii") as file:
        file.write(f"{secret}\n")
        file.flush()
        os.fsync(file.fileno())
