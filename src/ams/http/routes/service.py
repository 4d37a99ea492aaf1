"""The service itself: status, version, metrics (contract 14), both doctors, and the audit log."""

import asyncio

from ams.http.routing import Call, forward, page_request
from ams.service import doctor, metrics
from ams.service.service_doctor import ServiceDoctor, ServiceInfo
from ams.storage.audit.records import AuditRecords, event_filter
from ams.wire import service as wire
from ams.wire.actions import RECORDED


class ServiceRoutes:
    """The routes of the service's state, metrics, doctors, and the audit log."""

    def __init__(
        self, about: ServiceInfo, metrics: metrics.Metrics, records: AuditRecords, doctor: doctor.Doctor,
        service: ServiceDoctor, node: str = "",
    ) -> None:  # fmt: skip
        """`node` is the name of this node; empty without others."""
        self._about, self._metrics, self._records = about, metrics, records
        self._service, self._node = service, node
        self.subscriptions_doctor = forward(doctor.look, "subscription")
        self.projects_metrics = forward(metrics.project, show=wire.Metrics)
        self.topics_metrics = forward(metrics.topic, "topic", show=wire.Metrics)
        self.subscriptions_metrics = forward(metrics.subscription, "subscription", show=wire.Metrics)

    async def ams_health_status(self, call: Call) -> wire.Status:
        details = call.parameter("details") == "true"
        if details:
            await self._about.require_viewer(call.token)
        return await self._about.status(details=details)

    async def version_list(self, call: Call) -> wire.Version:
        return await self._about.version(call.token)

    async def ams_metrics(self, _call: Call) -> wire.Metrics:
        return wire.Metrics(await self._metrics.node())

    async def ams_va_metrics(self, call: Call) -> wire.VaMetrics:
        return await self._metrics.va_metrics(*_window(call))

    async def users_usage_report(self, call: Call) -> wire.UsageReport:
        return await self._metrics.usage_report(call.token, *_window(call))

    async def audit_list(self, call: Call) -> wire.Lines:
        page = page_request(call)
        return await self._records.list(event_filter(call.parameter, RECORDED), page.size, page.token)

    async def service_doctor(self, _call: Call) -> wire.ServiceDiagnosis:
        found, alive = await asyncio.gather(self._service.look(), self._service.nodes_alive())
        nodes = [wire.ServiceNode(each.url, each.name == self._node) for each in alive]
        return wire.ServiceDiagnosis(not any(finding.wrong for finding in found), found, nodes)


def _window(call: Call) -> tuple[str, str, str]:
    start, end, projects = (call.parameter(name) or "" for name in ("start_date", "end_date", "projects"))
    return start, end, projects
