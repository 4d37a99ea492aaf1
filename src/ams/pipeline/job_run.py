"""Runs one job: work folder, checkpoint, Spark, signals, the streaming query, and failures in one line."""

import logging
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
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
from ams.pipeline.checkpoint import CHECKPOINT, QUARANTINE, SPARK_LOG, Counted, Expected, Identity, RunPosition
from ams.pipeline.columns import BROKEN
from ams.pipeline.errors import Broken, Failed, Interrupted, WrongTable
from ams.pipeline.options import ResourceName, is_pattern
from ams.pipeline.progress import BatchProgress, told_by_signals
from ams.pipeline.service_calls import open_service
from ams.pipeline.session import is_local, local_session, make_active
from ams.pipeline.tables import KEPT_RESULTS, Table

_DOMAIN_ERRORS = client.ClientError | errors.PipelineError | errors.WrongTable | errors.StoreFailed
KILLED = "KILLED"  # ends the master's reason when somebody killed the application there
RESUMES = "what is done stays done, the next run goes on behind it"
_CAUSE_CHARACTERS = 500  # of a cause in an error
_OUR_ERROR = re.compile(r"^\s*(?:ams|pyspark_ams)\.[\w.]*\b(?P<kind>[A-Z]\w+): (?P<text>.*)$", re.MULTILINE)
_PYTHON = re.compile(r"^(?P<kind>[A-Z]\w*(?:Error|Exception|Warning)): (?P<text>.*)$", re.MULTILINE)
_JAVA = re.compile(r"^Caused by: (?:[\w.$]+\.)?(?P<kind>[A-Z]\w+)(?:: (?P<text>.*))?$", re.MULTILINE)
_CODE = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_REMOVED = re.compile(r"Application has been killed\. Reason: (?P<text>.+)$|cluster scheduler: (?P<raised>.+)$", re.M)
_STATE = re.compile(r"\s*SQLSTATE: \w+")


def root_cause(error: BaseException) -> Exception:
    """Return the root cause of an error of Spark or a batch; a bug in a job is returned unchanged."""
    chain: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in chain:
        if isinstance(each, _DOMAIN_ERRORS):
            return each
        chain.append(each)
        each = each.__cause__ or each.__context__
    if isinstance(error, Exception) and not isinstance(error, PySparkException | Py4JError | OSError):
        return error
    text = _text(error)
    return _of_ours(text) or Failed(f"Spark gave up: {_cause(text)}")


def why_removed(log: Path, error: BaseException) -> str | None:
    """Return why a cluster's master removed the application, from Spark's log or the error; None if it did not."""
    try:
        said = log.read_text(errors="replace")
    except OSError:  # Spark logs elsewhere
        said = ""
    found = _REMOVED.search(f"{said}\n{error}\n{_text(error)}")
    return _shorten(found["text"] or found["raised"]) if found else None


def _text(error: BaseException) -> str:
    java = getattr(error, "java_exception", None)
    return f"{error}\n{java}" if java is not None else str(error)


def _of_ours(text: str) -> Exception | None:
    matches = list(_OUR_ERROR.finditer(text))
    if not matches:
        return None
    kind, said = matches[-1]["kind"], _shorten(matches[-1]["text"])
    if kind == Broken.__name__:
        return Failed(f"a message could not be read, and was not set aside: {said}")
    if kind == errors.WrongOption.__name__:
        option, _, reason = said.removeprefix("option ").partition(": ")
        return errors.WrongOption(option, reason)
    class_ = getattr(client, kind, None) or getattr(errors, kind, None)
    return class_(said) if isinstance(class_, type) and issubclass(class_, _DOMAIN_ERRORS) else None


def _cause(text: str) -> str:
    """Return the best line: the last error of a Python worker, else Java's innermost, else the first line."""
    for pattern in (_PYTHON, _JAVA):
        matches = [each for each in pattern.finditer(text) if each["text"]]
        if matches:
            return _shorten(f"{matches[-1]['kind']}: {matches[-1]['text']}")
    lines = [line for line in text.splitlines() if line.strip()]
    return _shorten(lines[0]) if lines else "no reason was told"


