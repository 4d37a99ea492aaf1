"""Books of workers: a line for each message, written before it is acknowledged; and what they add up to."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO


class Balance(NamedTuple):
    """Sums over the books of a demo in which workers are killed."""

    published: int
    received: int
    """Different messages that workers wrote down."""
    lost: int
    repeated: int
    """Lines about a message that is in the books already: a killed worker's messages come again."""
    dead: int
    """Messages in the dead letter topic."""
    disorder: int = 0
    """Messages that came after a later one of their key."""

    @property
    def is_right(self) -> bool:
        """Return whether nothing is lost, all is in order, and just the broken message is a dead letter."""
        return not self.lost and not self.disorder and self.dead == 1


def note(book: TextIO, text: str) -> None:
    """Write a line, in one piece."""
    book.write(f"{text}\n")


def note_arrival(book: TextIO, text: str) -> None:
    """Write a line with the time; the clock is the machine's, the same for all programs."""
    note(book, f"{time.monotonic_ns()} {text}")


def lines_of(book: Path) -> list[str]:
    """Return the lines of a book, without a last one that a kill cut off."""
    if not book.exists():
        return []
    return [line.removesuffix("\n") for line in book.read_text().splitlines(keepends=True) if line.endswith("\n")]


def balance_jobs(published: Sequence[str], books: Iterable[Path], dead: Sequence[str]) -> Balance:
    """Compare books of done jobs with what was published; a job is lost that is neither done nor a dead letter."""
    done = Counter(job for book in books for job in lines_of(book))
    lost = set(published) - done.keys() - set(dead)
    return Balance(len(published), len(done), len(lost), done.total() - len(done), len(dead))


def balance_streams(published: Sequence[str], streams: Iterable[Path], archive: Path, dead: Sequence[str]) -> Balance:
    """Compare books of arrivals; a message is lost that did not come both to the streams and to the archive."""
    streamed = _in_order(line for book in streams for line in lines_of(book))
    read = _in_order(lines_of(archive))
    found, lost = set(streamed), set(published) - (set(streamed) & set(read))
    repeated = len(streamed) - len(found)
    return Balance(len(published), len(found), len(lost), repeated, len(dead), _disorder(streamed) + _disorder(read))


def _in_order(lines: Iterable[str]) -> list[str]:
    """Return the texts of arrivals, the earliest first."""
    came = [line.split(" ", 1) for line in lines]
    return [text for _, text in sorted(came, key=lambda each: int(each[0]))]


def _disorder(texts: Iterable[str]) -> int:
    """Count messages that came after a later one of their key; the same message may come again."""
    last: dict[str, int] = {}
    found = 0
    for text in texts:
        key, number = text.split()[:2]
        found += int(number) < last.get(key, 0)
        last[key] = max(int(number), last.get(key, 0))
    return found
