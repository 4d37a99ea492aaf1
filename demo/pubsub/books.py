"""What came to subscribers, against what was published: a book has a line a message, with the time it came at."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from demo.books import done_in, note


class Balance(NamedTuple):
    """What became of the messages."""

    published: int
    received: int
    """Messages that came to Google's clients, each counted once."""
    lost: int
    """Messages that did not come to Google's clients, or not to the official library."""
    disorder: int
    """How often a message came after a later one of its key."""
    dead: int

    @property
    def is_right(self) -> bool:
        """Whether everything came to both in order, and just the broken message is put aside."""
        return self.received == self.published and not self.lost and not self.disorder and self.dead == 1


def receive(book: TextIO, text: str) -> None:
    """Write down that a message came, in one piece. The clock is that of the machine, the same for all programs."""
    note(book, f"{time.monotonic_ns()} {text}")


def balance(published: Sequence[str], subscribers: Iterable[Path], archive: Path, dead: Sequence[str]) -> Balance:
    """Compare."""
    streamed = _in_time(line for book in subscribers for line in done_in(book))
    read = _in_time(done_in(archive))
    missing = set(published) - (set(streamed) & set(read))
    return Balance(len(published), len(set(streamed)), len(missing), _disorder(streamed) + _disorder(read), len(dead))


def _in_time(lines: Iterable[str]) -> list[str]:
    """Return what came, in the order it came in."""
    came = [line.split(" ", 1) for line in lines]
    return [text for _, text in sorted(came, key=lambda each: int(each[0]))]


def _disorder(texts: Iterable[str]) -> int:
    """Count messages that came after a later one of their key; the same one may come again."""
    last: dict[str, int] = {}
    found = 0
    for text in texts:
        key, number = text.split()[:2]
        found += int(number) < last.get(key, 0)
        last[key] = max(int(number), last.get(key, 0))
    return found
