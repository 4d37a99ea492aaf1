"""The command line of the pipeline demo, and the order of its steps."""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from ams.client import Client, wire
from ams.pipeline.errors import PipelineError
from ams.pipeline.running import Plan
from ams.pipeline.starting import Ended
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
        with (
            service.running(folder / "ams-data", 0) as running,
            working.database(folder) as url,
            working.cluster() as master,
        ):
            return _run(Demo(running, folder.absolute(), url, master))

    return service.ended("pipeline-demo", folder, run, PipelineError, DidNotStart)


@dataclass(slots=True)
class Demo:
    """What is running, and what was done."""

    service: Service
    folder: Path
    url: str
    """Of PostgreSQL; empty where none is installed."""
    master: str
    """Of Spark."""
    messages: int = 0
    ended: list[Ended] = field(default_factory=list)

    def publish(self, messages: Iterator[Sample]) -> None:
        """Publish messages, and say so."""

        def show(count: int) -> None:
            if count % 5000 < feeding.BULK:
                print(f"  published {count:,}", flush=True)

        with self._client() as client:
            count = feeding.feed(client, worlds.PROJECT, messages, show)
        self.messages += count
        print(f"  published {count:,}", flush=True)

    def work(self, plan: Plan) -> None:
        """Run a job, and say what it did."""
        print(f"  {plan.name} ...", end=" ", flush=True)
        ended = working.work(plan, self.service, self.folder / plan.name, self.master)
        self.ended.append(ended)
        print(
            f"messages {ended.messages:,} records {ended.records:,} broken {ended.broken:,} in {ended.seconds:.1f} s",
            flush=True,
        )

    def make_project(self) -> None:
        """Make the project of all messages."""
        with self._client() as client:
            client.call(wire.create_project(worlds.PROJECT))

    def _client(self) -> Client:
        return Client(self.service.url, self.service.token_file.read_text().strip(), ca=str(self.service.ca))


def _run(demo: Demo) -> int:
    began = perf_counter()
    working.hand_over(demo.service, demo.url)
    demo.make_project()
    day = worlds.yesterday()
    plans = [working.planned(task) for task in worlds.tasks(day, demo.folder, with_database=bool(demo.url))]

    print("Publishing a day of five worlds, but what comes late:", flush=True)
    demo.publish(each for each in worlds.messages(day) if not worlds.is_late(each))
    print(f"Two jobs tell of it, on {working.WORKERS} workers of Spark:", flush=True)
    for plan in plans:
        if plan.name in worlds.EARLY:
            demo.work(plan)
    before = datetime.now(UTC)

    print("Publishing what comes late:", flush=True)
    demo.publish(each for each in worlds.messages(day) if worlds.is_late(each))
    print("All jobs:", flush=True)
    for plan in plans:
        demo.work(plan)
    if not demo.url:
        print("  alarms: left out, as no PostgreSQL is installed (make system)")
    shown = page.write(demo.folder, day, before, demo.url, demo.master)
    print(f"\nThe page is {shown}, the tables are beside it.")
    records, broken = (sum(getattr(each, name) for each in demo.ended) for name in ("records", "broken"))
    counts = f"messages {demo.messages} records {records} broken {broken} jobs {len(plans)}"
    print(f"pipeline-demo: {counts} seconds {perf_counter() - began:.1f}")
    return OK


if __name__ == "__main__":
    sys.exit(main())
