"""The folder a run works in: only one run at a time, and only the one whose checkpoint it is.

WORK/lock               held while a run works
WORK/definition.json    what the checkpoint was made by
WORK/progress.json      where the last run got to, for `ams pipeline show`
WORK/tables.json        which tables batches were added to
WORK/expectations.json  how often what a definition expects held
WORK/checkpoint/        Spark's own
WORK/tables/ results/ quarantine/
"""

import fcntl
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ams.pipeline.errors import Busy, ChangedDefinition, WrongTable
from ams.storage.files import Disk, write_whole

T = TypeVar("T")

LOCK, DEFINITION, PROGRESS, BEGUN = "lock", "definition.json", "progress.json", "tables.json"
EXPECTATIONS = "expectations.json"
CHECKPOINT, QUARANTINE = "checkpoint", "quarantine"
SPARK_LOG = "spark.log"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint belongs to."""

    name: str
    project: str
    rows: Mapping[str, Any]
    """What decides which rows the tables hold: what is read and how it is taken apart. A change needs a new folder."""
    options: Mapping[str, Any]
    """All else that results depend on. A change can be accepted, where the job knows how to live with it."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run got to."""

    batch: int
    time: str  # of the end of that batch, UTC
    messages: int  # read since the folder was made
    lag: int | None = None  # None when the source does not tell


class _Begun(msgspec.Struct, frozen=True, kw_only=True):
    tables: tuple[str, ...] = ()  # below the folder of the run as they lie there, others by their whole paths


class Counted(msgspec.Struct, frozen=True):
    """How many rows came to an expectation, and of how many it does not hold."""

    rows: int
    failed: int

    def __add__(self, other: "Counted") -> "Counted":
        return Counted(self.rows + other.rows, self.failed + other.failed)

    def __sub__(self, other: "Counted") -> "Counted":
        return Counted(self.rows - other.rows, self.failed - other.failed)


NOTHING = Counted(0, 0)


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """How often expectations held, by their names."""

    batch: int = -1  # the last one that is counted
    rows: Mapping[str, Counted] = {}  # of all batches since the folder was made
    result: Mapping[str, Counted] = {}  # of the last result that was computed from all rows

    def added(self, counts: Mapping[str, Counted], batch: int) -> "Expected":
        """Return it with the counts of a batch, which count once however often the batch is done."""
        if batch <= self.batch:
            return self
        sums = {name: self.rows.get(name, NOTHING) + each for name, each in counts.items()}
        return Expected(batch=batch, rows={**self.rows, **sums}, result=self.result)


def locked(work: Path) -> AbstractContextManager[None]:
    """Hold a work folder, made if it is absent; raise `Busy` when another run holds it."""
    busy = f"another run works in {work}; wait for its end, or give another folder with --work"
    return held(work, LOCK, f"work folder {work}", busy)


@contextmanager
def held(folder: Path, name: str, what: str, busy: str) -> Iterator[None]:
    """Hold a lock in a folder, made if absent; raises `Busy` with the text `busy`, or `WrongTable` about `what`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / name, "ab")  # noqa: SIM115  # closed below, after the work
    except OSError as error:
        raise WrongTable(f"{what}: {error.strerror or error}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(busy) from None
        yield


def guard(work: Path, identity: Identity, *, accept_change: bool = False) -> None:
    """Let a run go on with a folder only if its checkpoint is its own, or nothing was begun; raise `ChangedDefinition`.

    With `accept_change`, other options are taken over; what is read must stay the same.
    """
    known = read(work / DEFINITION, Identity)
    now = msgspec.json.decode(msgspec.json.encode(identity), type=Identity)  # so that tuples and lists are the same
    if known is None and (work / CHECKPOINT).exists():
        raise ChangedDefinition(f"{work} holds a checkpoint of something else; give another folder with --work")
    if known is not None and known != now:
        beside = {each.name for each in work.iterdir()} - {LOCK, DEFINITION, SPARK_LOG, CHECKPOINT}
        # Before anything was read or written, mistakes in a definition can be mended.
        if beside or any((work / CHECKPOINT / "offsets").glob("[0-9]*")):
            way_out = "give another folder with --work to begin anew"
            for what in ("name", "project", "rows"):
                if getattr(known, what) != getattr(now, what):
                    changed = _changed(known.rows, now.rows) if what == "rows" else what
                    raise ChangedDefinition(f"{work} was made by another definition ({changed} changed): {way_out}")
            if not accept_change:
                raise ChangedDefinition(
                    f"{work} was made with other options ({_changed(known.options, now.options)} changed):"
                    f" {way_out}, or --accept-change to go on with the new ones"
                )
    if known != now:
        write(work / DEFINITION, identity)


def read_standing(work: Path) -> Standing | None:
    """Return where the last run in a folder got to, None before its first batch."""
    return read(work / PROGRESS, Standing)


def read_begun(work: Path) -> Collection[str]:
    """Return the paths of tables that runs in a folder added to."""
    found = read(work / BEGUN, _Begun) or _Begun()
    return {os.path.join(work, each) if ":" not in each else each for each in found.tables}


def read_expected(work: Path) -> Expected:
    """Return how often expectations held in a folder."""
    return read(work / EXPECTATIONS, Expected) or Expected()


def begin(work: Path, table: str) -> None:
    """Remember a table that a run added to; the folder may be moved with all in it."""
    known = read_begun(work)
    if table not in known:
        write(work / BEGUN, _Begun(tables=tuple(sorted(each.removeprefix(f"{work}/") for each in {*known, table}))))


def write(path: Path, value: msgspec.Struct) -> None:
    """Replace a small file in one step, synced."""
    write_whole(Disk(), str(path), msgspec.json.format(msgspec.json.encode(value), indent=2))


def _changed(known: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    return ", ".join(sorted(name for name in known.keys() | now.keys() if known.get(name) != now.get(name)))


def read(path: Path, kind: type[T]) -> T | None:
    """Return what a small file holds, None when it is absent; raise `ChangedDefinition` when it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ChangedDefinition(f"{path} cannot be read: {error}") from error
