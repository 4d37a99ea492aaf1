"""One job at work: its folder, its checkpoint, its one streaming query, its end, and failures of Spark in one line."""

import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from ams.client import errors as client
from ams.pipeline import checkpoint, errors
from ams.pipeline.checkpoint import CHECKPOINT, QUARANTINE, Counted, Expected, Standing
from ams.pipeline.columns import BROKEN
from ams.pipeline.errors import Broken, Interrupted, WrongTable
from ams.pipeline.options import Name, is_pattern
from ams.pipeline.progress import Progress
from ams.pipeline.service import asked
from ams.pipeline.session import activated, is_local
from ams.pipeline.tables import KEPT_RESULTS, Table

_KNOWN = client.ClientError | errors.PipelineError | errors.WrongTable | errors.StoreFailed
KILLED = "KILLED"  # how the reason ends with which a master removes an application that somebody ended there
_LONGEST = 500  # characters of a cause that are shown
_OURS = re.compile(r"^\s*(?:ams|pyspark_ams)\.[\w.]*\b(?P<kind>[A-Z]\w+): (?P<text>.*)$", re.MULTILINE)
_PYTHON = re.compile(r"^(?P<kind>[A-Z]\w*(?:Error|Exception|Warning)): (?P<text>.*)$", re.MULTILINE)
_JAVA = re.compile(r"^Caused by: (?:[\w.$]+\.)?(?P<kind>[A-Z]\w+)(?:: (?P<text>.*))?$", re.MULTILINE)
_CODE = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_REMOVED = re.compile(r"Application has been killed\. Reason: (?P<text>.+)$|cluster scheduler: (?P<raised>.+)$", re.M)
_STATE = re.compile(r"\s*SQLSTATE: \w+")


def explained(error: BaseException) -> Exception:
    """Return the error to tell of what Spark or a batch raised: its root cause; a fault of a job stays what it is."""
    chain: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in chain:
        if isinstance(each, _KNOWN):
            return each
        chain.append(each)
        each = each.__cause__ or each.__context__
    if isinstance(error, Exception) and not isinstance(error, PySparkException | Py4JError | OSError):
        return error
    text = _text(error)
    return _of_ours(text) or errors.Failed(f"Spark gave up: {_cause(text)}")


def why_removed(log: Path, error: BaseException) -> str | None:
    """Return why the master of a cluster ended the application, as Spark's log or the error says; None: it did not."""
    try:
        said = log.read_text(errors="replace")
    except OSError:  # Spark talks elsewhere
        said = ""
    found = _REMOVED.search(f"{said}\n{error}\n{_text(error)}")
    return _shortened(found["text"] or found["raised"]) if found else None


def _text(error: BaseException) -> str:
    java = getattr(error, "java_exception", None)
    return f"{error}\n{java}" if java is not None else str(error)


def _of_ours(text: str) -> Exception | None:
    matches = list(_OURS.finditer(text))
    if not matches:
        return None
    kind, said = matches[-1]["kind"], _shortened(matches[-1]["text"])
    if kind == Broken.__name__:
        return errors.Failed(f"a message could not be read, and was not set aside: {said}")
    if kind == errors.WrongOption.__name__:
        option, _, reason = said.removeprefix("option ").partition(": ")
        return errors.WrongOption(option, reason)
    class_ = getattr(client, kind, None) or getattr(errors, kind, None)
    return class_(said) if isinstance(class_, type) and issubclass(class_, _KNOWN) else None


def _cause(text: str) -> str:
    """Return the line that says most: the last error of a Python worker, else Java's innermost, else the first."""
    for pattern in (_PYTHON, _JAVA):
        matches = [each for each in pattern.finditer(text) if each["text"]]
        if matches:
            return _shortened(f"{matches[-1]['kind']}: {matches[-1]['text']}")
    lines = [line for line in text.splitlines() if line.strip()]
    return _shortened(lines[0]) if lines else "no reason was told"


def _shortened(text: str) -> str:
    line = _STATE.sub("", _CODE.sub("", text.strip()))
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "..."


Handle = Callable[[DataFrame, int], None]
"""Writes a batch, known by its number; the same batch may come again after a kill."""
Source = dict[str, str]  # options of `format("ams")` that say which service and which project

