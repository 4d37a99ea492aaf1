"""Reading alarms, status events and alerts: three shapes of the same news, a status of something at a time.

- An *alarm* comes from a monitoring box: one metric of a service on a host.
- A *status event* comes from the computation of statuses. It is about a metric, an endpoint, a service or a group of
  endpoints (a site), within a report. On higher levels it also names the metric that caused it.
- An *alert* is a status event on its way to Alerta.

A field that fills no column and is not known to fill none is named in `not_taken`: nothing is dropped without a word.
"""

import math
from collections.abc import Iterable, Mapping

from ams.pipeline.errors import Broken
from ams.pipeline.jobs import fields

STATUSES = ("OK", "WARNING", "UNKNOWN", "MISSING", "DOWNTIME", "CRITICAL")
"""All statuses, the best first. Of two reports of the same second the worse one counts as the later."""

LEVELS = ("endpoint_group", "service", "endpoint", "metric")  # widest first; each adds one of `_PLACES`
_PLACES = ("site", "service", "hostname", "metric")

ALARM = fields.names(
    needed="service=service_flavour hostname=node_name metric=test_name",
    moment="at=execution_time",
    free_text="details=details",
    text="vo=vo roc=roc url_history=urlhistory url_help=urlhelp",
)
EVENT = fields.names(
    needed="report=report",
    moment="at=ts_monitored",
    text="monitoring_host=monitoring_host url_help=url.help url_history=url.history|hostname_url",
)
ALERT = fields.names(moment="at=_ts_monitored", text="url_history=_alert_url")  # of its attributes

TAKEN = {  # fields that fill columns, by the kind of a message
    "alarm": fields.field_names("status site", ALARM),
    "event": fields.field_names("type endpoint_group service hostname metric status summary message", EVENT),
    "alert": fields.field_names("environment event resource severity text attributes"),
    "alert attributes": fields.field_names("_group _service _endpoint _metric _mon_summary _mon_message", ALERT),
}
_LEVELS_TOLD = "status_metric status_endpoint status_service status_egroup"
_BELOW = "metric_names metric_statuses group_endpoints group_services group_statuses"
NOT_TAKEN = {  # fields that are known and fill no column: the reference says why
    "alarm": fields.field_names("tags"),
    "event": fields.field_names(f"date ts_processed prev_status prev_ts repeat reminder {_LEVELS_TOLD} {_BELOW}"),
    "alert": fields.field_names("service timeout"),
    "alert attributes": {f"_{name}" for name in f"ts_processed repeat group_type {_LEVELS_TOLD} {_BELOW}".split()},
}

LONGEST_NAME = 255  # bytes of a name, at most: names stand in an index of the database, which takes no long ones


def parse(data: bytes, attributes: Mapping[str, str], latest: float = math.inf) -> Iterable[fields.Record]:
    """Return the one report that a message holds; one later than `latest`, in seconds since 1970, is broken."""
    record = fields.json_object(data)
    if "execution_time" in record:
        report = _of_alarm(record)
    elif "ts_monitored" in record:
        report = _of_event(record)
    elif "resource" in record and "event" in record:
        report = _of_alert(record)
    else:
        raise Broken("neither an alarm, a status event nor an alert")
    if not 0 <= report["at"].timestamp() <= latest:
        raise Broken(f"its time lies {'before 1970' if report['at'].timestamp() < 0 else 'in the future'}")
    for name in ("report", *_PLACES):
        if len(report[name].encode()) > LONGEST_NAME:
            raise Broken(f"{name} is longer than {LONGEST_NAME} bytes")
    others = fields.unknown_fields(record, TAKEN[report["kind"]] | NOT_TAKEN[report["kind"]])
    if report["kind"] == "alert":
        known = TAKEN["alert attributes"] | NOT_TAKEN["alert attributes"]
        others += fields.unknown_fields(record["attributes"], known, "attributes.")
    return [{**report, "not_taken": others}]


def _of_alarm(record: fields.Record) -> fields.Record:
    status = fields.one_of(fields.needed(record, "status"), "status", STATUSES)
    site = fields.text(record, "site") or ""
    own = {"kind": "alarm", "report": "", "level": "metric", "site": site, "status": status}
    return own | fields.read(record, ALARM)


def _of_event(record: fields.Record) -> fields.Record:
    level = fields.one_of(fields.needed(record, "type"), "type", LEVELS)
    below = [fields.text(record, name) or "" for name in _PLACES[1:]]
    return {
        "kind": "event",
        **_place(level, [fields.needed(record, "endpoint_group"), *below]),
        "status": fields.one_of(fields.needed(record, "status"), "status", STATUSES),
        "details": fields.join("\n", fields.free_text(record, "summary"), fields.free_text(record, "message")),
        **fields.read(record, EVENT),
    }


def _of_alert(record: fields.Record) -> fields.Record:
    level = fields.one_of(fields.needed(record, "event").removesuffix("_status"), "event", LEVELS)
    told = fields.an_object(record.get("attributes"), "attributes")
    names = [fields.text(told, name) or "" for name in ("_group", "_service", "_endpoint", "_metric")]
    summary = fields.free_text(told, "_mon_summary") or fields.free_text(record, "text")
    report = fields.needed(record, "environment")
    # Resources are `SITE`, `SITE/service`, `service/host` and `SITE/service/host/metric`: they say what is left out.
    parts = fields.needed(record, "resource").split("/")
    parts = ["", *parts] if level == "endpoint" else parts
    names = [name or (parts[place] if place < len(parts) else "") for place, name in enumerate(names)]
    return {
        "kind": "alert",
        "report": report,
        **_place(level, names),
        "status": fields.one_of(fields.needed(record, "severity").upper(), "severity", STATUSES),
        "details": fields.join("\n", summary, fields.free_text(told, "_mon_message")),
        **fields.read(told, ALERT),
    }


def _place(level: str, names: list[str]) -> dict[str, str | None]:
    """Name what the status is of by as many names as its level has; the names below it are the cause."""
    depth = LEVELS.index(level) + 1
    for place, name in zip(_PLACES[1:depth], names[1:depth], strict=True):
        if not name:
            raise Broken(f"{place} is missing, which the level {level} needs")
    own = dict(zip(_PLACES, [*names[:depth], *[""] * (4 - depth)], strict=True))
    return {"level": level, **own, "cause": fields.join("/", *names[depth:])}
