"""Shared by all cases: publishing a made-up day, and running a job through kills."""

import json
import sys
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from ams.client import Client, Message, wire
from ams.client.wire.projects import create_project
from demo.pipeline.samples import Mishaps, Sample
from tests.faults.pipeline.kills import run_through_kills
from tests.faults.pipeline.on_cluster import Kills
from tests.support.service import LiveService

DAY = date(2024, 3, 5)
MISHAPS = Mishaps(late=0.3, doubled=0.3, broken=0.05)
CALM_BATCH_FACTOR = 4  # calm runs use fewer, larger batches
SPREAD = 6.0  # seconds within which a driver is killed: of its start, or of the work on a batch

Read = list[dict[str, Any]]


def batch_of(messages: int, kills: int) -> int:
    return messages * (1 if kills else CALM_BATCH_FACTOR)


def publish(service: LiveService, project: str, samples: Iterable[Sample], together: int = 1) -> Read:
    """Publish samples in their order, so many of a topic at once; return them as the service stores them."""
    told = list(samples)
    topics = sorted({sample.topic for sample in told})
    with Client(service.base_url, service.token) as client:
        client.call(create_project(project))
        for topic in topics:
            client.project(project).topic(topic).create()
        for topic, run in groupby(told, key=lambda each: each.topic):
            messages = [Message(each.data, dict(each.attributes)) for each in run]
            for first in range(0, len(messages), together):
                client.project(project).topic(topic).publish(messages[first : first + together])
        return [
            {
                "topic": topic, "offset": each.offset, "publish_time": datetime.fromisoformat(each.publish_time),
                "data": each.payload(),
            }
            for topic in topics
            for each in client.call(wire.read_topic(project, topic))
        ]  # fmt: skip


def drive(
    told: Mapping[str, Any], service: LiveService, folder: Path, *, kills: int, seed: int, more: Kills | None,
    environment: Mapping[str, str] | None = None,
) -> int:  # fmt: skip
    """Run a job through kills with the arguments `told`; return how often it was killed at work."""
    work = Path(told["work"])
    return run_through_kills(
        command_of(write_told(told, service, folder, more)), kills=kills,
        working=lambda: is_at_work(work / "checkpoint"), log=work / "log", spread=SPREAD, seed=seed,
        environment=environment, others=more.each if more else (),
    ).kills  # fmt: skip


def write_told(told: Mapping[str, Any], service: LiveService, folder: Path, more: Kills | None) -> Path:
    """Write the arguments of a job for `driver`, on the cluster of `more` if any, to a file, and return its path."""
    source = {"endpoint": service.base_url, "token": service.token, "project": folder.name}
    settings = dict(more.settings) if more else {"spark.sql.shuffle.partitions": "1"}
    work = Path(told["work"])
    work.mkdir(exist_ok=True)
    file = work / "told.json"
    file.write_text(json.dumps({"source": source, "settings": settings, **told}))
    return file


def command_of(*files: Path) -> list[str]:
    """Return the command that runs these jobs, one after another."""
    return [sys.executable, "-m", "tests.faults.pipeline.driver", *map(str, files)]


def is_at_work(checkpoint: Path) -> bool:
    """Return whether a batch has begun and not ended; a restarted run begins with it."""
    numbers = [{int(file.name) for file in (checkpoint / name).glob("[0-9]*")} for name in ("offsets", "commits")]
    return numbers[0] > numbers[1]
