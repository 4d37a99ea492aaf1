"""A client that publishes or consumes until SIGTERM."""

import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Event

from demo.migrate.clients.book import ACKNOWLEDGE, PUBLISH, PULL, Book, Refused
from demo.migrate.clients.ways import Way, way

BULK, MOST = 5, 50
PAUSE = 0.3
"""Seconds between two publishes, or after a pull that brought nothing."""
AGAIN = 0.5
"""Seconds after an answer that was an error, until it is tried again."""


def main() -> int:
    """Work."""
    name, work, url, file = sys.argv[1:]
    ended = Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with Path(file).open("a", buffering=1) as opened:
        (_publish if work == PUBLISH else _consume)(way(name, url), Book(opened), ended)
    return 0


def _publish(client: Way, book: Book, ended: Event) -> None:
    number = 0
    while not ended.wait(PAUSE):
        texts = [f"{client.name} {number + place}" for place in range(BULK)]
        try:
            with book.call(PUBLISH, texts):
                client.publish(texts)
            number += BULK
        except Refused:
            time.sleep(AGAIN)


def _consume(client: Way, book: Book, ended: Event) -> None:
    while True:
        is_last = ended.is_set()
        try:
            if not _pull(client, book) and is_last:
                return
        except Refused:
            time.sleep(AGAIN)


def _pull(client: Way, book: Book) -> bool:
    """Pull and acknowledge; return whether anything was there."""
    with book.call(PULL) as brought:
        got = client.pull(MOST)
        brought += [text for _, text in got]
    if not got:
        with suppress(InterruptedError):
            time.sleep(PAUSE)
        return False
    with book.call(ACKNOWLEDGE, brought):
        client.acknowledge(got[-1][0])
    return True


if __name__ == "__main__":
    sys.exit(main())
