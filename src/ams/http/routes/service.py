"""The service itself: status and version (contract 14.5 and 14.6), metrics (contract 14.1 to 14.4), and ours:
why nothing arrives, what is wrong with the service, and the audit log.
"""

import asyncio
from collections.abc import Collection

from ams.core.clock import Milliseconds
from ams.core.names import subscription_path, topic_path
from ams.http.routing import PAGE, Call, Row, page_request
from ams.service import doctor, metrics
from ams.service.service_doctor import About, ServiceDoctor
from ams.storage.audit.records import FILTERS, AuditRecords, listing, wanted
from ams.storage.registry.records import Subscription
from ams.wire import service as wire

WINDOW = ("start_date", "end_date", "projects")  # days `YYYY-MM-DD`, both included, and names joined by commas


class ServiceRoutes:
    """The routes of the service's state, and of metrics."""

    def __init__(self, about: About, metrics: metrics.Metrics, usage: metrics.Usage) -> None:
        self._about = about
        self._metrics = metrics
        self._usage = usage

    def rows(self) -> list[Row]:
        """Return the rows of the route table; `/users/usageReport` comes before `/users/{user}` (contract 1.3)."""
        one = "/projects/{project}"
        subscription = one + "/subscriptions/{subscription}:metrics"
        return [
            Row("GET", "/status", None, self.status, answers=wire.Status, parameters=("details",)),
            Row("GET", "/version", None, self.version, answers=wire.Version),
            Row("GET", "/metrics", "ams:metrics", self.node, answers=wire.Metrics),
            Row("GET", "/metrics/va_metrics", "ams:vaMetrics", self.va_metrics, None, wire.VaMetrics, WINDOW),
            Row("GET", "/users/usageReport", None, self.usage_report, None, wire.UsageReport, WINDOW, counted=True),
            Row("GET", one + "/topics/{topic}:metrics", "topics:metrics", self.topic, answers=wire.Metrics),
            Row("GET", subscription, "subscriptions:metrics", self.subscription, answers=wire.Metrics),
            Row("GET", one + ":metrics", "projects:metrics", self.project, answers=wire.Metrics),
        ]

    async def status(self, call: Call) -> wire.Status:
        """Whether all is well."""
        details = call.parameter("details") == "true"
        if details:
            await self._about.require_viewer(call.token)
        return await self._about.status(details=details)

    async def version(self, call: Call) -> wire.Version:
        """What runs here."""
        return await self._about.version(call.token)

    async def node(self, _call: Call) -> wire.Metrics:
        """Answer what the service takes of its machine."""
        return wire.Metrics(await self._metrics.node())

    async def project(self, call: Call) -> wire.Metrics:
        """Answer the metrics of a project."""
        return wire.Metrics(await self._metrics.project(call.caller))

    async def topic(self, call: Call) -> wire.Metrics:
        """Answer the metrics of a topic."""
        return wire.Metrics(await self._metrics.topic(call.caller, call.topic))

    async def subscription(self, call: Call) -> wire.Metrics:
        """Answer the metrics of a subscription."""
        return wire.Metrics(await self._metrics.subscription(call.caller, call.subscription))

    async def va_metrics(self, call: Call) -> wire.VaMetrics:
        """Answer what was published and created in a window of days, by project."""
        return await self._usage.va_metrics(*_window(call))

    async def usage_report(self, call: Call) -> wire.UsageReport:
        """Answer the same of the projects the caller administers."""
        return await self._usage.report(call.token, *_window(call))


class DoctorRoutes:
    """The routes of the doctors."""

    def __init__(self, doctor: doctor.Doctor, service: ServiceDoctor, node: str = "") -> None:
        """`node` is the name of this one, where there are others."""
        self._doctor = doctor
        self._service = service
        self._node = node

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        path = "/projects/{project}/subscriptions/{subscription}:doctor"
        return [
            Row("GET", path, "subscriptions:doctor", self.look, answers=wire.Diagnosis),
            Row("GET", "/doctor", "service:doctor", self.look_at_service, answers=wire.ServiceDiagnosis),
        ]

    async def look(self, call: Call) -> wire.Diagnosis:
        """Answer why nothing arrives."""
        diagnosis = await self._doctor.look(call.caller, call.subscription)
        return _report(call.project, diagnosis)

    async def look_at_service(self, _call: Call) -> wire.ServiceDiagnosis:
        """Answer what is wrong with the service."""
        found, alive = await asyncio.gather(self._service.look(), self._service.nodes_alive())
        nodes = [wire.ServiceNode(each.url, each.name == self._node) for each in alive]
        return wire.ServiceDiagnosis(not any(finding.wrong for finding in found), found, nodes)


class AuditRoutes:
    """The routes of the audit log."""

    def __init__(self, records: AuditRecords, actions: Collection[str]) -> None:
        """`actions` are those of which there may be events."""
        self._records = records
        self._actions = actions

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        return [Row("GET", "/audit", "audit:list", self.list, answers=wire.Lines, parameters=(*FILTERS, *PAGE))]

    async def list(self, call: Call) -> wire.Lines:
        """Answer who did which change, newest first."""
        page = page_request(call)
        asked = wanted({name: call.parameter(name) or "" for name in FILTERS}, self._actions)
        return await listing(self._records, asked, page.size, page.token)


def _window(call: Call) -> tuple[str, str, str]:
    start, end, projects = (call.parameter(name) or "" for name in WINDOW)
    return start, end, projects


def _report(project: str, diagnosis: doctor.Diagnosis) -> wire.Diagnosis:
    subscription = diagnosis.subscription
    return wire.Diagnosis(
        subscription=subscription_path(project, subscription.name),
        topic=topic_path(project, subscription.topic),
        ack_deadline_seconds=subscription.ack_deadline_seconds,
        push=subscription.push is not None,
        push_verified=subscription.push is not None and subscription.push.verified,
        healthy=diagnosis.healthy,
        findings=diagnosis.findings,
        standing=_standing(diagnosis.standing, subscription) if diagnosis.standing else None,
    )


def _standing(standing: doctor.Standing, subscription: Subscription) -> wire.Standing:
    underway = standing.underway
    return wire.Standing(
        min=standing.bounds.oldest,
        max=standing.bounds.end,
        current=standing.current,
        backlog=standing.backlog,
        handed_out=standing.handed,
        lost=standing.lost,
        retention_seconds=standing.retention / 1000,
        handed_out_seconds_ago=_seconds(standing.hand_out.ago if standing.hand_out else None),
        last_pull_seconds_ago=_seconds(standing.pulled_ago),
        last_acknowledgement_seconds_ago=_seconds(standing.acknowledged_ago),
        last_publish_seconds_ago=_seconds(standing.published_ago),
        oldest_waiting_seconds=_seconds(standing.waiting_since),
        acknowledged=None if subscription.parallel is None else standing.above,
        leased=underway.leased if underway else None,
        waiting=underway.waiting if underway else None,
        blocked=underway.blocked if underway else None,
        failed=underway.failed if underway else None,
    )


def _seconds(span: Milliseconds | None) -> float | None:
    return None if span is None else span / 1000