def _shorten(text: str) -> str:
    line = _STATE.sub("", _CODE.sub("", text.strip()))
    return line if len(line) <= _CAUSE_CHARACTERS else line[:_CAUSE_CHARACTERS] + "..."


Handle = Callable[[DataFrame, int], None]  # writes a batch, given its number; a batch may come again after a kill
Source = dict[str, str]  # options of `format("ams")` for the service and the project

_LOOK_SECONDS = 0.3  # between two checks of a running query


class Stopped(Exception):
    """The run was stopped; the next run continues after the finished batches."""


def to_stderr(text: str) -> None:
    """Print a line to stderr."""
    print(text, file=sys.stderr, flush=True)


def quarantine_of(spark: SparkSession, work: Path) -> Table:
    """Return a run's quarantine table (`columns.BROKEN`), partitioned by topic."""
    return Table(spark, str(work / QUARANTINE), BROKEN, ("topic",))


@dataclass(slots=True)
class Run:
    """The context of a running job; all its state is in the folder `work`."""

    spark: SparkSession
    work: Path
    source: Source
    every: str | None = None  # the interval between batches; None for a run that ends when it has caught up
    stopping: threading.Event = field(default_factory=threading.Event)  # set to end the run after the current batch
    say: Callable[[str], None] = to_stderr
    skip_lost: bool = False  # warn and go on if unread messages expired
    progress: BatchProgress = field(init=False)
    _expected: Expected = field(init=False)
    _query: str = ""
    _added: Counter[str] = field(default_factory=Counter)
    _working: bool = False
    _failure: BaseException | None = None

    def __post_init__(self) -> None:
        self.progress = BatchProgress(self.say)
        self._expected = checkpoint.read_expected(self.work)

    def topic(self, *names: str, **options: str) -> DataFrame:
        """Return topics of the project as one stream of `columns.MESSAGES`, from the oldest message.

        A name with `*`, `?` or `[...]` is a pattern, also for later topics. `options` are those of `format("ams")`;
        `subscription` replaces the names.
        """
        begin = {} if options.keys() & {"startingOffsets", "startingTimestamp"} else {"startingOffsets": "earliest"}
        context = self.spark.sparkContext
        # On a cluster all cores read a batch; locally one task per topic is fast enough.
        spread = {} if is_local(context.master or "local") else {"minPartitions": str(context.defaultParallelism)}
        given = {**begin, **spread, **self.source, **options}
        if self.skip_lost:
            given["failOnDataLoss"] = "false"
        if names:
            given["topicPattern" if any(map(is_pattern, names)) else "topic"] = ",".join(names)
        if "topic" in given and given.get("startingOffsets") == "earliest" and not (self.work / CHECKPOINT).exists():
            with open_service(self.source) as (service, project):
                for topic in (ResourceName(project, name) for name in names if "/" not in name):
                    self.progress.begin[str(topic)] = service.bounds(topic).first
        return make_active(self.spark).readStream.format("ams").options(**given).load()

    def table(self, name: str, schema: StructType, partition_by: tuple[str, ...] = ()) -> Table:
        """Return a table that takes this run's batches."""
        return Table(self.spark, str(self.work / "tables" / name), schema, partition_by)

    def result(self, name: str, schema: StructType, partition_by: tuple[str, ...] = ()) -> Table:
        """Return a result table, whose partitions are replaced."""
        return Table(self.spark, str(self.work / "results" / name), schema, partition_by, keep=KEPT_RESULTS)

    def append(self, table: Table, batch: DataFrame, batch_id: int) -> None:
        """Add a batch of this run's query to a table, exactly once. Raises `WrongTable` if the table is gone."""
        is_begun = table.root in self._added or table.root in checkpoint.read_begun(self.work)
        if is_begun and not table.exists():  # its rows would be missing
            way_out = "put it back, or give another folder with --work to begin anew"
            behind = "the checkpoint is behind the messages it was made of"
            raise WrongTable(f"{table.root} is gone, and {behind}; {way_out}")
        self._added[table.root] += table.append(batch, batch_id, self._query)
        checkpoint.begin(self.work, table.root)

    def quarantine(self, broken: DataFrame, batch_id: int) -> None:
        """Add unreadable messages (`columns.BROKEN`) to the quarantine table, exactly once."""
        self.append(quarantine_of(self.spark, self.work), broken, batch_id)

    def expect(self, counts: Mapping[str, Counted], batch_id: int | None = None) -> None:
        """Store a batch's counts of expectations, once; without a batch, those of the result of all rows."""
        known = checkpoint.read_expected(self.work)
        new = replace(known, result=counts) if batch_id is None else known.add_counts(counts, batch_id)
        if counts and new != known:
            checkpoint.write(self.work / checkpoint.EXPECTATIONS, new)

    def expectation_counts(self) -> dict[str, Counted]:
        """Return the counts of expectations in this run, and in the current result."""
        now, before = checkpoint.read_expected(self.work), self._expected.rows
        new = {name: each - before.get(name, checkpoint.NO_ROWS) for name, each in now.rows.items()}
        return {name: each for name, each in {**new, **now.result}.items() if each.rows}

    def count(self, messages: int) -> None:
        """Count messages that were not read by this run's stream."""
        self.progress.messages += messages

    def counts(self) -> tuple[int, int]:
        """Return how many records this run added to tables, and how many rows to quarantine."""
        broken = self._added[str(self.work / QUARANTINE)]
        return self._added.total() - broken, broken

    def stream(self, frame: DataFrame, handle: Handle, refresh: Callable[[], None] | None = None) -> None:
        """Run this run's one streaming query: `handle` for each batch, `refresh` whenever it has caught up.

        Returns when it has caught up. Raises `Stopped` after the current batch when the run is stopped, and the root
        cause as a `ClientError` or `PipelineError` when Spark gives up.
        """
        try:
            self._follow(self._start(frame, handle, refresh))
            if self.stopping.is_set():
                raise Stopped
            if refresh is not None and self.every is None:
                refresh()
        except Exception as error:
            if self.stopping.is_set():
                raise Stopped from error
            raise root_cause(self._failure or error) from error

    def _start(self, frame: DataFrame, handle: Handle, refresh: Callable[[], None] | None) -> StreamingQuery:
        def batch(rows: DataFrame, batch_id: int) -> None:
            if self.stopping.is_set():
                raise Stopped  # nothing of this batch is done: the next run begins with it
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
        while not self._has_ended(query):
            scala: Any = self.spark.sparkContext._jsc
            # Without new messages the query would wait for ever.
            if scala.sc().isStopped() and not self.stopping.is_set():
                raise Interrupted(f"Spark was stopped under the run: {RESUMES}")
            self._take_stock(query)
            if self.stopping.is_set() and not self._working and not query.status["isTriggerActive"]:
                query.stop()
        self._take_stock(query)

    def _has_ended(self, query: StreamingQuery) -> bool:
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
        except ValueError:  # an incomplete report
            return
        last = self.progress.last
        before = checkpoint.read_standing(self.work)
        if last is None or (before is not None and before.batch >= last.number):
            return
        messages = (before.messages if before else 0) + last.messages
        time = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        standing = RunPosition(batch=last.number, time=time, messages=messages, lag=last.lag)
        checkpoint.write(self.work / checkpoint.PROGRESS, standing)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A validated run, ready to start."""

    name: str
    summary: str
    run: "Callable[[Run], None]"
    rows: Mapping[str, Any] = field(default_factory=dict)  # see `ams.pipeline.checkpoint.Identity`
    options: Mapping[str, Any] = field(default_factory=dict)
    lines: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Settings of a run."""

    work: Path
    project: str
    source: Source
    every: str | None = None
    accept_change: bool = False
    skip_lost: bool = False
    master: str | None = None  # Spark's master, such as `spark://HOST:7077`; None for local
    memory: str = "1g"
    settings: Mapping[str, str]  # Spark settings, which override ours
    debug: bool = False
    say: Callable[[str], None] = to_stderr


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of a run."""

    name: str
    messages: int
    records: int  # rows added to tables; other sinks are not counted
    broken: int
    expectations: Mapping[str, Counted]
    batches: int
    seconds: float
    stopped: bool

    def __str__(self) -> str:
        counts = f"messages {self.messages} records {self.records} broken {self.broken} batches {self.batches}"
        line = f"{self.name}: {counts} seconds {self.seconds:.1f}{' (stopped)' if self.stopped else ''}"
        held = (f"expectation {name}: rows {it.rows} failed {it.failed}" for name, it in self.expectations.items())
        return "\n".join([line, *held])


def start(plan: RunPlan, setup: Setup) -> RunResult:
    """Run a plan to its end, or until SIGTERM or Ctrl-C; a second signal exits at once with code 130.

    Raises `Busy`, `ChangedDefinition`, the `ClientError` or `PipelineError` that ended the run, and `Interrupted` if
    the signal ended Spark too or a cluster's master removed the application.
    """
    identity = Identity(name=plan.name, project=setup.project, rows=plan.rows, options=plan.options)
    stopping = threading.Event()
    ends = ends_told(plan.name, stopping, setup.work / SPARK_LOG)
    with checkpoint.lock_work_folder(setup.work), told_by_signals(stopping, setup.say) as listen, ends:
        checkpoint.guard(setup.work, identity, accept_change=setup.accept_change)
        with _session(plan, setup) as spark:
            listen()  # Spark has replaced the signal handlers
            run = Run(spark, setup.work, setup.source, setup.every, stopping, setup.say, skip_lost=setup.skip_lost)
            stopped = False
            try:
                plan.run(run)
            except Stopped:
                stopped = True
            except Exception as error:
                raise root_cause(error) from error
            done, stopped = run.progress, stopped and run.every is None
            counts = done.messages, *run.counts(), run.expectation_counts(), done.batches, done.seconds
            return RunResult(plan.name, *counts, stopped)


@contextmanager
def ends_told(name: str, stopping: threading.Event, log: Path) -> Iterator[None]:
    """Raise `Interrupted` for errors that come from stopping the run or its Spark."""
    try:
        yield
    except Exception as error:
        if stopping.is_set():
            raise Interrupted(f"{name} was ended together with its Spark: {RESUMES}") from error
        reason = why_removed(log, error)  # only Spark's log says that a cluster's master removed the application
        if reason is None:
            raise
        if reason.endswith(KILLED):
            raise Interrupted(f"{name} was ended by Spark's master: {reason}; {RESUMES}") from error
        raise Failed(f"Spark gave up: {reason} ({log} and the logs of executors say why)") from error


@contextmanager
def _session(plan: RunPlan, setup: Setup) -> Iterator[SparkSession]:
    settings = {**setup.settings, **({"spark.master": setup.master} if setup.master else {})}
    log = None if setup.debug else setup.work / SPARK_LOG
    with _stderr_in(log) if log else nullcontext():
        try:
            spark = local_session(f"ams {plan.name}", memory=setup.memory, settings=settings)
        except (PySparkException, Py4JError) as error:
            raise Failed(f"Spark did not start; {'stderr' if log is None else log} says why") from error
    with _errors_in(log, spark) if log else nullcontext():
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def _errors_in(log: Path, spark: SparkSession) -> Iterator[None]:
    """Send PySpark's log lines of this process to the log: when Java is killed, each open connection logs an error."""
    handler = logging.FileHandler(log, delay=True)
    logging.getLogger().addHandler(handler)
    server: Any = spark.sparkContext._accumulatorServer  # the accumulator server would print its errors
    server.handle_error = lambda *_: logging.getLogger(__name__).exception("sums from Java")
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()


@contextmanager
def _stderr_in(file: Path) -> Iterator[None]:
    """Redirect the stderr of child processes to a file, so that ours has only our lines."""
    sys.stderr.flush()
    ours = os.dup(2)
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(ours, 2)
            os.close(ours)
