"""The command line of the demo of workers, and the order of its steps."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from ams.client import Client
from demo import federation, service
from demo.service import FAILED, OK, Service, trust_of_library
from demo.work import site
from demo.work.books import Balance, balance
from demo.work.workers import GaveUp, Worker, command_worker, done_by, library_worker, stop, until

EACH = 4
"""Workers of each program."""


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
            stop(workers)
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
    until(lambda: done_by(workers) > 0, workers)
    workers += [library_worker(number, ams, token, folder) for number in range(1, EACH + 1)]
    print(f"{len(workers)} workers work: {', '.join(each.name for each in workers)}.", flush=True)


def _watch(admin: Client, workers: Sequence[Worker], messages: int) -> None:
    """Kill the best worker of each program in the middle; return when everything is done."""
    for part, program in ((3, workers[:EACH]), (2, workers[EACH:])):
        until(lambda part=part: done_by(workers) >= messages // part, workers)  # type: ignore[misc]
        victim = max(program, key=lambda each: each.done)
        victim.kill()
        print(f"{victim.name} is killed, after {done_by(workers)} jobs in all.", flush=True)
    until(lambda: site.is_done(admin), workers)


def _tell(workers: Sequence[Worker], result: Balance, seconds: float) -> None:
    print("\nJobs that each has done:")
    for each in workers:
        print(f"  {each.name:<12} {each.done:>6}{'  (killed)' if each.was_killed else ''}")
    of_command, all_jobs = done_by(workers[:EACH]), max(done_by(workers), 1)
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
