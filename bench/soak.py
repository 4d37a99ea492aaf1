"""`python -m bench.soak --seconds 3600`: load with retention cutting all the time; memory and p99 must stay flat.

A publisher at a fixed rate and consumers that pull and acknowledge run against a service that keeps little for a
short time. Each minute one line reports the figures; at the end the last quarter is compared with the second one, as
caches fill in the first.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec

from bench import preparing
from bench.callers import Consume, Publish
from bench.load import Job
from bench.processes import ROOT, RunningLoad, Service
from bench.report import progress

FLAGS = ("--retention", "2m", "--segment-bytes", "4MiB", "--max-data-bytes", "300MiB")
TOPICS = 4
RATE = 1000.0
"""Publishes a second: well under the maximum, so that a growing p99 is the service's doing."""
CONSUMERS = 4
MINUTE = 60.0
GROWTH = 1.5
"""Limit of the last quarter's memory and p99, as a multiple of the second quarter's."""
MEMORY_ALLOWANCE = 20 * 10**6
P99_ALLOWANCE = 0.005


class Minute(NamedTuple):
    published_s: float
    consumed_s: float
    p99_ms: float
    memory_mb: float
    data_mb: float
    refused: int


def soak(seconds: float, folder: Path) -> list[Minute]:
    """Load the service for so long; return the figures of each minute."""
    with tempfile.TemporaryDirectory(prefix=".soak-", dir=folder) as made, Service(Path(made) / "data", *FLAGS) as live:
        topics = preparing.topics(live, preparing.project(live, "SOAK"), "topic", TOPICS)
        subscriptions = preparing.subscriptions(live, topics, CONSUMERS)
        minutes = []
        began = time.monotonic()
        while (left := began + seconds - time.monotonic()) > 0:
            minute = _minute(live, topics, subscriptions, min(MINUTE, left))
            minutes.append(minute)
            rounded = {name: round(value, 2) for name, value in minute._asdict().items()}
            print(msgspec.json.encode({"case": "soak", **rounded}).decode(), flush=True)
        return minutes


def _minute(live: Service, topics: list[str], subscriptions: list[str], seconds: float) -> Minute:
    consuming = RunningLoad(Job(live.url, live.token, Consume(subscriptions, 100, follow=True), CONSUMERS, seconds))
    publishing = RunningLoad(Job(live.url, live.token, Publish(topics), 64, seconds, rate=RATE))
    published, consumed = publishing.outcome(), consuming.outcome()
    return Minute(
        published.messages_per_second,
        consumed.messages_per_second,
        1000 * published.p99,
        live.anonymous_memory() / 10**6,
        live.disk_usage() / 10**6,
        sum((*published.refused.values(), *consumed.refused.values())),
    )


def verdict(minutes: Sequence[Minute]) -> list[str]:
    """Return findings that did not stay flat, as lines for people; none when all did."""
    quarter = len(minutes) // 4
    if quarter == 0:
        return [f"{len(minutes)} minutes are too few to tell; there must be four"]
    early, late = minutes[quarter : 2 * quarter], minutes[-quarter:]
    found = []
    memory, memory_late = median(each.memory_mb for each in early), median(each.memory_mb for each in late)
    if memory_late > GROWTH * memory + MEMORY_ALLOWANCE / 10**6:
        found.append(f"memory grew from {memory:.0f} to {memory_late:.0f} MB")
    p99, p99_late = median(each.p99_ms for each in early), median(each.p99_ms for each in late)
    if p99_late > GROWTH * p99 + 1000 * P99_ALLOWANCE:
        found.append(f"p99 grew from {p99:.1f} to {p99_late:.1f} ms")
    if refused := sum(each.refused for each in minutes):
        found.append(f"{refused} requests were refused")
    return found


def main() -> int:
    """Soak; the exit code is 1 if something did not stay flat."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description="Load the service for long.")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--folder", type=Path, default=ROOT, help="where the data folder is made")
    chosen = parser.parse_args()
    minutes = soak(chosen.seconds, chosen.folder)
    found = verdict(minutes)
    progress("; ".join(found) if found else f"memory and p99 stayed flat over {len(minutes)} minutes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
