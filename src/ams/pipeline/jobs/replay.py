"""The job `replay`: archived messages published again, also those that the service keeps no longer.

How far it is, is kept in its folder, slice by slice, so that it goes on where it was killed.
"""

import hashlib
import time
from pathlib import Path
from typing import Annotated

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ams.core.names import is_name, is_resource_name
from ams.pipeline import checkpoint
from ams.pipeline.errors import ChangedJob, StaleCheckpoint, WrongOption
from ams.pipeline.jobs.archive import Selection, read_archive
from ams.pipeline.jobs.base import Job
from ams.pipeline.options import KEY_WINDOW_SECONDS, moment
from ams.pipeline.run import Run, Stopped
from ams.pipeline.sink import publish
from ams.pipeline.sink.requests import with_attributes

FROM, OFFSET, TIME = "ams-replayed-from", "ams-replayed-offset", "ams-replayed-time"
"""Attributes of a replayed message: where it was (PROJECT/TOPIC), its offset there, and when it was published."""
FILE = "replay.json"
HARMLESS = frozenset({"create_topics", "key_window"})


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which archived messages are published again, and where."""

    archive: str
    """Folder of the archive."""
    topic: str
    """PROJECT/TOPIC the messages were archived from."""
    to: str
    """Topic they are published to, of the project in use."""
    start: str = ""
    """Publish time of the first, such as 2024-03-05T10:00:00Z; empty: from the oldest on."""
    stop: str = ""
    """Publish time before which they end; empty: to the newest."""
    from_offset: int = 0
    """Offset of the first."""
    to_offset: int = 2**63 - 1
    """Offset before which they end."""
    name: str = "replay"
    """Name of this replay; under another name the same messages are published once more."""
    slice: Annotated[int, msgspec.Meta(ge=1)] = 50_000
    """Offsets that are published between two notes of how far it is."""
    create_topics: bool = False
    """Make the topic if it does not exist, instead of failing."""
    key_window: float = KEY_WINDOW_SECONDS
    """Seconds the service knows idempotency keys: at most its `idempotency_window` and the time messages are kept."""

    def __post_init__(self) -> None:
        if len(self.place) != 2 or not is_name(self.place[0]) or not is_resource_name(self.place[1]):
            raise WrongOption("topic", f"{self.topic!r} is no PROJECT/TOPIC")
        if not is_resource_name(self.to):
            raise WrongOption("to", f"{self.to!r} is no name")
        if not is_name(self.name) or len(self.name) > 64:
            raise WrongOption("name", f"{self.name!r} is no name")
        for option in ("start", "stop"):
            text = getattr(self, option)
            if text and moment(text) is None:
                raise WrongOption(option, f"{text!r} is no time such as 2024-03-05T10:20:30Z")

    @property
    def place(self) -> list[str]:
        """Project and topic of the archived messages."""
        return self.topic.split("/")


class ReplayProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A replay under way. Its range of offsets is fixed when it begins, even if the archive grows."""

    replay: str  # identity of what is replayed; its idempotency keys begin with it
    messages: int
    start: int
    stop: int
    next: int  # where the slice at work begins
    begun: float  # when that slice was begun, in seconds since 1970

    @property
    def is_done(self) -> bool:
        """True if everything is published."""
        return self.next >= self.stop


def run(run: Run, options: ReplayOptions) -> None:
    """Publish archived messages again, each once, in their order, marked with where they were."""
    progress = _begin_or_resume(run, options)
    refuse_stale(progress, options.key_window)
    left = progress.messages
    if progress.next != progress.start:
        between = F.col("offset").between(progress.next, progress.stop - 1)
        left = 0 if progress.is_done else _select_messages(run.spark, options).where(between).count()
    while not progress.is_done:
        if run.stopping.is_set():
            raise Stopped
        end = min(progress.next + options.slice, progress.stop)
        rows = _select_messages(run.spark, options).where(F.col("offset").between(progress.next, end - 1))
        key = f"{progress.replay}/{progress.next}"
        told = {"topic": options.to, "idempotencyKey": key, "createTopics": str(options.create_topics)}
        publish(with_origin(rows), {**run.source, **told}, ["offset"])
        progress = msgspec.structs.replace(progress, next=end, begun=time.time())
        keep(run.work, progress)
        run.say(f"replay: offset {end} of {progress.start} to {progress.stop}")
    run.count(left)
    run.say(f"replay: messages {progress.messages} of {options.topic} in {options.to}")


def _select_messages(spark: SparkSession, options: ReplayOptions) -> DataFrame:
    project, topic = options.place
    start, stop = moment(options.start), moment(options.stop)
    first, last = (each.date().isoformat() if each else "" for each in (start, stop))
    rows = read_archive(spark, options.archive, Selection(project, (topic,), first, last))
    meant = F.col("offset").between(options.from_offset, options.to_offset - 1)
    if start:
        meant &= F.col("publish_time") >= F.lit(start)
    if stop:
        meant &= F.col("publish_time") < F.lit(stop)
    return rows.where(meant)


def with_origin(messages: DataFrame) -> DataFrame:
    """Return messages with attributes of their origin, and `offset` for the order."""
    utc = F.to_utc_timestamp("publish_time", F.current_timezone())
    marks = {
        FROM: F.concat_ws("/", "project", "topic"),
        OFFSET: F.col("offset").cast("string"),
        TIME: F.date_format(utc, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"),
    }
    return messages.select("data", with_attributes(marks).alias("attributes"), "ordering_key", "offset")


def read_progress(work: Path, replay: str) -> ReplayProgress | None:
    """Return the progress of a folder's replay, None before. Raises `ChangedJob` for another replay."""
    found = checkpoint.read(work / FILE, ReplayProgress)
    if found is not None and found.replay != replay:
        way_out = "give those again, or another folder (--work) for this one"
        raise ChangedJob(f"{work} is of a replay with other options; {way_out}")
    return found


def keep(work: Path, progress: ReplayProgress) -> None:
    """Store the progress."""
    work.mkdir(parents=True, exist_ok=True)
    checkpoint.write(work / FILE, progress)


def refuse_stale(progress: ReplayProgress, window: float) -> None:
    """Raise `StaleCheckpoint` if the current slice began before the idempotency window."""
    age = time.time() - progress.begun
    if not progress.is_done and age > window:
        raise StaleCheckpoint(
            f"the replay was left {age / 3600:.0f} hours ago within offsets {progress.next} and following, and the "
            f"service knows keys for {window / 3600:.0f} (key_window), so some could be published twice; look what the "
            "topic holds and replay the rest, by from_offset, in another folder"
        )


def _begin_or_resume(run: Run, options: ReplayOptions) -> ReplayProgress:
    told = {name: value for name, value in msgspec.structs.asdict(options).items() if name not in HARMLESS}
    replay = f"{options.name}/{hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:16]}"
    known = read_progress(run.work, replay)
    if known is not None:
        return known
    first, stop = F.coalesce(F.min("offset"), F.lit(0)), F.coalesce(F.max("offset") + 1, F.lit(0))
    [(start, end, count)] = _select_messages(run.spark, options).agg(first, stop, F.count(F.lit(1))).collect()
    progress = ReplayProgress(replay=replay, messages=count, start=start, stop=end, next=start, begun=time.time())
    keep(run.work, progress)
    return progress


JOB = Job("replay", "Publish archived messages again, marked, also beyond retention", ReplayOptions, run, HARMLESS)
