"""Signals that tell a run to end in order."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def told_by_signals(stopping: threading.Event, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Set `stopping` at the first signal and end at once at the second; yields what takes the signals (again)."""

    def told(number: int, _frame: FrameType | None) -> None:
        if stopping.is_set():
            os._exit(130)
        stopping.set()
        say(f"{signal.Signals(number).name}: ending after the batch at work; once more ends at once")

    def listen() -> None:
        for each in _SIGNALS:
            signal.signal(each, told)

    before = [signal.getsignal(each) for each in _SIGNALS]
    listen()
    try:
        yield listen
    finally:
        for each, handler in zip(_SIGNALS, before, strict=True):
            signal.signal(each, handler)
