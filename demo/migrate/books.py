"""Books of clients: a line for each call, with how long it waited and what it was answered; and what they add up to."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TextIO

from demo.books import lines_of, note

OK = "ok"
PUBLISH, PULL, ACKNOWLEDGE = "publish", "pull", "acknowledge"


class Refused(Exception):
    """An answer that is an error, or no answer; the text is what the service said."""


class Call(NamedTuple):
    """One call."""

    kind: str
    seconds: float
    said: str
    """`OK`, or what the service said instead."""
    texts: list[str]
    """Texts published, pulled or acknowledged by it."""


class Book:
    """The book that a client writes."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    @contextmanager
    def call(self, kind: str, texts: Sequence[str] = ()) -> Iterator[list[str]]:
        """Write down the call of the block, which may add texts; an error is written too."""
        began, brought, said = time.monotonic(), list(texts), OK
        try:
            yield brought
        except Refused as refused:
            said = str(refused)
            raise
        finally:
            note(self._file, json.dumps(Call(kind, time.monotonic() - began, said, brought)))


class Balance(NamedTuple):
    """Sums over the books of all clients."""

    published: int
    lost: list[str]
    """Texts that were stored, as the service said, and did not come out."""
    repeated: list[str]
    """Texts that came again when it was confirmed that they are acknowledged."""
    refused: list[str]
    """Answers that were errors, each with the client that got it."""
    pause: float
    """Seconds that the longest call took."""


def balance(publishers: Iterable[Path], consumers: Iterable[Path], pushed: Mapping[str, int]) -> Balance:
    """Compare the books; `pushed` says how often each text came to the receiver of pushes, who confirms each."""
    sent, got = ({book.stem: _calls_in(book) for book in books} for books in (publishers, consumers))
    calls = [(name, each) for calls in (sent, got) for name, made in calls.items() for each in made]
    published = [text for made in sent.values() for each in made for text in _texts(each, PUBLISH)]
    received = {text for made in got.values() for each in made for text in _texts(each, PULL)} | pushed.keys()
    repeated = [text for made in got.values() for text in _repeated(made)]
    return Balance(
        len(published),
        [text for text in published if text not in received],
        repeated + [text for text, times in pushed.items() if times > 1],
        [f"{name}: {each.kind}: {each.said}" for name, each in calls if each.said != OK],
        max((each.seconds for _, each in calls), default=0.0),
    )


def _calls_in(book: Path) -> list[Call]:
    return [Call(*json.loads(line)) for line in lines_of(book)]


def _texts(call: Call, kind: str) -> Sequence[str]:
    return call.texts if call.kind == kind and call.said == OK else ()


def _repeated(calls: Sequence[Call]) -> list[str]:
    """Return what one consumer got after it was confirmed that it is acknowledged."""
    confirmed: set[str] = set()
    found = []
    for each in calls:
        found += [text for text in _texts(each, PULL) if text in confirmed]
        confirmed.update(_texts(each, ACKNOWLEDGE))
    return found
