"""Runs one shared part as long as a test process of the run uses it: `keeper PART FOLDER`."""

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from local_cluster.kafka import Brokers
from local_cluster.postgres import Postgres
from tests.support.s3 import serving


@contextmanager
def kafka(folder: Path) -> Iterator[str]:
    with Brokers(folder / "kafka", quick=True) as brokers:
        yield brokers.servers


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """Run one PostgreSQL without syncs; yields its URL up to the name of the database."""
    with Postgres(folder / "postgres", careless=True, settings={"max_connections": "300"}) as server:
        yield server.url("")


PARTS: dict[str, Callable[[Path], AbstractContextManager[str]]] = {"kafka": kafka, "postgres": postgres, "s3": serving}


def main(part: str, folder: Path) -> None:
    """Start the part, print its address, wait until its last user has ended, and stop it."""
    state = folder / f"{part}.json"
    with PARTS[part](folder) as address:
        written = folder / f"{part}.json.new"
        written.write_text(json.dumps({"keeper": os.getpid(), "address": address}))
        written.rename(state)
        with (folder / f"{part}.used").open("rb+") as used:
            fcntl.flock(used, fcntl.LOCK_EX)
            state.unlink()  # later workers start another one
    _tidy(folder)


def _tidy(folder: Path) -> None:
    if not list(folder.glob("*.json")):
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
