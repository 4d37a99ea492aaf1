"""What the clients were told, added up: what is lost, what came again, what was refused, how long they waited."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from demo.migrate.clients.book import ACKNOWLEDGE, OK, PUBLISH, PULL, Call, calls_in


class Balance(NamedTuple):
    """What became of the messages of the clients."""

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
    sent = {book.stem: calls_in(book) for book in publishers}
    got = {book.stem: calls_in(book) for book in consumers}
    calls = [(name, each) for calls in (sent, got) for name, made in calls.items() for each in made]
    published = [text for made in sent.values() for each in made for text in _told(each, PUBLISH)]
    received = {text for made in got.values() for each in made for text in _told(each, PULL)} | pushed.keys()
    repeated = [text for made in got.values() for text in _again(made)]
    return Balance(
        len(published),
        [text for text in published if text not in received],
        repeated + [text for text, times in pushed.items() if times > 1],
        [f"{name}: {each.kind}: {each.said}" for name, each in calls if each.said != OK],
        max((each.seconds for _, each in calls), default=0.0),
    )


def _told(call: Call, kind: str) -> Sequence[str]:
    return call.texts if call.kind == kind and call.said == OK else ()


def _again(calls: Sequence[Call]) -> list[str]:
    """Return what one consumer got after it was confirmed that it is acknowledged."""
    confirmed: set[str] = set()
    found = []
    for each in calls:
        found += [text for text in _told(each, PULL) if text in confirmed]
        confirmed.update(_told(each, ACKNOWLEDGE))
    return found
