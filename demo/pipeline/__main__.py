"""The command line of the pipeline demo, and the order of its steps."""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from ams.client import Client
from ams.pipeline.errors import PipelineError
from cluster.processes import DidNotStart
from demo import service
from demo.pipeline import feeding, page, working, worlds
from demo.pipeline.samples import Sample
from demo.service import OK, Service


def main() -> int:
    """Run it; return 0 when every job did its work, 130 when it was interrupted."""
    parser = argparse.ArgumentParser(prog="python -m demo.pipeline", description="Five worlds through the pipeline.")
    parser.add_argument("--folder", type=Path, help="where all of it is written (default: a new temporary folder)")
    folder = parser.parse_args().folder or Path(tempfile.mkdtemp(prefix="ams-pipeline-"))

    def run() -> int:
        with service.running(folder / "ams-data", 0) as running, working.database(folder) as url:
            return _run(running, folder.absolute(), url)

    return service.ended("pipeline-demo", folder, run, PipelineError, DidNotStart)


def _run(running: Service, folder: Path, url: str) -> int:
    began = perf_counter()
    working.hand_over(running, url)
    day = worlds.yesterday()
    plans = [working.planned(task) for task in worlds.tasks(day, folder, with_database=bool(url))]
    published = _feed(running, worlds.messages(day))
    records = broken = jobs = 0
    for plan in plans:
        print(f"  {plan.name} ...", end=" ", flush=True)
        ended = working.work(plan, running, folder / plan.name)
        print(f"messages {ended.messages:,} records {ended.records:,} broken {ended.broken:,} in {ended.seconds:.1f} s")
        records, broken, jobs = records + ended.records, broken + ended.broken, jobs + 1
    if not url:
        print("  alarms: left out, as no PostgreSQL is installed (make system)")
    print(f"\nThe page is {page.write(folder, day, datetime.now(UTC).date(), url)}.")
    seconds = perf_counter() - began
    print(f"pipeline-demo: messages {published} records {records} broken {broken} jobs {jobs} seconds {seconds:.1f}")
    return OK


def _feed(running: Service, messages: Iterator[Sample]) -> int:
    def show(count: int) -> None:
        if count % 5000 < feeding.BULK:
            print(f"  published {count:,}", flush=True)

    print("Publishing a day of five worlds:", flush=True)
    with Client(running.url, running.token_file.read_text().strip(), ca=str(running.ca)) as client:
        count = feeding.feed(client, worlds.PROJECT, messages, show)
    print(f"  published {count:,}\nThe jobs, each on Spark:", flush=True)
    return count


if __name__ == "__main__":
    sys.exit(main())
