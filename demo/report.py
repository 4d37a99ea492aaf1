"""Output of the main job: progress, the summary, usage by a job on Spark, and commands to try next."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from time import monotonic

from ams.pipeline.errors import MissingDependency
from ams.pipeline.java import java
from demo.job import Job
from demo.pushing import SUBSCRIPTION, Outcome
from demo.service import Service, python
from demo.traffic import ACCOUNTING, MONITORING, PROJECT

DEFAULT_PORT = 8080
DEFAULT_DATA = Path("ams-data")
PLAIN_PROGRESS = 2.0  # seconds between two lines of progress where no terminal can update one
MOST_FINDINGS = 10


class Progress:
    """Progress of the job: one line updated on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._next = 0.0

    def __call__(self, job: Job) -> None:
        line = so_far(job)
        if self._terminal:
            print(f"\r{line}", end="", flush=True)
        elif monotonic() >= self._next:
            self._next = monotonic() + PLAIN_PROGRESS
            print(line, flush=True)

    def end(self) -> None:
        if self._terminal:
            print()


def so_far(job: Job) -> str:
    return (
        f"published {job.total('published'):>6,}   received {job.total('received'):>6,}"
        f"   acknowledged {job.total('acknowledged'):>6,}   of {job.expected:,}   {job.seconds:5.1f} s"
    )


def summary(job: Job) -> str:
    ledgers = [flow.ledger for flow in job.flows]
    rows = {
        "published": [f"{ledger.published:,}" for ledger in ledgers],
        "received": [f"{ledger.received:,}" for ledger in ledgers],
        "acknowledged": [f"{ledger.acknowledged:,}" for ledger in ledgers],
        "lost": [f"{len(ledger.lost()):,}" for ledger in ledgers],
        "duplicated": [f"{ledger.duplicated:,}" for ledger in ledgers],
        "payload, kB": [f"{ledger.bytes // 1000:,}" for ledger in ledgers],
        "messages a second": [f"{ledger.received / max(job.seconds, 0.001):,.0f}" for ledger in ledgers],
    }
    lines = [["messages", *(ledger.topic for ledger in ledgers)], *([name, *cells] for name, cells in rows.items())]
    table = ["".join([f"{line[0]:<20}", *(f"{cell:>14}" for cell in line[1:])]) for line in lines]
    return "\n".join(["", *table, ""])


def by_push(outcome: Outcome) -> str:
    return (
        f"Delivered by push as well, to a receiver over https: {outcome.delivered:,} of {outcome.published:,} results"
        f" as they went in, in {outcome.deliveries:,} deliveries.\n"
    )


def findings(job: Job) -> str:
    found = job.findings()
    more = [f"... and {len(found) - MOST_FINDINGS:,} more"] if len(found) > MOST_FINDINGS else []
    return "\n".join(found[:MOST_FINDINGS] + more)


def verdict(job: Job) -> str:
    lost = sum(len(flow.ledger.lost()) for flow in job.flows)
    word = "failed: " if job.findings() else ""
    return (
        f"demo: {word}published {job.total('published')} received {job.total('received')}"
        f" acknowledged {job.total('acknowledged')} lost {lost}"
        f" duplicated {job.total('duplicated')} seconds {job.seconds:.1f}"
    )


def what_next(service: Service) -> str:
    curl = f'curl --cacert {service.ca} -H "x-api-key: $(cat {service.token_file})"'
    project = f"{service.url}/v1/projects/{PROJECT}"
    ams = ".venv/bin/ams"
    lines = [
        f"The service keeps running at {service.url}. Ctrl-C stops it; its data stay in {service.data}.",
        "",
        f"Open {service.url}/console/ in a browser and log in with the token in {service.token_file};",
        f"the browser asks about the certificate, or trusts it once {service.ca} is imported.",
        "",
        "Try in another terminal, in this folder:",
        "",
        *_exports(service),
        f"  {curl} {project}/topics",
        f"""  {curl} {project}/topics/{MONITORING.topic}:publish -d '{{"messages":[{{"data":"aGVsbG8="}}]}}'""",
        f"""  {curl} {project}/subscriptions/{MONITORING.subscription}:pull -d '{{"maxMessages":"1"}}'""",
        "",
        "With Google's Pub/Sub clients, which take it for their emulator (no token, programs of this machine only):",
        "",
        f"  export PUBSUB_EMULATOR_HOST={service.pubsub}",
        "",
        "The same and more with the command line:",
        "",
        f"  {ams} topics list --project {PROJECT}",
        f"  {ams} publish {ACCOUNTING.topic} --project {PROJECT} --data hello",
        f"  {ams} pull {ACCOUNTING.subscription} --project {PROJECT} --ack",
        f"  {ams} subs push-status {SUBSCRIPTION} --project {PROJECT}",
        f"  {ams} --help",
        "",
    ]
    return "\n".join(lines)


def _exports(service: Service) -> list[str]:
    exports = []
    if service.data != DEFAULT_DATA or not service.url.endswith(f":{DEFAULT_PORT}"):
        exports.append(f"  export AMS_ENDPOINT={service.url} AMS_CA={service.ca} AMS_TOKEN_FILE={service.token_file}")
    if any(os.environ.get(name) for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")):
        exports.append("  export no_proxy=localhost,127.0.0.1")
    return [*exports, ""] if exports else []


MISSING = "Who used how much is computed on Spark, which needs {}; left out."

WORK = Path("ams-pipeline", "demo")
"""The folder of the run, beside the data; not the job's own, which belongs to a run by hand."""


def run_metrics(service: Service) -> bool:
    """Run `ams pipeline run metrics`; return whether it succeeded. Without Java or PySpark, print that."""
    lacking = _lacking()
    if lacking:
        print(MISSING.format(lacking), flush=True)
        return True
    print("Now one small job on Spark reads the topics and says who used how much (half a minute):\n", flush=True)
    connection = {
        "AMS_ENDPOINT": service.url,
        "AMS_TOKEN_FILE": str(service.token_file.absolute()),
        "AMS_CA": str(service.ca.absolute()),
        "AMS_PROJECT": PROJECT,
    }
    work = service.data.absolute().parent / WORK
    command = python("ams.cli.main", "pipeline", "run", "metrics", "--work", str(work))
    return subprocess.run(command, env={**os.environ, **connection}, check=False).returncode == 0  # noqa: S603  # our own


def _lacking() -> str:
    try:
        java()
    except MissingDependency:
        return "Java 17 or newer"
    return "" if importlib.util.find_spec("pyspark") else "PySpark (make setup brings it)"
