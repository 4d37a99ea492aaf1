"""A running job: its topics, its tables, and the batches of its one streaming query, each written exactly once."""

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StringType, StructType

from ams.pipeline import checkpoint
from ams.pipeline.checkpoint import CHECKPOINT, QUARANTINE, Counted, Expected, RunPosition
from ams.pipeline.columns import BROKEN, ORDER, SOURCE
from ams.pipeline.errors import Interrupted, WrongOption, WrongTable
from ams.pipeline.expectations import Expectation, check_rows
from ams.pipeline.message_parser import Parse, rows_of, split
from ams.pipeline.options import KEY_WINDOW_SECONDS, ResourceName, is_pattern
from ams.pipeline.payloads import Payload
from ams.pipeline.progress import BatchProgress
from ams.pipeline.root_cause import root_cause
from ams.pipeline.service_calls import open_service
from ams.pipeline.session import is_local, make_active, persist_rows
from ams.pipeline.tables import KEPT_RESULTS, Table

Handle = Callable[[DataFrame], None]  # writes a batch of messages; a batch may come again after a kill
Source = dict[str, str]  # options of `format("ams")` for the service and the project

RESUMES = "what is done stays done, the next run goes on behind it"
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
    # The batch or result at work:
    _batch: int | None = None  # None while a result is computed
    _kept: ExitStack = field(default_factory=ExitStack)  # frees cached rows
    _aside: list[DataFrame] = field(default_factory=list)
    _counts: dict[str, Counted] = field(default_factory=dict)
    _published: Counter[str] = field(default_factory=Counter)

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

    def cached(self, rows: DataFrame) -> DataFrame:
        """Cache rows until the batch ends."""
        return self._kept.enter_context(persist_rows(rows))

    def parse(self, messages: DataFrame, parse: Parse, schema: StructType) -> tuple[DataFrame, DataFrame]:
        """Parse a batch's messages into records with the columns of `schema`, and what is broken; both are cached."""
        return split(self.cached(rows_of(messages, parse, schema)), schema)

    def parsed(self, messages: DataFrame, parse: Parse, schema: StructType | None = None) -> DataFrame:
        """Return the records in a batch's messages; what cannot be parsed is set aside.

        Args:
            messages: Messages of `topic`.
            parse: A format, such as `payloads.Json`, or a function of a message's data and attributes.
            schema: Columns of the records that a function returns; a format has its own.
        """
        if schema is None:
            if not isinstance(parse, Payload):
                raise TypeError("a function that parses needs the schema of its records")
            schema = parse.record
        records, broken = self.parse(messages, parse, schema)
        self.set_aside(broken)
        return records

    def set_aside(self, broken: DataFrame) -> None:
        """Add rows (`columns.BROKEN`) to the quarantine table when the batch ends, exactly once."""
        self._aside.append(broken)

    def expect(self, rows: DataFrame, *expectations: Expectation) -> DataFrame:
        """Check and count rows of a batch or a result; return those that stay.

        Raises:
            CheckFailed: Too few rows are as expected. Expect before you write: then nothing of the batch is written.
            WrongOption: Rows of a result cannot be set aside, as it is computed anew each time.
        """
        where = "the result" if self._batch is None else f"batch {self._batch}"
        if self._batch is None and (aside := [each.name for each in expectations if each.sets_aside]):
            raise WrongOption("on_failure", f"expectation {aside[0]}: rows of a result cannot be set aside")
        passed, broken, counts = check_rows(rows, expectations, where, self.cached, self.say)
        self._counts |= counts
        if broken is not None:
            self.set_aside(broken)
        return passed

    def append(self, table: Table, rows: DataFrame) -> None:
        """Add rows of the batch to a table, exactly once. Call it once for each table; raises `WrongTable`."""
        assert self._batch is not None, "only batches are added to tables"
        is_begun = table.root in self._added or table.root in checkpoint.read_begun(self.work)
        if is_begun and not table.exists():  # its rows would be missing
            way_out = "put it back, or give another folder with --work to begin anew"
            behind = "the checkpoint is behind the messages it was made of"
            raise WrongTable(f"{table.root} is gone, and {behind}; {way_out}")
        self._added[table.root] += table.append(_without_nul(rows, table.partition_by), self._batch, self._query)
        checkpoint.begin(self.work, table.root)

    def replace(self, name: str, rows: DataFrame, partition_by: tuple[str, ...] = ()) -> None:
        """Replace a result table, or those of its partitions that are in `rows`."""
        self.result(name, rows.schema, partition_by).replace(_without_nul(rows, partition_by))

    def publish(self, rows: DataFrame, topic: str, *, create: bool = False, key_window: float | None = None) -> None:
        """Publish rows of the batch, each exactly once, in the order of their messages.

        Args:
            rows: `data` (string or binary) and, if wanted, `attributes` and `ordering_key`; messages of `topic`, or
                rows with the column `source`.
            topic: The topic, of the run's project.
            create: Make the topic if it does not exist.
            key_window: Seconds the service knows idempotency keys; default a day.

        Raises:
            StaleCheckpoint: The batch was left for longer than that, so some rows could be published twice.
        """
        from ams.pipeline.sink import publish  # it loads what only publishing needs
        from ams.pipeline.sink.writer import refuse_stale

        assert self._batch is not None, "a result is computed anew each time, and messages cannot be taken back"
        refuse_stale(self.work / CHECKPOINT, KEY_WINDOW_SECONDS if key_window is None else key_window)
        place = "source." if SOURCE in rows.columns else ""
        order = {f"_{name}": F.col(f"{place}{name}") for name in ORDER}
        sent = [name for name in ("data", "attributes", "ordering_key") if name in rows.columns]
        options = {**self.source, "topic": topic, "createTopics": str(create).lower()}
        if repeated := self._published[topic]:
            options["idempotencyKey"] = str(repeated)
        self._published[topic] += 1
        publish(rows.select(*sent, *(each.alias(name) for name, each in order.items())), options, tuple(order))

    def upsert(self, rows: DataFrame, table: str, key: Sequence[str]) -> None:
        """Insert rows into a table of PostgreSQL, or update its rows of the same `key`: one row for each key.

        `AMS_PIPELINE_DATABASE` names the database. Raises `WrongOption`, `WrongTable` and `PipelineError`.
        """
        from ams.pipeline.postgres import address, upsert

        texts = [each.name for each in rows.schema if isinstance(each.dataType, StringType)]
        upsert(_without_nul(rows.drop(SOURCE), texts), address(""), table, key)

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
                with self._step(None):
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
                with self._step(batch_id):
                    handle(rows)
                if refresh is not None and self.every is not None:
                    with self._step(None):
                        refresh()
            except Exception as error:
                self._failure = error
                raise
            finally:
                self._working = False

        writer = frame.writeStream.foreachBatch(batch).option("checkpointLocation", str(self.work / CHECKPOINT))
        trigger: dict[str, Any] = {"processingTime": self.every} if self.every else {"availableNow": True}
        return writer.trigger(**trigger).start()

    @contextmanager
    def _step(self, batch: int | None) -> Iterator[None]:
        """Do a batch, or a result if it is None; then store what was set aside and counted."""
        self._batch, self._aside, self._counts, self._published = batch, [], {}, Counter()
        with ExitStack() as self._kept:
            yield
            if self._aside:
                self.append(quarantine_of(self.spark, self.work), reduce(DataFrame.union, self._aside))
        known = checkpoint.read_expected(self.work)
        new = known.add_counts(self._counts, batch) if batch is not None else replace(known, result=self._counts)
        if self._counts and new != known:
            checkpoint.write(self.work / checkpoint.EXPECTATIONS, new)

    def _follow(self, query: StreamingQuery) -> None:
        try:
            while not query.awaitTermination(_LOOK_SECONDS):  # type: ignore[arg-type]  # whole seconds are too long
                scala: Any = self.spark.sparkContext._jsc
                # Without new messages the query would wait for ever.
                if scala.sc().isStopped() and not self.stopping.is_set():
                    raise Interrupted(f"Spark was stopped under the run: {RESUMES}")
                self._take_stock(query)
                if self.stopping.is_set() and not self._working and not query.status["isTriggerActive"]:
                    query.stop()
        except Exception:
            if not self.stopping.is_set():
                raise
        self._take_stock(query)

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


def _without_nul(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """Replace NUL characters in texts: PostgreSQL and names of folders refuse them."""
    texts = [name for name in names if isinstance(rows.schema[name].dataType, StringType)]
    return rows.withColumns({name: F.translate(name, "\0", "\ufffd") for name in texts}) if texts else rows
