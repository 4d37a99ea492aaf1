"""Progress of a run, as numbers and as lines on stderr, and its signal handlers."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple

import msgspec

EVERY_SECONDS = 5.0  # between two lines of progress
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class FinishedBatch(NamedTuple):
    """A finished batch."""

    number: int
    messages: int
    lag: int | None  # None if the source does not say


def _batch_of(told: Mapping[str, Any], begin: Mapping[str, int]) -> FinishedBatch:
    """Read a progress report by its offsets: Spark's own counts miss cached rows and count others twice."""
    sources: Sequence[Mapping[str, Any]] = told.get("sources") or ()
    names = ("startOffset", "endOffset", "latestOffset")
    starts, ends, latest = ([_numbers(each.get(name)) for each in sources] for name in names)
    # Spark reports the start of a first batch as the text "null".
    read = _span([begin or None if start is None else start for start in starts], ends)
    return FinishedBatch(
        number=int(told.get("batchId", 0)),
        messages=int(told.get("numInputRows", 0)) if read is None else read,
        lag=_span(ends, latest),
    )


def _span(begins: Sequence[Mapping[str, int] | None], ends: Sequence[Mapping[str, int] | None]) -> int | None:
    pairs = [(begin, end) for begin, end in zip(begins, ends, strict=True) if begin is not None and end is not None]
    if not pairs or len(pairs) < len(ends):
        return None
    return sum(max(0, at - begin.get(name, 0)) for begin, end in pairs for name, at in end.items())


def _numbers(offset: Any) -> dict[str, int] | None:
    if isinstance(offset, str):
        with suppress(msgspec.DecodeError):
            offset = msgspec.json.decode(offset)
    if not isinstance(offset, dict):
        return None
    found = {name: at for name, at in offset.items() if name != "topics"}  # the topic ids are beside them
    return found if all("/" in name and type(at) is int for name, at in found.items()) else None


@dataclass(slots=True)
class BatchProgress:
    """Counts finished batches and reports them from time to time."""

    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    begin: dict[str, int] = field(default_factory=dict)  # start offsets of topics never read, by `PROJECT/TOPIC`
    batches: int = 0
    messages: int = 0
    last: FinishedBatch | None = None
    _begun: float = field(init=False)
    _told: float = field(init=False)

    def __post_init__(self) -> None:
        self._begun = self._told = self.clock()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return self.clock() - self._begun

    def take(self, reports: Sequence[Mapping[str, Any]]) -> bool:
        """Count new batches that are not empty; return whether there were any."""
        seen = self.last.number if self.last else -1
        batches = (_batch_of(report, self.begin) for report in reports)
        new = [each for each in batches if each.number > seen and each.messages]
        for each in new:
            self.count(each)
        return bool(new)

    def count(self, batch: FinishedBatch) -> None:
        """Add a batch, and report the progress when the last report is long ago."""
        self.batches += 1
        self.messages += batch.messages
        self.last = batch
        if self.clock() - self._told < EVERY_SECONDS:
            return
        self._told = self.clock()
        rate = self.messages / self.seconds
        parts = [f"batch {batch.number}", f"messages {self.messages:,}", f"{rate:,.0f}/s"]
        if batch.lag is not None:
            parts.append(f"behind {batch.lag:,}")
            if batch.lag and rate >= 1:
                parts.append(f"about {batch.lag / rate:,.0f} s more")
        self.say(", ".join(parts))


@contextmanager
def told_by_signals(stopping: threading.Event, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Set `stopping` at the first signal, exit at the second. Yields a function that installs the handlers again."""

    def note_signal(number: int, _frame: FrameType | None) -> None:
        if stopping.is_set():
            os._exit(130)
        stopping.set()
        say(f"{signal.Signals(number).name}: ending after the batch at work; once more ends at once")

    def listen() -> None:
        for each in _SIGNALS:
            signal.signal(each, note_signal)

    before = [signal.getsignal(each) for each in _SIGNALS]
    listen()
    try:
        yield listen
    finally:
        for each, handler in zip(_SIGNALS, before, strict=True):
            signal.signal(each, handler)
