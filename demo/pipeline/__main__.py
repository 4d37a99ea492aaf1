"""The pipeline demo: the order of its steps."""

import sys
from argparse import Namespace
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from ams.client import wire
from ams.pipeline.errors import PipelineError
from ams.pipeline.job_run import RunResult
from demo import service
from demo.pipeline import page, worlds
from demo.pipeline.samples import Sample
from demo.pipeline.samples.worlds import publish_all
from demo.service import Service
from local_cluster.processes import DidNotStart


def play(folder: Path, _options: Namespace) -> bool:
    """Return True when every job did its work; a job that fails raises."""
    with service.running(folder / "ams-data", 0) as running, worlds.database(folder) as url, worlds.cluster() as master:
        _run(running, folder, url, master)
    return True


def _run(running: Service, folder: Path, url: str, master: str) -> None:
    began = perf_counter()
    worlds.hand_over(running, url)
    with running.administrator() as admin:
        admin.call(wire.create_project(worlds.PROJECT))
    day = worlds.yesterday()
    plans = [worlds.planned(task) for task in worlds.tasks(day, folder, with_database=bool(url))]
    ended: list[RunResult] = []

    def work(*names: str) -> None:
        for plan in plans:
            if plan.name in names:
                print(f"  {plan.name} ...", end=" ", flush=True)
                ended.append(worlds.work(plan, running, folder / plan.name, master))
                messages, records, broken = (f"{getattr(ended[-1], each):,}" for each in COUNTS)
                print(f"messages {messages} records {records} broken {broken} in {ended[-1].seconds:.1f} s", flush=True)

    print("Publishing a day of five worlds, but what comes late:", flush=True)
    count = _publish(running, (each for each in worlds.messages(day) if not worlds.is_late(each)))
    print(f"Two jobs tell of it, on {worlds.WORKERS} workers of Spark:", flush=True)
    work(*worlds.EARLY)
    before = datetime.now(UTC)

    print("Publishing what comes late:", flush=True)
    count += _publish(running, (each for each in worlds.messages(day) if worlds.is_late(each)))
    print("All jobs:", flush=True)
    work(*(each.name for each in plans))
    if not url:
        print("  alarms: left out, as no PostgreSQL is installed (make system)")
    shown = page.write(folder, day, before, url, master)
    print(f"\nThe page is {shown}, the tables are beside it.")
    records, broken = (sum(getattr(each, name) for each in ended) for name in COUNTS[1:])
    counts = f"messages {count} records {records} broken {broken} jobs {len(plans)}"
    print(f"pipeline-demo: {counts} seconds {perf_counter() - began:.1f}")


COUNTS = ("messages", "records", "broken")


def _publish(running: Service, samples: Iterable[Sample]) -> int:
    with running.administrator() as admin:
        count = publish_all(admin.project(worlds.PROJECT), samples).total()
    print(f"  published {count:,}", flush=True)
    return count


if __name__ == "__main__":
    about = "Five worlds through the pipeline."
    sys.exit(service.run_demo("pipeline", about, play, PipelineError, DidNotStart, keeps_folder=True))
