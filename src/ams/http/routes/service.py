"""The service itself: status, version, metrics (contract 14), both doctors, and the audit log."""

import asyncio

from ams.core.clock import Milliseconds
from ams.core.names import subscription_path, topic_path
from ams.http.routing import Call, page_request
from ams.service import doctor, metrics
from ams.service.service_doctor import ServiceDoctor, ServiceInfo
from ams.storage.audit.records import AuditRecords, event_filter, listing
from ams.storage.registry.records import Subscription
from ams.wire import service as wire
from ams.wire.actions import RECORDED


class ServiceRoutes:
    """The routes of the service's state, metrics, and the audit log."""

    def __init__(
        self, about: ServiceInfo, metrics: metrics.Metrics, usage: metrics.Usage, records: AuditRecords
    ) -> None:
        self._about, self._metrics, self._usage, self._records = about, metrics, usage, records

    async def ams_health_status(self, call: Call) -> wire.Status:
        details = call.parameter("details") == "true"
        if details:
            await self._about.require_viewer(call.token)
        return await self._about.status(details=details)

    async def version_list(self, call: Call) -> wire.Version:
        return await self._about.version(call.token)

    async def ams_metrics(self, _call: Call) -> wire.Metrics:
        return wire.Metrics(await self._metrics.node())

    async def projects_metrics(self, call: Call) -> wire.Metrics:
        return wire.Metrics(await self._metrics.project(call.caller))

    async def topics_metrics(self, call: Call) -> wire.Metrics:
        return wire.Metrics(await self._metrics.topic(call.caller, call.topic))

    async def subscriptions_metrics(self, call: Call) -> wire.Metrics:
        return wire.Metrics(await self._metrics.subscription(call.caller, call.subscription))

    async def ams_va_metrics(self, call: Call) -> wire.VaMetrics:
        return await self._usage.va_metrics(*_window(call))

    async def users_usage_report(self, call: Call) -> wire.UsageReport:
        return await self._usage.report(call.token, *_window(call))

    async def audit_list(self, call: Call) -> wire.Lines:
        page = page_request(call)
        asked = event_filter({name: call.parameter(name) or "" for name in wire.EVENT_FILTERS}, RECORDED)
        return await listing(self._records, asked, page.size, page.token)


class DoctorRoutes:
    """The routes of the doctors."""

    def __init__(self, doctor: doctor.Doctor, service: ServiceDoctor, node: str = "") -> None:
        """`node` is the name of this node; empty without others."""
        self._doctor, self._service, self._node = doctor, service, node

    async def subscriptions_doctor(self, call: Call) -> wire.Diagnosis:
        diagnosis = await self._doctor.look(call.caller, call.subscription)
        subscription = diagnosis.subscription
        return wire.Diagnosis(
            subscription=subscription_path(call.project, subscription.name),
            topic=topic_path(call.project, subscription.topic),
            ack_deadline_seconds=subscription.ack_deadline_seconds,
            push=subscription.push is not None,
            push_verified=subscription.push is not None and subscription.push.verified,
            healthy=diagnosis.healthy,
            findings=diagnosis.findings,
            standing=_standing(diagnosis.standing, subscription) if diagnosis.standing else None,
        )

    async def service_doctor(self, _call: Call) -> wire.ServiceDiagnosis:
        found, alive = await asyncio.gather(self._service.look(), self._service.nodes_alive())
        nodes = [wire.ServiceNode(each.url, each.name == self._node) for each in alive]
        return wire.ServiceDiagnosis(not any(finding.wrong for finding in found), found, nodes)


def _window(call: Call) -> tuple[str, str, str]:
    start, end, projects = (call.parameter(name) or "" for name in ("start_date", "end_date", "projects"))
    return start, end, projects


def _standing(standing: doctor.SubscriptionState, subscription: Subscription) -> wire.Standing:
    underway = standing.underway
    return wire.Standing(
        min=standing.bounds.oldest,
        max=standing.bounds.end,
        current=standing.current,
        backlog=standing.backlog,
        handed_out=standing.outstanding_messages,
        lost=standing.lost_messages,
        retention_seconds=standing.retention / 1000,
        handed_out_seconds_ago=_seconds(standing.hand_out.ago if standing.hand_out else None),
        last_pull_seconds_ago=_seconds(standing.pulled_ago),
        last_acknowledgement_seconds_ago=_seconds(standing.acknowledged_ago),
        last_publish_seconds_ago=_seconds(standing.published_ago),
        oldest_waiting_seconds=_seconds(standing.oldest_backlog_age),
        acknowledged=None if subscription.parallel is None else standing.above,
        leased=underway.leased if underway else None,
        waiting=underway.waiting if underway else None,
        blocked=underway.blocked if underway else None,
        failed=underway.failed if underway else None,
    )


def _seconds(span: Milliseconds | None) -> float | None:
    return None if span is None else span / 1000
