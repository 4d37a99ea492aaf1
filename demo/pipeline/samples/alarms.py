"""A day of alarms, status events and alerts about outages of endpoints, from monitoring boxes and the status job.

Each outage begins and ends once. A box sends it as an alarm, and again every hour while it lasts. The status job sends
events for the metric, the endpoint, the service and the site, and alerts for the last two to people on call.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from random import Random

from demo.pipeline.samples import Mishaps, Sample, Timed

ALARMS, EVENTS, ALERTS = "alarms", "status_events", "alerts"
TOPICS = (ALARMS, EVENTS, ALERTS)

METRICS = {
    "org.opensciencegrid.htcondorce": ("ch.cern.HTCondorCE-JobState", "generic.certificate.validity"),
    "ARC-CE": ("org.nordugrid.ARC-CE-result", "generic.tcp.connect"),
    "webdav": ("ch.cern.WebDAV", "generic.certificate.validity"),
    "Site-BDII": ("org.bdii.Entries", "generic.tcp.connect"),
    "org.openstack.nova": ("eu.egi.cloud.OpenStack-VM", "org.nagios.Keystone-TCP"),
}
BAD = ("CRITICAL", "CRITICAL", "WARNING", "UNKNOWN")
REPORT, TENANT = "Critical", "EGI"


def messages(
    seed: int, day: date, *, sites: int = 20, outages: int = 60, mishaps: Mishaps | None = None
) -> Iterator[Sample]:
    """Yield the messages of a day in the order they are published in; about 15 for each outage."""
    random = Random(seed)  # made-up data
    told = (timed for _ in range(outages) for timed in _told(_outage(random, day, sites), random))
    return (mishaps or Mishaps()).applied(told, random, lambda sample: _spoilt(sample, random))


@dataclass(frozen=True, slots=True)
class _Outage:
    site: str
    service: str
    hostname: str
    metric: str
    status: str
    begin: datetime
    end: datetime

    @property
    def details(self) -> str:
        return f"{self.metric} {self.status} - no answer from {self.hostname} within 30 seconds"


def _outage(random: Random, day: date, sites: int) -> _Outage:
    site = f"SITE-{random.randrange(sites):02d}"
    service = random.choice(sorted(METRICS))
    hostname = f"{service.split('.')[-1].lower()}{random.randint(1, 2):02d}.{site.lower()}.example"
    begin = datetime.combine(day, time(), UTC) + timedelta(seconds=random.randrange(86_400))
    lasting = timedelta(seconds=random.choice((300, 900, 3_600, 3_600 * random.randint(1, 6))))
    metric = random.choice(METRICS[service])
    return _Outage(site, service, hostname, metric, random.choice(BAD), begin, begin + lasting)


def _told(outage: _Outage, random: Random) -> Iterator[Timed]:
    at = outage.begin
    while at < outage.end:
        yield at + timedelta(seconds=random.randint(1, 20)), _alarm(outage, outage.status, at)
        at += timedelta(hours=1)
    yield outage.end + timedelta(seconds=random.randint(1, 20)), _alarm(outage, "OK", outage.end)
    for at, before, status in ((outage.begin, "OK", outage.status), (outage.end, outage.status, "OK")):
        for level in ("metric", "endpoint", "service", "endpoint_group"):
            processed = at + timedelta(seconds=random.randint(20, 60))
            yield processed, _event(outage, level, before, status, at, processed)
            if level in ("endpoint", "endpoint_group"):
                yield processed, _alert(outage, level, status, at, processed)


def _alarm(outage: _Outage, status: str, at: datetime) -> Sample:
    page = f"https://mon1.example.org/history?host={outage.hostname}"
    told = {
        "execution_time": _written(at),
        "service_flavour": outage.service,
        "node_name": outage.hostname,
        "test_name": outage.metric,
        "status": status,
        "details": outage.details if status != "OK" else f"{outage.metric} OK",
        "vo": "ops",
        "site": outage.site,
        "roc": "NGI_EXAMPLE",
        "urlhistory": page,
        "urlhelp": f"https://docs.example.org/metrics/{outage.metric}",
        "tags": {},
    }
    return Sample(ALARMS, json.dumps(told).encode(), {"partition_date": at.date().isoformat(), "type": "alarm"})


def _event(outage: _Outage, level: str, before: str, status: str, at: datetime, processed: datetime) -> Sample:
    pair = [status, before, _written(at), _written(at)]
    told = {
        "report": REPORT,
        "type": level,
        "date": at.strftime("%Y%m%d"),
        "endpoint_group": outage.site,
        "service": outage.service,
        "hostname": outage.hostname,
        "metric": outage.metric,
        "status": status,
        "prev_status": before,
        "ts_monitored": _written(at),
        "prev_ts": _written(at),
        "ts_processed": _written(processed),
        "monitoring_host": "mon1.example.org",
        "summary": outage.details if status != "OK" else f"{outage.metric} OK",
        "message": "",
        "hostname_url": f"https://{outage.hostname}/",
        "repeat": "false",
        "reminder": "false",
        **{f"status_{name}": pair for name in ("metric", "endpoint", "service", "egroup")},
        "metric_names": list(METRICS[outage.service]),
        "metric_statuses": [status if name == outage.metric else "OK" for name in METRICS[outage.service]],
        "group_endpoints": [outage.hostname],
        "group_services": [outage.service],
        "group_statuses": [status],
    }
    return Sample(EVENTS, json.dumps(told).encode())


def _alert(outage: _Outage, level: str, status: str, at: datetime, processed: datetime) -> Sample:
    endpoint = level == "endpoint"
    what = f"Endpoint {outage.hostname} ({outage.service})" if endpoint else f"Site {outage.site}"
    told = {
        "environment": TENANT,
        "event": f"{level}_status",
        "resource": f"{outage.service}/{outage.hostname}" if endpoint else outage.site,
        "service": [level],
        "severity": status.lower(),
        "text": f"[ {TENANT} ] - {what} is {status}",
        "timeout": 3600,
        "attributes": {
            "_group": outage.site,
            "_group_type": "SITES",
            "_service": outage.service,
            "_endpoint": outage.hostname,
            "_metric": outage.metric,
            "_ts_monitored": _written(at),
            "_ts_processed": _written(processed),
            "_repeat": "false",
            "_mon_summary": outage.details,
            "_mon_message": "",
            "_alert_url": f"https://alerts.example.org/{outage.site}",
        },
    }
    return Sample(ALERTS, json.dumps(told).encode())


def _spoilt(sample: Sample, random: Random) -> bytes:
    told = json.loads(sample.data)
    damages = (
        lambda: sample.data[: len(sample.data) // 2],
        lambda: b" ",
        lambda: json.dumps({**told, "execution_time": "yesterday", "ts_monitored": 1, "attributes": {}}).encode(),
        lambda: json.dumps({**told, "status": "BURNING", "severity": "burning"}).encode(),
        lambda: b'["not", "an", "object"]',
    )
    return random.choice(damages)()


def _written(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
