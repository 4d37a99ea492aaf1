"""The demo of workers: the order of its steps."""

import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from ams.client import Client
from demo import command_line, federation
from demo.service import Service
from demo.work import site
from demo.work.books import Balance, balance
from demo.work.programs import command_worker, library_worker
from demo.workers import Worker, done_by, kill_best, stop, tell, until

EACH = 4
"""Workers of each program."""


def play(ams: Service, folder: Path, messages: int) -> bool:
    """Return whether no job is lost and the broken one is put aside."""
    began = perf_counter()
    print(f"AMS is ready at {ams.url}.", flush=True)
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
    return result.is_right


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
    kill_best(workers[:EACH], workers, messages // 3, "jobs")
    kill_best(workers[EACH:], workers, messages // 2, "jobs")
    until(lambda: site.is_done(admin), workers)


def _tell(workers: Sequence[Worker], result: Balance, seconds: float) -> None:
    tell("Jobs that each has done:", workers)
    of_command, all_jobs = done_by(workers[:EACH]), max(done_by(workers), 1)
    print(f"ams work did {100 * of_command / all_jobs:.0f} % of them, with a process for each.")
    print(
        f"work-demo: published {result.published} worked {result.worked} lost {result.lost} dead {result.dead}"
        f" repeated {result.repeated} seconds {seconds:.1f}"
    )


if __name__ == "__main__":
    sys.exit(command_line.run("work", "Many workers on one backlog.", "jobs", play))
