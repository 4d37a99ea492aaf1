"""Workers of a demo, each a process of its own: starting, killing, waiting and stopping."""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from demo.books import lines_of
from demo.service import STOP_TIMEOUT, Service, python

LOOK_SECONDS = 0.1
"""Seconds between two looks at the books."""
PATIENCE = 60.0
"""Seconds without any progress after which what is left is lost: five leases of ten seconds, and some."""


class GaveUp(Exception):
    """The workers do not work."""


class Worker:
    """One worker and its book, whose file is the last thing that its command is told."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: dict[str, str],
        folder: Path,
        *,
        may_end: bool = False,
    ) -> None:
        """One that `may_end` does so, with the exit code 0, when it has done everything."""
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
        """Start one of `demo.programs`; both libraries find in its environment who they are and whom they trust."""
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
        """Return the number of lines in its book."""
        return len(lines_of(self.book))

    @property
    def has_failed(self) -> bool:
        """Return whether it ended without being killed or done."""
        code = self._process.poll()
        return code is not None and not self.was_killed and not self.has_ended

    @property
    def has_ended(self) -> bool:
        """Return whether it ended because everything is done."""
        return self._may_end and self._process.poll() == 0

    @property
    def last_words(self) -> str:
        """The last line it said."""
        return (self._log.read_text().splitlines() or [""])[-1]

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.was_killed = True
        self._process.kill()

    def stop(self) -> None:
        """Tell it to stop."""
        self._process.terminate()

    def wait(self) -> None:
        """Wait until it is gone."""
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def write_secret(file: Path, secret: str) -> Path:
    """Write a file that nobody else may read; return it."""
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
    """Return how many messages these have written down."""
    return sum(each.done for each in workers)


def stop(workers: Sequence[Worker]) -> None:
    """Stop all of them, and wait until they are gone."""
    for each in workers:
        each.stop()
    for each in workers:
        each.wait()


def kill_best(
    some: Sequence[Worker], among: Sequence[Worker], after: int, noun: str, others: Sequence[Worker] = ()
) -> None:
    """Kill that one of `some` that has done most, as soon as those `among` whom it is have done so many.

    `others` may make progress meanwhile, and may not fail either.
    """
    until(lambda: done_by(among) >= after, [*among, *others])
    victim = max((each for each in some if not each.was_killed), key=lambda each: each.done)
    victim.kill()
    print(f"{victim.name} is killed, after {done_by(among)} {noun} in all.", flush=True)


def tell(heading: str, workers: Sequence[Worker]) -> None:
    """Print what each has done."""
    print(f"\n{heading}")
    for each in workers:
        print(f"  {each.name:<12} {each.done:>6}{'  (killed)' if each.was_killed else ''}")