_LOOK_SECONDS = 0.3  # how often a running query is looked at


class Stopped(Exception):
    """The run was told to end; what is done is done, and the next run goes on behind it."""


def to_stderr(text: str) -> None:
    """Tell whoever watches, beside the results."""
    print(text, file=sys.stderr, flush=True)


def quarantine_of(spark: SparkSession, work: Path) -> Table:
    """Return the table of what a run in a folder has set aside (`columns.BROKEN`), by topic."""
    return Table(spark, str(work / QUARANTINE), BROKEN, ("topic",))


@dataclass(slots=True)
class Run:
    """What a job has while it runs; the folder `work` is its whole memory."""

    spark: SparkSession
    work: Path
    source: Source
    every: str | None = None
    """The interval between batches of a job that goes on; None for one that ends when it has caught up."""
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the run is to end after the batch at work."""
    say: Callable[[str], None] = to_stderr
    skip_lost: bool = False  # whether to go on, with a warning, where messages are kept no longer that were not read
    progress: Progress = field(init=False)
    _expected: Expected = field(init=False)
    _query: str = ""
    _added: Counter[str] = field(default_factory=Counter)
    _working: bool = False
    _failure: BaseException | None = None

    def __post_init__(self) -> None:
        self.progress = Progress(self.say)
        self._expected = checkpoint.read_expected(self.work)

    def topic(self, *names: str, **options: str) -> DataFrame:
        """Return topics of the project as one stream of `columns.MESSAGES`, from their oldest message on.

        A name with `*`, `?` or `[...]` stands for all topics like it, also later ones. `options` are those of
        `format("ams")`; `subscription` takes the place of names.
        """
        begin = {} if options.keys() & {"startingOffsets", "startingTimestamp"} else {"startingOffsets": "earliest"}
        context = self.spark.sparkContext
        # All cores of a cluster read a batch; on this machine, one task for each topic is quick enough.
        spread = {} if is_local(context.master or "local") else {"minPartitions": str(context.defaultParallelism)}
        given = {**begin, **spread, **self.source, **options}
        if self.skip_lost:
            given["failOnDataLoss"] = "false"
        if names:
            given["topicPattern" if any(map(is_pattern, names)) else "topic"] = ",".join(names)
        if "topic" in given and given.get("startingOffsets") == "earliest" and not (self.work / CHECKPOINT).exists():
            with asked(self.source) as (service, project):
                for topic in (Name(project, name) for name in names if "/" not in name):
                    self.progress.begin[str(topic)] = service.bounds(topic).first
        return activated(self.spark).readStream.format("ams").options(**given).load()

    def table(self, name: str, schema: StructType, partition_by: tuple[str, ...] = ()) -> Table:
        """Return a table of this run that batches are added to."""
        return Table(self.spark, str(self.work / "tables" / name), schema, partition_by)

    def result(self, name: str, schema: StructType, partition_by: tuple[str, ...] = ()) -> Table:
        """Return a table of this run whose partitions are replaced."""
        return Table(self.spark, str(self.work / "results" / name), schema, partition_by, keep=KEPT_RESULTS)

    def append(self, table: Table, batch: DataFrame, batch_id: int) -> None:
        """Add a batch of this run's query to a table, exactly once; raise `WrongTable` for one that is gone."""
        is_begun = table.root in self._added or table.root in checkpoint.read_begun(self.work)
        if is_begun and not table.exists():  # its rows would be missing
            raise WrongTable(
                f"{table.root} is gone, and the checkpoint is behind the messages it was made of; put it back, or "
                "give another folder with --work to begin anew"
            )
        self._added[table.root] += table.append(batch, batch_id, self._query)
        checkpoint.begin(self.work, table.root)

    def quarantine(self, broken: DataFrame, batch_id: int) -> None:
        """Set aside what could not be read (`columns.BROKEN`), exactly once."""
        self.append(quarantine_of(self.spark, self.work), broken, batch_id)

    def expect(self, counts: Mapping[str, Counted], batch_id: int | None = None) -> None:
        """Remember how often expectations held of the rows of a batch, once; without one, of the result of all rows."""
        known = checkpoint.read_expected(self.work)
        new = replace(known, result=counts) if batch_id is None else known.added(counts, batch_id)
        if counts and new != known:
            checkpoint.write(self.work / checkpoint.EXPECTATIONS, new)

    def expected(self) -> dict[str, Counted]:
        """Return how often expectations held of the rows of this run, and of the result as it is now."""
        now, before = checkpoint.read_expected(self.work), self._expected.rows
        new = {name: each - before.get(name, checkpoint.NOTHING) for name, each in now.rows.items()}
        return {name: each for name, each in {**new, **now.result}.items() if each.rows}

    def count(self, messages: int) -> None:
        """Count messages that were read otherwise than by the stream of this run."""
        self.progress.messages += messages

    def counts(self) -> tuple[int, int]:
        """Return how many records this run added to tables, and how many things it set aside."""
        broken = self._added[str(self.work / QUARANTINE)]
        return self._added.total() - broken, broken

    def stream(self, frame: DataFrame, handle: Handle, refresh: Callable[[], None] | None = None) -> None:
        """Run the one streaming query of this run: `handle` for each batch, `refresh` whenever it has caught up.

        Returns when it has caught up. Raises `Stopped` when it was told to end, which a batch at work is not kept
        from being done by, and the root cause as a `ClientError` or `PipelineError` when Spark gives up.
        """
        try:
            self._follow(self._start(frame, handle, refresh))
            if self.stopping.is_set():
                raise Stopped
            if refresh is not None and self.every is None:
                refresh()
        except Stopped:
            raise
        except Exception as error:
            if self.stopping.is_set():
                raise Stopped from error
            raise explained(self._failure or error) from error

    def _start(self, frame: DataFrame, handle: Handle, refresh: Callable[[], None] | None) -> StreamingQuery:
        def batch(rows: DataFrame, batch_id: int) -> None:
            if self.stopping.is_set():
                raise Stopped  # before anything of this batch is done: the next run begins with it
            self._working = True
            try:
                self._query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or self._query
                handle(rows, batch_id)
                if refresh is not None and self.every is not None:
                    refresh()
            except Exception as error:
                self._failure = error
                raise
            finally:
                self._working = False

        writer = frame.writeStream.foreachBatch(batch).option("checkpointLocation", str(self.work / CHECKPOINT))
        trigger: dict[str, Any] = {"processingTime": self.every} if self.every else {"availableNow": True}
        return writer.trigger(**trigger).start()

    def _follow(self, query: StreamingQuery) -> None:
        while not self._ended(query):
            scala: Any = self.spark.sparkContext._jsc
            if scala.sc().isStopped() and not self.stopping.is_set():  # without new messages the query would wait on
                after = "what is done stays done, the next run goes on behind it"
                raise Interrupted(f"Spark was stopped under the run: {after}")
            self._take_stock(query)
            if self.stopping.is_set() and not self._working and not query.status["isTriggerActive"]:
                query.stop()
        self._take_stock(query)

    def _ended(self, query: StreamingQuery) -> bool:
        try:
            return bool(query.awaitTermination(_LOOK_SECONDS))  # type: ignore[arg-type]  # seconds; whole ones are too long
        except Exception:
            if self.stopping.is_set():
                return True
            raise

    def _take_stock(self, query: StreamingQuery) -> None:
        try:
            if not self.progress.take([dict(each) for each in query.recentProgress]):
                return
        except ValueError:  # of reports that are not complete yet
            return
        last = self.progress.last
        before = checkpoint.read_standing(self.work)
        if last is None or (before is not None and before.batch >= last.number):
            return
        messages = (before.messages if before else 0) + last.messages
        time = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        standing = Standing(batch=last.number, time=time, messages=messages, lag=last.lag)
        checkpoint.write(self.work / checkpoint.PROGRESS, standing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run that can be started, after everything that can be checked was."""

    name: str
    summary: str
    run: "Callable[[Run], None]"
    rows: Mapping[str, Any] = field(default_factory=dict)  # see `ams.pipeline.checkpoint.Identity`
    options: Mapping[str, Any] = field(default_factory=dict)
    lines: Sequence[str] = ()
