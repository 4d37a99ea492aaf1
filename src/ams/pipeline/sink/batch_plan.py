"""Batches of a stream, kept in the checkpoint from before their first request is published until all are.

    CHECKPOINT/unpublished/batch-000007/part-00000-ID   requests of one task
    CHECKPOINT/unpublished/batch-000007/plan.json       which parts count, and whether all are published

Tasks write down their requests and publish nothing. When all tasks are done, the driver writes the plan and publishes
what it names. A batch that comes again is published from its plan, in however many partitions its rows come, and
whether they are the same or not. While there is no plan, nothing of the batch was published.

Payloads lie there readable for the owner only. All machines must see the folder by the same path.
"""

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec

from ams.pipeline.errors import PipelineError
from ams.pipeline.sink.requests import Chunk
from ams.storage.files import Disk, write_whole
from ams.tables.location import sync

FOLDER: Final = "unpublished"
PLAN: Final = "plan.json"
_LENGTH_BYTES: Final = 8
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Chunk).decode


class Part(msgspec.Struct, frozen=True):
    """The requests of one task."""

    file: str
    """Its name in the folder of the batch."""
    size: int
    """In bytes."""


class Plan(msgspec.Struct, frozen=True):
    """What a batch publishes."""

    project: str
    """Whose topics it publishes to."""
    key_prefix: str
    """What the idempotency keys of all its requests begin with."""
    parts: tuple[Part, ...]
    is_published: bool = False


@dataclass(frozen=True, slots=True)
class BatchFolder:
    """The folder of one batch."""

    path: Path

    @classmethod
    def of(cls, checkpoint: Path, batch: int) -> "BatchFolder":
        """Return the folder of a batch in a checkpoint."""
        return cls(checkpoint / FOLDER / f"batch-{batch:06d}")

    @property
    def plan(self) -> Plan | None:
        """The plan; None while nothing of the batch may be published."""
        try:
            return msgspec.json.decode((self.path / PLAN).read_bytes(), type=Plan)
        except FileNotFoundError:
            return None

    @property
    def can_be_repeated(self) -> bool:
        """Whether the batch may be done again at any age: all of it was published, or nothing yet."""
        plan = self.plan
        return self.path.is_dir() and (plan is None or plan.is_published)

    def keep(self, partition: int, chunks: Iterable[Chunk]) -> Part:
        """Write down the requests of a task, on stable storage; runs on executors.

        A task that is tried again, or twice at once, writes another file each time.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = f"part-{partition:05d}-{uuid4().hex}"
        with open(self.path / name, "xb", opener=_open_private) as file:
            for chunk in chunks:
                data = _encode(chunk)
                file.write(len(data).to_bytes(_LENGTH_BYTES, "big"))
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
            return Part(name, file.tell())

    def seal(self, plan: Plan) -> Plan:
        """Write the plan and return it; raise `PipelineError` where a part of it cannot be seen here."""
        for part in plan.parts:
            path = self.path / part.file
            if not path.is_file() or path.stat().st_size != part.size:
                raise PipelineError(
                    f"{path} is not as its task wrote it; the checkpoint of a stream that publishes must be on a file"
                    " system that all machines share"
                )
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write(plan)
        return plan

    def chunks(self, part: Part) -> Iterator[Chunk]:
        """Yield the requests of a part in their order."""
        with open(self.path / part.file, "rb") as file:
            while length := file.read(_LENGTH_BYTES):
                yield _decode(file.read(int.from_bytes(length, "big")))

    def finish(self, plan: Plan) -> None:
        """Note that all is published; what this batch and those before it kept goes."""
        # The plan stays until the next batch: this one comes again when Spark could not note its end.
        self._write(Plan(plan.project, plan.key_prefix, (), is_published=True))
        for each in self.path.glob("part-*"):
            each.unlink(missing_ok=True)
        for each in self.path.parent.glob("batch-*"):
            if each.name < self.path.name:
                shutil.rmtree(each, ignore_errors=True)

    def _write(self, plan: Plan) -> None:
        write_whole(Disk(), str(self.path / PLAN), msgspec.json.encode(plan))
        for each in (self.path.parent, self.path.parent.parent):  # the first batch makes them
            sync(str(each))


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
