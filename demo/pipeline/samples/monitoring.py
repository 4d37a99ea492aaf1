"""The world of monitoring: results of an infrastructure's probes, host by host, and the files for their evaluation.

Every check runs each 5, 15, 60 or 240 minutes, from one of three hosts whose clocks differ. Some 95 % of the
results are OK; failures come in runs: an outage makes all checks of a host CRITICAL for 1 to 6 hours. Some outages
were announced as downtimes. Some results are sent twice, some a day late, and some messages are no results at all.
"""

import io
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from fastavro import schemaless_writer

from ams.pipeline.jobs.availability.parse import LIST_SCHEMAS, RESULT_SCHEMAS
from demo.pipeline.samples import Mishaps, Sample

TOPICS = ("metric_data", "sync_data")
GROUPS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "compute": {
        "org.opensciencegrid.htcondorce": ("ch.cern.HTCondorCE-JobState", "generic.tcp.connect"),
        "ARC-CE": ("org.nordugrid.ARC-CE-result", "generic.certificate.validity"),
    },
    "storage": {
        "webdav": ("ch.cern.WebDAV", "generic.tcp.connect", "generic.certificate.validity"),
        "SRM": ("org.sam.SRM-All",),
    },
    "information": {"Site-BDII": ("org.bdii.Entries", "generic.tcp.connect")},
    "cloud": {"org.openstack.nova": ("org.nagios.Keystone-TCP", "generic.http.connect")},
}
"""The groups of services that can stand in for each other, their services, and the metrics of each."""
EVERY = (300, 900, 3600, 14_400)  # seconds between two runs of a check
SKEW = {"mon1.example.org": 0, "mon2.example.org": 95, "mon3.example.org": -140}
"""The monitoring hosts, and by how many seconds their clocks are ahead."""
DAY = 86_400
MISHAPS = Mishaps(late=0.003, doubled=0.01, broken=0.001)  # what monitoring meets with on an ordinary day


class Host(NamedTuple):
    site: str
    region: str
    service: str
    name: str
    production: bool
    silent: bool  # in the topology, but never measured


class Outage(NamedTuple):
    start: int
    end: int
    announced: bool


class Check(NamedTuple):
    """A result: when it is published, when it says it was made, and what it says."""

    published: float
    timestamp: int
    host: Host
    metric: str
    status: str
    monitoring_host: str
    late: bool


def messages(
    seed: int, day: date, *, sites: int = 20, mishaps: Mishaps = MISHAPS, day_late: float = 0.003
) -> Iterator[Sample]:
    """Make the messages published on a day: what is monitored (`sync_messages`), then what was found (`results`)."""
    yield from sync_messages(seed, day, sites=sites)
    yield from results(seed, day, sites=sites, mishaps=mishaps, day_late=day_late)


def results(
    seed: int, day: date, *, sites: int = 20, mishaps: Mishaps = MISHAPS, day_late: float = 0.003
) -> Iterator[Sample]:
    """Make the results published on a day; each site brings some 1,200, and a part `day_late` comes a day late."""
    random = Random(f"messages of {seed} on {day}")  # made-up data, no cryptography
    left = [check for check in _checks(seed, day - timedelta(days=1), sites, day_late) if check.late]
    due = [check._replace(published=check.published + DAY) for check in left]
    on_time = [check for check in _checks(seed, day, sites, day_late) if not check.late]
    timed = (
        (datetime.fromtimestamp(check.published, UTC), _sample(random, check)) for check in sorted([*on_time, *due])
    )
    yield from mishaps.applied(timed, random, lambda sample: _spoilt(random, sample.data))


def files(seed: int, day: date, folder: Path, *, sites: int = 20) -> dict[str, str]:
    """Write the profiles, the topology and the downtimes of a world; returns the paths by the job's options."""
    folder.mkdir(parents=True, exist_ok=True)
    hosts = list(_hosts(seed, sites))
    contents = {
        "metric_profile": _metric_profile(),
        "aggregation_profile": _aggregation_profile(),
        "topology": [_endpoint(host, day) for host in hosts],
        "groups": _regions(hosts),
        "downtimes": _downtimes(seed, day, hosts),
    }
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    return {name: str(folder / f"{name}.json") for name in contents}


def sync_messages(seed: int, day: date, *, sites: int = 20, report: str = "Default") -> Iterator[Sample]:
    hosts = list(_hosts(seed, sites))
    profile = [
        {"profile": "ARGO_MON_CRITICAL", "service": each["service"], "metric": metric, "tags": None}
        for each in _metric_profile()["services"]
        for metric in each["metrics"]
    ]
    packed = {
        "metric_profile": profile,
        "group_endpoints": [_endpoint(host, day) for host in hosts],
        "group_groups": _regions(hosts),
        "downtimes": _downtimes(seed, day, hosts),
    }
    for kind, records in packed.items():
        datums = io.BytesIO()
        for record in records:
            schemaless_writer(datums, LIST_SCHEMAS[kind], record)
        attributes = {"type": kind, "partition_date": day.isoformat(), "report": report}
        yield Sample("sync_data", datums.getvalue(), attributes)


def _hosts(seed: int, sites: int) -> Iterator[Host]:
    random = Random(f"hosts of {seed}")  # made-up data, no cryptography
    for number in range(sites):
        site, region = f"SITE-{number:03d}", f"NGI_{'ABCDE'[number % 5]}"
        for service in (service for group in GROUPS.values() for service in group):
            if random.random() < 0.3:
                continue
            for place in range(random.choice((1, 1, 2))):
                name = f"{service.rsplit('.')[-1].lower()}{place + 1:02d}.{site.lower()}.example"
                yield Host(site, region, service, name, random.random() < 0.95, random.random() < 0.02)


