"""The book of a client: a line for each call, with how long it waited and what it was answered."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TextIO

from demo.books import done_in, note

OK = "ok"
PUBLISH, PULL, ACKNOWLEDGE = "publish", "pull", "acknowledge"


class Refused(Exception):
    """An answer that is an error, or none at all; the text is what the service said."""


class Call(NamedTuple):
    """One call."""

    kind: str
    seconds: float
    said: str
    """`OK`, or what the service said instead."""
    texts: list[str]
    """What was published, pulled or acknowledged by it."""


class Book:
    """What a client writes."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    @contextmanager
    def call(self, kind: str, texts: Sequence[str] = ()) -> Iterator[list[str]]:
        """Write down the call of the block, which may say what it brought; an error is written too."""
        began, brought, said = time.monotonic(), list(texts), OK
        try:
            yield brought
        except Refused as refused:
            said = str(refused)
            raise
        finally:
            note(self._file, json.dumps(Call(kind, time.monotonic() - began, said, brought)))


def calls_in(book: Path) -> list[Call]:
    """Return what a client wrote."""
    return [Call(*json.loads(line)) for line in done_in(book)]
