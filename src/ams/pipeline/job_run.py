"""Starts runs: work folder, Spark, signals, and the result in one line."""

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ams.pipeline import checkpoint
from ams.pipeline.checkpoint import SPARK_LOG, Counted, Identity
from ams.pipeline.errors import Failed, Interrupted
from ams.pipeline.jobs.base import Job
from ams.pipeline.progress import told_by_signals
from ams.pipeline.root_cause import root_cause, why_removed
from ams.pipeline.run import RESUMES, Run, Source, Stopped, to_stderr
from ams.pipeline.session import local_session

KILLED = "KILLED"  # ends the master's reason when somebody killed the application there


class RunPlan:
    """A validated run of a job, ready to start."""

    def __init__(self, job: Job[Any], name: str, options: msgspec.Struct) -> None:
        values: dict[str, Any] = msgspec.to_builtins(options)
        self.name, self.summary = name, job.summary
        self.run: Callable[[Run], None] = lambda run: job.run(run, options)
        self.rows = {"job": job.name}  # see `ams.pipeline.checkpoint.Identity`; options likewise
        self.options = {option: value for option, value in values.items() if option not in job.harmless}
        shown = (f"option   {option} = {msgspec.json.encode(value).decode()}" for option, value in values.items())
        self.lines = [f"job      {job.name}: {job.summary}", *shown]


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

    Raises `Busy`, `ChangedJob`, the `ClientError` or `PipelineError` that ended the run, and `Interrupted` if
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
