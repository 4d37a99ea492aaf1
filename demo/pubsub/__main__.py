"""The demo of Google's clients: the order of its steps."""

import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from ams.client import Client
from demo import command_line, federation
from demo.books import done_in
from demo.pubsub import site
from demo.pubsub.books import Balance, balance
from demo.pubsub.programs import Programs
from demo.service import Service
from demo.workers import Worker, kill_best, stop, tell, until

SUBSCRIBERS = 4


def play(ams: Service, folder: Path, messages: int) -> bool:
    """Return whether nothing is lost, all is in order and the broken one is put aside."""
    began = perf_counter()
    print(f"AMS is ready at {ams.url}, and for Google's clients at {ams.pubsub}.", flush=True)
    google_file, token_file = folder / "google.json", folder / "archivist.token"
    with federation.administrator(ams) as admin:
        site.prepare(admin, google_file, token_file)
        programs = Programs(ams, google_file, token_file, folder)
        running: list[Worker] = []
        try:
            subscribers, reader, publisher = _start(running, programs, messages)
            _watch(admin, subscribers, reader, publisher, messages)
        finally:
            stop(running)
        books = [each.book for each in subscribers]
        result = balance(done_in(publisher.book), books, reader.book, site.put_aside(admin))
    _tell([*subscribers, reader], result, perf_counter() - began)
    return result.is_right and result.published == messages


def _start(running: list[Worker], programs: Programs, messages: int) -> tuple[list[Worker], Worker, Worker]:
    """Start all programs; those that run are in `running` also when one cannot be started."""
    running += map(programs.subscriber, range(1, SUBSCRIBERS + 1))
    running += [programs.reader()]
    running += [programs.publisher(messages)]
    *subscribers, reader, publisher = running
    print(f"{SUBSCRIBERS} subscribers and a publisher of Google's, and the official library of AMS run.", flush=True)
    return subscribers, reader, publisher


def _watch(admin: Client, subscribers: Sequence[Worker], reader: Worker, publisher: Worker, messages: int) -> None:
    """Kill the best two subscribers in the middle; return when everything has come to both sides."""
    others = [reader, publisher]
    kill_best(subscribers, subscribers, messages // 4, "messages", others)
    kill_best(subscribers, subscribers, messages // 2, "messages", others)
    until(lambda: publisher.has_ended, [*subscribers, *others])
    print(f"{publisher.done} messages are published.", flush=True)
    until(lambda: site.is_done(admin), [*subscribers, *others])


def _tell(receivers: Sequence[Worker], result: Balance, seconds: float) -> None:
    tell("Messages that each was given, some of them again:", receivers)
    print(
        f"pubsub-demo: published {result.published} received {result.received} lost {result.lost}"
        f" order {result.disorder} dead {result.dead} seconds {seconds:.1f}"
    )


if __name__ == "__main__":
    about = "Google's clients beside the library of AMS."
    sys.exit(command_line.run("pubsub", about, "messages", play, "--pubsub-port", "0"))
