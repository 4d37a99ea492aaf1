"""The work folder of a run (docs/reference/pipeline.md): its files, for one run and one job at a time."""

import fcntl
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ams.pipeline.errors import Busy, ChangedJob, WrongTable
from ams.storage.files import Disk, write_whole

T = TypeVar("T")

LOCK, JOB_FILE, PROGRESS, BEGUN = "lock", "job.json", "progress.json", "tables.json"
EXPECTATIONS = "expectations.json"
CHECKPOINT, QUARANTINE = "checkpoint", "quarantine"
SPARK_LOG = "spark.log"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of the job that a checkpoint belongs to."""

    name: str
    project: str
    rows: Mapping[str, Any]  # what decides which rows its tables have; a change needs a new folder
    options: Mapping[str, Any]  # that results depend on; a change can be accepted


class RunPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Position of a run."""

    batch: int
    time: str  # of the end of that batch, UTC
    messages: int  # read since the folder was made
    lag: int | None = None  # None if the source does not say


class _Begun(msgspec.Struct, frozen=True, kw_only=True):
    tables: tuple[str, ...] = ()  # relative to the run's folder; tables elsewhere by absolute path


class Counted(msgspec.Struct, frozen=True):
    """Rows that an expectation checked, and rows that failed it."""

    rows: int
    failed: int

    def __add__(self, other: "Counted") -> "Counted":
        return Counted(self.rows + other.rows, self.failed + other.failed)

    def __sub__(self, other: "Counted") -> "Counted":
        return Counted(self.rows - other.rows, self.failed - other.failed)


NO_ROWS = Counted(0, 0)


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of expectations, by name."""

    batch: int = -1  # the last batch counted
    rows: Mapping[str, Counted] = {}  # of all batches since the folder was made
    result: Mapping[str, Counted] = {}  # of the last result computed from all rows

    def add_counts(self, counts: Mapping[str, Counted], batch: int) -> "Expected":
        """Return the sums with a batch added; a batch that is retried counts once."""
        if batch <= self.batch:
            return self
        sums = {name: self.rows.get(name, NO_ROWS) + each for name, each in counts.items()}
        return Expected(batch=batch, rows={**self.rows, **sums}, result=self.result)


def lock_work_folder(work: Path) -> AbstractContextManager[None]:
    """Lock a work folder, made if absent. Raises `Busy` if another run holds it."""
    busy = f"another run works in {work}; wait for its end, or give another folder with --work"
    return hold_lock(work, LOCK, f"work folder {work}", busy)


@contextmanager
def hold_lock(folder: Path, name: str, what: str, busy: str) -> Iterator[None]:
    """Hold a file lock in a folder, made if absent. Raises `Busy` with text `busy`, or `WrongTable` about `what`."""
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
    """Raise `ChangedJob` unless the folder's checkpoint belongs to this job, or nothing was begun.

    `accept_change` accepts changed options; the sources and the parsing must stay the same.
    """
    known = read(work / JOB_FILE, Identity)
    now = msgspec.json.decode(msgspec.json.encode(identity), type=Identity)  # so that tuples equal lists
    if known is None and (work / CHECKPOINT).exists():
        raise ChangedJob(f"{work} holds a checkpoint of something else; give another folder with --work")
    if known is not None and known != now:
        beside = {each.name for each in work.iterdir()} - {LOCK, JOB_FILE, SPARK_LOG, CHECKPOINT}
        # Until something is read or written, a job may change freely.
        if beside or any((work / CHECKPOINT / "offsets").glob("[0-9]*")):
            way_out = "give another folder with --work to begin anew"
            for what in ("name", "project", "rows"):
                if getattr(known, what) != getattr(now, what):
                    changed = _changed_names(known.rows, now.rows) if what == "rows" else what
                    raise ChangedJob(f"{work} was made by another job ({changed} changed): {way_out}")
            if not accept_change:
                changed = _changed_names(known.options, now.options)
                way_out += ", or --accept-change to go on with the new ones"
                raise ChangedJob(f"{work} was made with other options ({changed} changed): {way_out}")
    if known != now:
        write(work / JOB_FILE, identity)


def read_standing(work: Path) -> RunPosition | None:
    """Return the position of the last run in a folder; None before its first batch."""
    return read(work / PROGRESS, RunPosition)


def read_begun(work: Path) -> Collection[str]:
    """Return the paths of tables that runs in a folder added to."""
    found = read(work / BEGUN, _Begun) or _Begun()
    return {os.path.join(work, each) if ":" not in each else each for each in found.tables}


def read_expected(work: Path) -> Expected:
    """Return the counts of expectations in a folder."""
    return read(work / EXPECTATIONS, Expected) or Expected()


def begin(work: Path, table: str) -> None:
    """Note a table that a run adds to. Paths inside the folder are relative, so it can be moved."""
    known = read_begun(work)
    if table not in known:
        write(work / BEGUN, _Begun(tables=tuple(sorted(each.removeprefix(f"{work}/") for each in {*known, table}))))


def write(path: Path, value: msgspec.Struct) -> None:
    """Replace a small file in one step, synced."""
    write_whole(Disk(), str(path), msgspec.json.format(msgspec.json.encode(value), indent=2))


def _changed_names(known: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    return ", ".join(sorted(name for name in known.keys() | now.keys() if known.get(name) != now.get(name)))


def read(path: Path, kind: type[T]) -> T | None:
    """Decode a small file; None if absent. Raises `ChangedJob` if it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ChangedJob(f"{path} cannot be read: {error}") from error
