"""A file for a secret that is shown once: that the file can be written is checked before the secret is made."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ams.cli.exits import Usage, file_named
from ams.client.connection import read_secret

Keep = Callable[[str], None]  # writes the secret, which then is in the file, or raises `Usage`


@contextmanager
def new_file(path: str) -> Iterator[Keep]:
    """Yield what writes a secret into a file for its owner only that was not there before.

    Raises `Usage` at once when there is one of that name, or none can be. When nothing is kept, none is there after.
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
    """Yield what writes a secret into a file for its owner only, whole or not at all, in place of what bore the name.

    Raises `Usage` at once when no file can be there. When nothing is kept, what was there stays.
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
    """Return what a file holds; raise `Usage` for an empty one, and `BadConnection` for one that cannot be read."""
    found = read_secret(path, what)
    if not found:
        raise Usage(f"{what} file {path} is empty")
    return found


def check_place(path: str) -> None:
    """Raise `Usage` when no file for a secret can be there."""
    with secret_file(path):
        pass


def _write(draft: str, secret: str) -> None:
    with open(draft, "w", encoding="ascii") as file:
        file.write(f"{secret}\n")
        file.flush()
        os.fsync(file.fileno())
