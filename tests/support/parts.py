"""One Kafka broker, one PostgreSQL and one S3 server for all tests of a run, started at first use.

Each runs in its own process (`tests.support.keeper`). It ends with the last test process of the run, also after a kill.
Tests that need none of them start none.
"""

import contextlib
import fcntl
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import psycopg
from psycopg import sql

from local_cluster.jars import kafka_jars
from tests.support import marks, s3

ROOT = Path(__file__).parents[2]
START_SECONDS = 120
_numbers = itertools.count(1)


class Shared(NamedTuple):
    """A running part: the keeper's process id, and the part's address."""

    keeper: int
    address: str


def kafka_servers() -> str:
    marks.require("kafka")
    with _lock_file(_folder() / "kafka.fetching"):
        kafka_jars()  # here: the keeper is not waited for while they are fetched
    return _address("kafka")


def s3_address() -> str:
    marks.require("go")
    s3.program()  # here: the keeper is not waited for while it builds
    return _address("s3")


def s3_table() -> str:
    """Return a location for a table on the S3 server that no other test of this run uses."""
    return f"s3://{s3.BUCKET}/test-{os.getpid()}-{next(_numbers)}"


def kafka_prefix() -> str:
    """Return a prefix for Kafka topics that no other test of this run uses."""
    return f"test-{os.getpid()}-{next(_numbers)}"


@contextlib.contextmanager
def scratch_database(template: str = "template1") -> Iterator[str]:
    """Create a fresh database on the PostgreSQL of this run; drop it at the end.

    Yields its URL, `postgresql://user:password@host:port/name`.
    """
    url = new_database(template)
    try:
        yield url
    finally:
        name = sql.Identifier(url.rpartition("/")[2])
        _execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def new_database(template: str = "template1") -> str:
    """Create a database that stays until the run ends, and return its URL."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    _execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template)))
    return _url(name)


def template_database(name: str, prepare: Callable[[str], None]) -> str:
    """Return `name`, a template for `scratch_database`, created once a run: `prepare` gets its URL and fills it."""
    with _lock_file(_folder() / "template"):
        if not _execute(sql.SQL("SELECT 1 FROM pg_database WHERE datname = {}").format(name)):
            unfinished = f"{name}_unfinished"
            _execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(unfinished)))
            _execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(unfinished)))
            prepare(_url(unfinished))
            rename = sql.SQL("ALTER DATABASE {} RENAME TO {}")
            _execute(rename.format(sql.Identifier(unfinished), sql.Identifier(name)))
    return name


def _url(database: str) -> str:
    marks.require("postgres")
    return _address("postgres") + database


def _execute(words: sql.Composed) -> int:
    """Execute one statement outside any transaction; return how many rows it returned or changed."""
    with contextlib.closing(psycopg.connect(_url("postgres"), autocommit=True)) as connection:
        return connection.execute(words).rowcount


@cache
def _address(part: str) -> str:
    """Return a part's address, and start the part if no process of this run has."""
    with _lock_file(_folder() / f"{part}.starting"):
        _use(_folder() / f"{part}.used")
        state = _folder() / f"{part}.json"
        if not state.exists():
            _start_keeper(part, state)
        return Shared(**json.loads(state.read_text())).address


def _folder() -> Path:
    """Return the folder of this run: workers of pytest-xdist have the run's id in their environment."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"process-{os.getpid()}")
    folder = Path(tempfile.gettempdir()) / f"ams-parts-{run}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@contextlib.contextmanager
def _lock_file(file: Path) -> Iterator[None]:
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _use(file: Path) -> None:
    """Hold a shared lock until this process ends; the keeper waits for all of them."""
    fcntl.flock(os.open(file, os.O_RDWR | os.O_CREAT, 0o600), fcntl.LOCK_SH)


def _start_keeper(part: str, state: Path) -> None:
    with (state.parent / f"{part}.keeper.log").open("ab") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.support.keeper", part, str(state.parent)], cwd=ROOT, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    give_up = time.monotonic() + START_SECONDS
    while not state.exists():
        assert keeper.poll() is None, f"{part} did not start: {(state.parent / f'{part}.keeper.log').read_text()}"
        assert time.monotonic() < give_up, f"{part} did not start within {START_SECONDS} s"
        time.sleep(0.02)
    keeper.returncode = 0  # it ends after us, and nobody waits for it
