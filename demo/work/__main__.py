"""The command line of the demo of workers, and the order of its steps."""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

from ams.client import Client
from demo import federation, service
from demo.service import FAILED, OK, Service, trust_of_library
from demo.work import site
from demo.work.books import Balance, balance
from demo.work.workers import Worker, command_worker, library_worker

EACH = 4
"""Workers of each program."""
LOOK_SECONDS = 0.1
"""Between two looks at what is done."""
PATIENCE = 60.0
"""Seconds without any progress after which what is left is lost: five leases of ten seconds, and some."""


class GaveUp(Exception):
    """The workers do not work."""


def main() -> int:
    """Run it; return 0 when no job is lost and the broken one is put aside, 1 when not."""
    options = _options()
    service.stop_by_any_interruption()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="ams-work-"))

    def run() -> int:
        with service.running(folder / "ams-data", 0) as ams:
            return _run(ams, folder.absolute(), options.messages)

    return service.ended("work-demo", folder, run, GaveUp)


def _run(ams: Service, folder: Path, messages: int) -> int:
    began = perf_counter()
    print(f"AMS is ready at {ams.url}.", flush=True)
    trust_of_library(ams.ca)
    with federation.administrator(ams) as admin:
        token = _token_file(folder, site.prepare(admin))
        published = site.jobs(messages)
        site.publish(admin, published)
        print(f"{messages} jobs are published, one of them broken.", flush=True)
        workers: list[Worker] = []
        try:
            _start(workers, ams, token, folder)
            _watch(admin, workers, messages)
        finally:
            _stop(workers)
        result = balance(published, [each.book for each in workers], site.put_aside(admin))
    _tell(workers, result, perf_counter() - began)
    return OK if result.is_right else FAILED


def _token_file(folder: Path, token: str) -> Path:
    path = folder / "worker.token"
    path.touch(0o600)
    path.write_text(token)
    return path


def _start(workers: list[Worker], ams: Service, token: Path, folder: Path) -> None:
    """Start the workers, those of the slower program first, so that both find something to do."""
    workers += [command_worker(number, ams, token, folder) for number in range(1, EACH + 1)]
    _until(lambda: _done(workers) > 0, workers)
    workers += [library_worker(number, ams, token, folder) for number in range(1, EACH + 1)]
    print(f"{len(workers)} workers work: {', '.join(each.name for each in workers)}.", flush=True)


def _watch(admin: Client, workers: Sequence[Worker], messages: int) -> None:
    """Kill the best worker of each program in the middle; return when everything is done."""
    for part, program in ((3, workers[:EACH]), (2, workers[EACH:])):
        _until(lambda part=part: _done(workers) >= messages // part, workers)  # type: ignore[misc]
        victim = max(program, key=lambda each: each.done)
        victim.kill()
        print(f"{victim.name} is killed, after {_done(workers)} jobs in all.", flush=True)
    _until(lambda: site.is_done(admin), workers)


def _until(there: Callable[[], bool], workers: Sequence[Worker]) -> None:
    """Wait for something, as long as there is progress; raise `GaveUp` when a worker fails."""
    before, since = -1, time.monotonic()
    while not there():
        for each in workers:
            if each.has_failed:
                raise GaveUp(f"{each.name} ended: {each.last_words}")
        done = _done(workers)
        if done > before:
            before, since = done, time.monotonic()
        if time.monotonic() - since > PATIENCE:
            return
        time.sleep(LOOK_SECONDS)


def _done(workers: Sequence[Worker]) -> int:
    return sum(each.done for each in workers)


def _stop(workers: Sequence[Worker]) -> None:
    for each in workers:
        each.stop()
    for each in workers:
        each.wait()


def _tell(workers: Sequence[Worker], result: Balance, seconds: float) -> None:
    print("\nJobs that each has done:")
    for each in workers:
        print(f"  {each.name:<12} {each.done:>6}{'  (killed)' if each.was_killed else ''}")
    of_command, all_jobs = _done(workers[:EACH]), max(_done(workers), 1)
    print(f"ams work did {100 * of_command / all_jobs:.0f} % of them, with a process for each.")
    print(
        f"work-demo: published {result.published} worked {result.worked} lost {result.lost} dead {result.dead}"
        f" repeated {result.repeated} seconds {seconds:.1f}"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo.work", description="Many workers on one backlog.")
    parser.add_argument("--folder", type=Path, help="where all of it is written (default: a new temporary folder)")
    parser.add_argument("--messages", type=int, default=20_000, help="jobs (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
