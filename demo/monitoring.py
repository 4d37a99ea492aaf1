"""Monitoring results: what the probes of an infrastructure found, host by host.

Each message is one Avro binary datum, without header or schema inside, so writer and reader must agree on the schema:
it stands beside this file (`metric_data.avsc`). The attributes say the day and the type, because consumers sort by
them without opening the payload.
"""

import heapq
import io
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import NamedTuple

from fastavro import schemaless_writer
from fastavro.schema import load_schema

from demo.ledger import Message

SCHEMA = load_schema(str(Path(__file__).with_name("metric_data.avsc")))
SITES = 20
MORNING = datetime(2024, 3, 5, 6, tzinfo=UTC).timestamp()
PROBES = {
    "org.opensciencegrid.htcondorce": ("ch.cern.HTCondorCE-JobState", "generic.tcp.connect"),
    "ARC-CE": ("org.nordugrid.ARC-CE-result", "generic.certificate.validity"),
    "webdav": ("ch.cern.WebDAV", "generic.tcp.connect", "generic.certificate.validity"),
    "Site-BDII": ("org.bdii.Entries", "generic.tcp.connect"),
    "org.openstack.nova": ("org.nagios.Keystone-TCP", "generic.http.connect"),
}
EVERY = (300, 900, 3600)
"""Seconds between two runs of a probe."""


class Check(NamedTuple):
    """One probe on one host of one site."""

    site: str
    service: str
    host: str
    metric: str
    every: int
    down_from: float
    """When an outage of the host begins; after the end of the story for most."""


def results(seed: int, count: int) -> Iterator[Message]:
    """Make `count` results in the order the probes ran, always the same for a seed."""
    random = Random(seed)
    checks = list(_checks(random))
    due = [(MORNING + random.uniform(0, check.every), place) for place, check in enumerate(checks)]
    heapq.heapify(due)
    for _ in range(count):
        time, place = due[0]
        check = checks[place]
        heapq.heapreplace(due, (time + check.every, place))
        yield _message(random, check, time)


def _checks(random: Random) -> Iterator[Check]:
    for number in range(SITES):
        site = f"SITE-{chr(ord('A') + number)}"
        for service, metrics in PROBES.items():
            host = f"{service.rsplit('.')[-1].lower()}.{site.lower()}.example"
            down_from = MORNING + random.uniform(0, 7200) if random.random() < 0.05 else float("inf")
            for metric in metrics:
                yield Check(site, service, host, metric, random.choice(EVERY), down_from)


def _message(random: Random, check: Check, time: float) -> Message:
    timestamp = datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    seconds = random.lognormvariate(-3, 1)
    status = "CRITICAL" if time >= check.down_from else random.choices(("OK", "WARNING", "UNKNOWN"), (97, 2, 1))[0]
    record = {
        "timestamp": timestamp,
        "service": check.service,
        "hostname": check.host,
        "metric": check.metric,
        "status": status,
        "monitoring_host": f"mon{random.randint(1, 3)}.example.org",
        "actual_data": f"time={seconds:.6f}s;;;0.000000",
        "summary": _summary(status, seconds),
        "message": None
        if status == "OK"
        else "Traceback follows in the log of the monitoring host\n" * random.randint(1, 4),
        "tags": {"endpoint_group": check.site, "roc": "NGI_EXAMPLE", "voname": "ops", "vofqan": None},
    }
    datum = io.BytesIO()
    schemaless_writer(datum, SCHEMA, record)
    return Message({"partition_date": timestamp[:10], "type": "metric_data"}, datum.getvalue())


def _summary(status: str, seconds: float) -> str:
    if status == "CRITICAL":
        return "CRITICAL - connection timed out after 30 seconds"
    return f"{status} - {seconds:.3f} second response time"
