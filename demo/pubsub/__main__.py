"""The command line of the demo of Google's clients, and the order of its steps."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from ams.client import Client
from demo import federation, service
from demo.pubsub import site
from demo.pubsub.books import Balance, balance
from demo.pubsub.programs import Programs
from demo.service import FAILED, OK, Service, trust_of_library
from demo.work.books import done_in
from demo.work.workers import GaveUp, Worker, done_by, stop, until

SUBSCRIBERS = 4


def main() -> int:
    """Run it; return 0 when nothing is lost, all is in order and the broken one is put aside, 1 when not."""
    options = _options()
    service.stop_by_any_interruption()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="ams-pubsub-"))

    def run() -> int:
        with service.running(folder / "ams-data", 0, "--pubsub-port", "0") as ams:
            return _run(ams, folder.absolute(), options.messages)

    return service.ended("pubsub-demo", folder, run, GaveUp)


def _run(ams: Service, folder: Path, messages: int) -> int:
    began = perf_counter()
    print(f"AMS is ready at {ams.url}, and for Google's clients at {ams.pubsub}.", flush=True)
    trust_of_library(ams.ca)
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
    return OK if result.is_right and result.published == messages else FAILED


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
    everybody = [*subscribers, reader, publisher]
    for part in (4, 2):
        until(lambda part=part: done_by(subscribers) >= messages // part, everybody)  # type: ignore[misc]
        victim = max((each for each in subscribers if not each.was_killed), key=lambda each: each.done)
        victim.kill()
        print(f"{victim.name} is killed, after {done_by(subscribers)} messages in all.", flush=True)
    until(lambda: publisher.has_ended, everybody)
    print(f"{publisher.done} messages are published.", flush=True)
    until(lambda: site.is_done(admin), everybody)


def _tell(receivers: Sequence[Worker], result: Balance, seconds: float) -> None:
    print("\nMessages that each was given, some of them again:")
    for each in receivers:
        print(f"  {each.name:<12} {each.done:>6}{'  (killed)' if each.was_killed else ''}")
    print(
        f"pubsub-demo: published {result.published} received {result.received} lost {result.lost}"
        f" order {result.disorder} dead {result.dead} seconds {seconds:.1f}"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m demo.pubsub", description="Google's clients beside the library of AMS."
    )
    parser.add_argument("--folder", type=Path, help="where all of it is written (default: a new temporary folder)")
    parser.add_argument("--messages", type=int, default=20_000, help="messages (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
