"""Many workers on one backlog: a parallel subscription, eight workers of two programs, two of them killed.

    python -m demo.work

    site.py ──publishes──▶ topic jobs ──▶ subscription workers (parallel) ──┬──▶ 4 × programs.py, the official library
                                                      │                     └──▶ 4 × `ams work`, a shell script a job
                                                      ▼
                                       topic broken-jobs: the job that nobody can do

Each worker writes down every job that it has done, before it acknowledges it. In the end `workers.py` compares that
with what was published: no job may be lost, and the one that always fails has to be in the dead letter topic. A job may
be done twice: by a worker that was killed before its acknowledgement, and by another after it.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from ams.client import Client, Message, wire
from demo import service, site
from demo.service import Service
from demo.site import JOBS
from demo.workers import Balance, GaveUp, Worker, balance_jobs, done_by, kill_best, stop, tell, until, write_secret

EACH = 4
BULK = 1000
HANDLER = f"""\
read -r job || true
case $job in *"{site.BROKEN}") exit 1 ;; esac
echo "$job" >>"$1"
"""
"""Script that `ams work` runs for each message, with the message on stdin; exit code 0 means done."""


def play(folder: Path, options: Namespace) -> bool:
    began = perf_counter()
    with service.running(folder / "ams-data", 0) as ams, ams.administrator() as admin:
        print(f"AMS is ready at {ams.url}.", flush=True)
        JOBS.make(admin)
        worker = site.member(admin, "worker", "consumer", project=JOBS.project)
        admin.call(wire.modify_subscription_acl(JOBS.project, JOBS.subscription, ["worker"]))
        published = _publish(admin, options.messages)
        workers: list[Worker] = []
        try:
            _start(workers, ams, write_secret(folder / "worker.token", worker.token), folder)
            kill_best(workers[:EACH], workers, options.messages // 3, "jobs")
            kill_best(workers[EACH:], workers, options.messages // 2, "jobs")
            until(lambda: JOBS.is_done(admin), workers)
        finally:
            stop(workers)
        result = balance_jobs(published, [each.book for each in workers], JOBS.dead_letters(admin))
    _tell(workers, result, perf_counter() - began)
    return result.is_right


def _publish(admin: Client, count: int) -> list[str]:
    published, topic = site.jobs(count), admin.project(JOBS.project).topic(JOBS.topic)
    for first in range(0, count, BULK):
        topic.publish([Message(job.encode()) for job in published[first : first + BULK]])
    print(f"{count} jobs are published, one of them broken.", flush=True)
    return published


def _start(workers: list[Worker], ams: Service, token: Path, folder: Path) -> None:
    """Start the workers, those of the slower program first, so that both find something to do."""
    handler = folder / "handler.sh"
    handler.write_text(HANDLER)
    connection = {"AMS_ENDPOINT": ams.url, "AMS_CA": str(ams.ca), "AMS_TOKEN_FILE": str(token), "AMS_PROJECT": "work"}
    environment, numbers = {**os.environ, **connection}, range(1, EACH + 1)
    shells = service.python("ams.cli.main", "work", JOBS.subscription, "--concurrency", "4", "--", "sh", str(handler))
    workers += (Worker(f"ams-work-{number}", shells, environment, folder) for number in numbers)
    until(lambda: done_by(workers) > 0, workers)
    workers += (
        Worker.program(f"library-{number}", ams, folder, "work", ams.endpoint, str(token)) for number in numbers
    )
    print(f"{len(workers)} workers work: {', '.join(each.name for each in workers)}.", flush=True)


def _tell(workers: Sequence[Worker], result: Balance, seconds: float) -> None:
    tell("Jobs that each has done:", workers)
    of_command, all_jobs = done_by(workers[:EACH]), max(done_by(workers), 1)
    print(f"ams work did {100 * of_command / all_jobs:.0f} % of them, with a process for each.")
    print(
        f"work-demo: published {result.published} worked {result.received} lost {result.lost} dead {result.dead}"
        f" repeated {result.repeated} seconds {seconds:.1f}"
    )


if __name__ == "__main__":
    sys.exit(service.run_demo("work", "Many workers on one backlog.", play, GaveUp, messages=20_000))
