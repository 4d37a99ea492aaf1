"""The book of a worker: a line for each message that it has done, written before it acknowledges it."""

from pathlib import Path
from typing import TextIO


def note(book: TextIO, text: str) -> None:
    """Write down what was done, in one piece."""
    book.write(f"{text}\n")


def done_in(book: Path) -> list[str]:
    """Return what a worker has done; what it was killed in the middle of writing is none."""
    if not book.exists():
        return []
    return [line.removesuffix("\n") for line in book.read_text().splitlines(keepends=True) if line.endswith("\n")]