def _checks(seed: int, day: date, sites: int, late: float) -> Iterator[Check]:
    midnight = int(datetime.combine(day, time(), UTC).timestamp())
    random = Random(f"checks of {seed} on {day}")  # made-up data, no cryptography
    for host in _hosts(seed, sites):
        outage = _outage(seed, day, host)
        for metric in () if host.silent else _metrics(host.service):
            every = random.choice(EVERY)
            for second in range(random.randrange(every), DAY, every):
                box = random.choice(list(SKEW))
                stamped = min(max(second + SKEW[box], 0), DAY - 1)
                status = _status(random, second, outage)
                published = midnight + second + random.uniform(1, 240)
                yield Check(published, midnight + stamped, host, metric, status, box, random.random() < late)


def _outage(seed: int, day: date, host: Host) -> Outage | None:
    random = Random(f"outage of {seed} at {host.name} on {day}")  # made-up data, no cryptography
    if random.random() > 0.08:
        return None
    start = random.randrange(DAY)
    return Outage(start, start + random.randrange(3600, 6 * 3600), random.random() < 0.3)


def _status(random: Random, second: int, outage: Outage | None) -> str:
    if outage and outage.start <= second < outage.end:
        return "CRITICAL"
    return random.choices(("OK", "WARNING", "UNKNOWN", "CRITICAL"), (970, 20, 5, 5))[0]


def _metrics(service: str) -> tuple[str, ...]:
    return next(group[service] for group in GROUPS.values() if service in group)


def _sample(random: Random, check: Check) -> Sample:
    timestamp = datetime.fromtimestamp(check.timestamp, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    seconds = random.lognormvariate(-3, 1)
    bad = check.status in ("CRITICAL", "UNKNOWN")
    record = {
        "timestamp": timestamp,
        "service": check.host.service,
        "hostname": check.host.name,
        "metric": check.metric,
        "status": check.status,
        "monitoring_host": check.monitoring_host,
        "actual_data": f"time={seconds:.6f}s;;;0.000000 size={random.randint(200, 90_000)}B;;;0",
        "summary": "connection timed out after 30 seconds"
        if bad
        else f"{check.status} - {seconds:.3f} s response time",
        "message": "the log of the probe follows\n" * random.randint(1, 20) if bad else None,
        "tags": {"endpoint_group": check.host.site, "roc": check.host.region, "voname": "ops", "vofqan": None},
    }
    datum = io.BytesIO()
    schemaless_writer(datum, RESULT_SCHEMAS["current"], record)
    return Sample("metric_data", datum.getvalue(), {"partition_date": timestamp[:10], "type": "metric_data"})


def _spoilt(random: Random, data: bytes) -> bytes:
    wrong = (data[: len(data) // 2], data + b"\x00\x00", b"OK - all is well", b"", data.replace(b"\x04OK", b"\x04ok"))
    return random.choice([each for each in wrong if each != data])


def _metric_profile() -> dict[str, Any]:
    services = {service: metrics for group in GROUPS.values() for service, metrics in group.items()}
    items = [{"service": service, "metrics": list(metrics)} for service, metrics in services.items()]
    return {"name": "ARGO_MON_CRITICAL", "services": items}


def _aggregation_profile() -> dict[str, Any]:
    groups = [
        {"name": name, "operation": "OR", "services": [{"name": service, "operation": "OR"} for service in services]}
        for name, services in GROUPS.items()
    ]
    operations = {"metric_operation": "AND", "profile_operation": "AND"}
    return {"name": "critical", "endpoint_group": "sites", **operations, "groups": groups}


def _endpoint(host: Host, day: date) -> dict[str, Any]:
    tags = {"monitored": "1", "production": str(int(host.production)), "scope": "EGI", "info_ID": f"{host.name}G0"}
    page = {"info_URL": f"https://{host.name}/"}
    return {
        "date": day.isoformat(),
        "group": host.site,
        "type": "SITES",
        "service": host.service,
        "hostname": host.name,
        "tags": {**tags, **page},
    }


def _regions(hosts: list[Host]) -> list[dict[str, Any]]:
    tags = {"certification": "Certified", "infrastructure": "Production", "scope": "EGI"}
    members = sorted({(host.region, host.site) for host in hosts})
    return [{"group": region, "subgroup": site, "type": "NGI", "tags": tags} for region, site in members]


def _downtimes(seed: int, day: date, hosts: list[Host]) -> list[dict[str, str]]:
    """List the announced outages of the day and the two days before; announcements are longer than the outage was."""
    found = []
    for host in hosts:
        for back in range(3):
            on = day - timedelta(days=back)
            outage = _outage(seed, on, host)
            if outage and outage.announced:
                found.append(_downtime(host, on, outage))
    return found


def _downtime(host: Host, day: date, outage: Outage) -> dict[str, str]:
    midnight = datetime.combine(day, time(), UTC)
    start, end = midnight + timedelta(seconds=outage.start), midnight + timedelta(seconds=outage.end + 1800)
    return {
        "hostname": host.name,
        "service": host.service,
        "start_time": start.strftime("%Y-%m-%dT%H:%M:00Z"),
        "end_time": end.strftime("%Y-%m-%dT%H:%M:00Z"),
    }
