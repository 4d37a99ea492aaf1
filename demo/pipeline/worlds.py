"""The day: which messages there are, and which jobs look at them."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from demo.pipeline.samples import Sample, accounting, alarms, cloud, federation, monitoring

PROJECT = "egi"
SEED = 1
LATE = (b"mon3.example.org", b"Site: SITE-C\n")
"""Texts in messages that come a day late: those of a monitoring host, and those of a site about its jobs."""
EARLY = ("accounting", "availability")
"""The jobs that tell of the day before the late messages have come, and once more after."""


@dataclass(frozen=True, slots=True)
class Task:
    """A job and what is said to it."""

    job: str
    options: Mapping[str, str] = field(default_factory=dict)


def yesterday() -> date:
    """Return the day all this happens on: the last one that is over."""
    return datetime.now(UTC).date() - timedelta(days=1)


def messages(day: date) -> Iterator[Sample]:
    """Yield all messages of the day."""
    return itertools.chain(
        accounting.messages(SEED, day),
        monitoring.messages(SEED, day),
        alarms.messages(SEED, day),
        cloud.messages(SEED, day, hours=6),
        federation.messages(SEED, day),
    )


def is_late(sample: Sample) -> bool:
    """Return whether a message comes a day late."""
    return any(each in sample.data.replace(b"\r\n", b"\n") for each in LATE)


def tasks(day: date, folder: Path, *, with_database: bool) -> list[Task]:
    """Return the jobs in their order; files they need are written to `folder`."""
    archive = folder / "archive"
    found = [
        Task("archive", {"path": str(archive)}),
        Task("metrics", {"archive": str(archive)}),
        Task("accounting"),
        Task("availability", monitoring.files(SEED, day, folder / "monitoring")),
        Task("cloud-info"),
        Task("federation"),
    ]
    return [*found, Task("alarms", {"topics": f"[{', '.join(alarms.TOPICS)}]"})] if with_database else found
