"""Workers of a demo, each a process with a book: a line for each message, written before it is acknowledged."""

import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self, TextIO

from demo.service import STOP_TIMEOUT, Service, python


class Balance(NamedTuple):
    published: int
    received: int  # different messages that workers wrote down
    lost: int
    repeated: int  # lines about a message that is in the books already: a killed worker's messages come again
    dead: int
    disorder: int = 0  # messages that came after a later one of their key

    @property
    def is_right(self) -> bool:
        """Return whether nothing is lost, all is in order, and just the broken message is a dead letter."""
        return not self.lost and not self.disorder and self.dead == 1


def note(book: TextIO, text: str) -> None:
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
    came = [line.split(" ", 1) for line in lines]
    return [text for _, text in sorted(came, key=lambda each: int(each[0]))]


def _disorder(texts: Iterable[str]) -> int:
    """Count messages that came first after a later one of their key; they may come again from any of them on."""
    last: dict[str, int] = {}
    found = 0
    for text in dict.fromkeys(texts):
        key, number = text.split()[:2]
        found += int(number) < last.get(key, 0)
        last[key] = max(int(number), last.get(key, 0))
    return found


LOOK_SECONDS = 0.1  # seconds between two looks at the books
PATIENCE = 60.0
"""Seconds without any progress after which what is left is lost: five leases of ten seconds, and some."""


class GaveUp(Exception):
    """The workers failed."""


class Worker:
    """One worker and its book, whose file is the last argument of its command."""

    def __init__(
        self, name: str, command: Sequence[str], environment: dict[str, str], folder: Path, *, may_end: bool = False
    ) -> None:
        """With `may_end` it may exit with code 0 when it has done everything."""
        self._may_end = may_end
        self.name, self.book = name, folder / f"{name}.book"
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own programs
                [*command, str(self.book)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                process_group=0,  # a Ctrl-C in the terminal reaches the demo only
            )
        self.was_killed = False

    @classmethod
    def program(
        cls, name: str, ams: Service, folder: Path, program: str, *arguments: str, may_end: bool = False
    ) -> Self:
        """Start one of `demo.programs`; its environment has credentials and CA for both libraries."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("PUBSUB_")}
        environment = own | {
            "GOOGLE_APPLICATION_CREDENTIALS": str(folder / "google.json"),
            "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(ams.ca),
            "REQUESTS_CA_BUNDLE": str(ams.ca),
            "PYTHONUNBUFFERED": "1",
        }
        return cls(name, python("demo.programs", program, *arguments), environment, folder, may_end=may_end)

    @property
    def done(self) -> int:
        return len(lines_of(self.book))

    @property
    def has_failed(self) -> bool:
        code = self._process.poll()
        return code is not None and not self.was_killed and not self.has_ended

    @property
    def has_ended(self) -> bool:
        return self._may_end and self._process.poll() == 0

    @property
    def last_words(self) -> str:
        return (self._log.read_text().splitlines() or [""])[-1]

    def kill(self) -> None:
        self.was_killed = True
        self._process.kill()

    def stop(self) -> None:
        self._process.terminate()

    def wait(self) -> None:
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def write_secret(file: Path, secret: str) -> Path:
    file.touch(mode=0o600)
    file.write_text(secret)
    return file


def until(there: Callable[[], bool], workers: Sequence[Worker]) -> None:
    """Wait for something, as long as there is progress; raise `GaveUp` when a worker fails."""
    before, since = -1, time.monotonic()
    while not there():
        for each in workers:
            if each.has_failed:
                raise GaveUp(f"{each.name} ended: {each.last_words}")
        done = done_by(workers)
        if done > before:
            before, since = done, time.monotonic()
        if time.monotonic() - since > PATIENCE:
            return
        time.sleep(LOOK_SECONDS)


def done_by(workers: Sequence[Worker]) -> int:
    return sum(each.done for each in workers)


def stop(workers: Sequence[Worker]) -> None:
    for each in workers:
        each.stop()
    for each in workers:
        each.wait()


def kill_best(
    some: Sequence[Worker], among: Sequence[Worker], after: int, noun: str, others: Sequence[Worker] = ()
) -> None:
    """Kill the best of `some` when `among` have done so many; `others` may make progress meanwhile, and not fail."""
    until(lambda: done_by(among) >= after, [*among, *others])
    victim = max((each for each in some if not each.was_killed), key=lambda each: each.done)
    victim.kill()
    print(f"{victim.name} is killed, after {done_by(among)} {noun} in all.", flush=True)


def tell(heading: str, workers: Sequence[Worker]) -> None:
    print(f"\n{heading}")
    for each in workers:
        print(f"  {each.name:<12} {each.done:>6}{'  (killed)' if each.was_killed else ''}")
