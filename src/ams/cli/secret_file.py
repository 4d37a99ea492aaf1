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
def secret_file(path: str, *, new: bool = False) -> Iterator[Keep]:
    """Yield a function that writes a secret into a file, readable by its owner only.

    The file is replaced atomically, or made if it has to be `new`. Raises `Usage` at once if that cannot be. Without a
    secret there is what there was.
    """
    with file_named(path):
        if new:
            handle, draft = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), path
        elif os.path.isdir(path):
            raise Usage(f"{path}: is a folder")
        else:
            handle, draft = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=os.path.dirname(path) or ".")
    os.close(handle)
    is_kept = False

    def keep(secret: str) -> None:
        nonlocal is_kept
        with file_named(path):
            with open(draft, "w", encoding="utf-8") as file:
                file.write(f"{secret}\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)
        is_kept = True

    try:
        yield keep
    finally:
        if not is_kept:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft)


def secret_of(path: str, what: str) -> str:
    """Return the secret in a file. Raises `Usage` if it is empty, `BadConnection` if it cannot be read."""
    found = read_secret(path, what)
    if not found:
        raise Usage(f"{what} file {path} is empty")
    return found
