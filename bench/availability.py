"""Availability computed in the plainest way: an array of 86,400 numbers for each metric, a number a second.

It shares only the schema of the messages with the job, and knows only the usual profiles, and downtimes.
"""

import io
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import numpy as np
from fastavro import schemaless_reader
from numpy.typing import NDArray

from ams.pipeline.jobs.availability.parse import RESULT_SCHEMAS
from demo.pipeline.samples import Sample

Seconds = NDArray[np.int8]
Figures = dict[tuple[str, str, str, str], tuple[Decimal, ...]]
"""By level, site, service and host: availability, reliability, up, unknown, down."""

WORST = ["OK", "WARNING", "UNKNOWN", "MISSING", "DOWNTIME", "CRITICAL"]
BEST = ["OK", "WARNING", "CRITICAL", "UNKNOWN", "DOWNTIME", "MISSING"]
TO_BEST = np.array([BEST.index(status) for status in WORST], dtype=np.int8)
TO_WORST = np.array([WORST.index(status) for status in BEST], dtype=np.int8)
OK, WARNING, UNKNOWN, MISSING, DOWNTIME, CRITICAL = range(6)


def day_figures(samples: Iterable[Sample], files: Mapping[str, str], day: date) -> Figures:
    """Compute the figures of a day."""
    wanted = {service["service"]: service["metrics"] for service in read(files, "metric_profile")["services"]}
    groups = read(files, "aggregation_profile")["groups"]
    found = results(samples)
    sites: dict[str, dict[str, list[Seconds]]] = defaultdict(lambda: defaultdict(list))
    figures: Figures = {}
    for item in read(files, "topology"):
        if item["tags"]["production"] != "1":
            continue
        place = (item["service"], item["hostname"])
        metrics = [metric_seconds(found, (*place, metric), day) for metric in wanted[item["service"]]]
        endpoint = np.maximum.reduce(metrics)
        lay_downtimes(endpoint, read(files, "downtimes"), place, day)
        figures["endpoint", item["group"], *place] = counted(endpoint)
        sites[item["group"]][item["service"]].append(endpoint)
    for site, endpoints in sites.items():
        services = {service: best(lines) for service, lines in endpoints.items()}
        for service, line in services.items():
            figures["service", site, service, ""] = counted(line)
        joined = [
            best([services[each["name"]] for each in group["services"] if each["name"] in services])
            for group in groups
            if any(each["name"] in services for each in group["services"])
        ]
        figures["endpoint_group", site, "", ""] = counted(np.maximum.reduce(joined))
    return figures


def results(samples: Iterable[Sample]) -> dict[tuple[str, str, str], dict[datetime, int]]:
    """Collect the worst status of each metric at each time, skipping messages that cannot be decoded."""
    found: dict[tuple[str, str, str], dict[datetime, int]] = defaultdict(dict)
    for sample in samples:
        stream = io.BytesIO(sample.data)
        try:
            record: Any = schemaless_reader(stream, RESULT_SCHEMAS["current"], None)
            at = datetime.strptime(record["timestamp"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
            status = WORST.index(record["status"])
        except (EOFError, IndexError, ValueError, TypeError, KeyError):
            continue
        if not stream.read():
            held = found[record["service"], record["hostname"], record["metric"]]
            held[at] = max(status, held.get(at, 0))
    return found


def metric_seconds(
    found: Mapping[tuple[str, str, str], Mapping[datetime, int]], measured: tuple[str, str, str], day: date
) -> Seconds:
    line = np.full(86_400, MISSING, dtype=np.int8)
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    for at, status in sorted(found.get(measured, {}).items()):
        if midnight - timedelta(days=1) <= at < midnight + timedelta(days=1):
            line[max(int((at - midnight).total_seconds()), 0) :] = status
    return line


def lay_downtimes(line: Seconds, downtimes: Iterable[Mapping[str, str]], place: tuple[str, str], day: date) -> None:
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    for item in downtimes:
        if (item["service"], item["hostname"]) == place:
            start, end = (
                int((datetime.fromisoformat(item[name]) - midnight).total_seconds())
                for name in ("start_time", "end_time")
            )
            line[max(start, 0) : max(end, 0)] = DOWNTIME


def best(lines: list[Seconds]) -> Seconds:
    return TO_WORST[np.minimum.reduce([TO_BEST[line] for line in lines])]


def counted(line: Seconds) -> tuple[Decimal, ...]:
    of = np.bincount(line, minlength=6).tolist()
    up, unknown, down = of[OK] + of[WARNING], of[UNKNOWN] + of[MISSING], of[DOWNTIME]
    known = 86_400 - unknown
    return (percent(up, known), percent(up, known - down), *(part(each) for each in (up, unknown, down)))


def percent(up: int, whole: int) -> Decimal:
    return rounded(Decimal(100 * up) / whole) if whole else Decimal(-1)


def part(seconds: int) -> Decimal:
    return rounded(Decimal(seconds) / 86_400)


def rounded(figure: Decimal) -> Decimal:
    return figure.quantize(Decimal("0.00001"), ROUND_HALF_UP)


def read(files: Mapping[str, str], name: str) -> Any:
    return json.loads(Path(files[name]).read_text())
