"""The service itself: status, version, metrics (contract 14), both doctors, and the audit log."""

import asyncio

from ams.http.routing import Call, page_request
from ams.service import doctor, metrics
from ams.service.service_doctor import ServiceDoctor, ServiceInfo
from ams.storage.audit.records import AuditRecords, event_filter
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
        asked = event_filter(call.parameter, RECORDED)
        return await self._records.list(asked, page.size, page.token)


class DoctorRoutes:
    """The routes of the doctors."""

    def __init__(self, doctor: doctor.Doctor, service: ServiceDoctor, node: str = "") -> None:
        """`node` is the name of this node; empty without others."""
        self._doctor, self._service, self._node = doctor, service, node

    async def subscriptions_doctor(self, call: Call) -> wire.Diagnosis:
        return await self._doctor.look(call.caller, call.subscription)

    async def service_doctor(self, _call: Call) -> wire.ServiceDiagnosis:
        found, alive = await asyncio.gather(self._service.look(), self._service.nodes_alive())
        nodes = [wire.ServiceNode(each.url, each.name == self._node) for each in alive]
        return wire.ServiceDiagnosis(not any(finding.wrong for finding in found), found, nodes)


def _window(call: Call) -> tuple[str, str, str]:
    start, end, projects = (call.parameter(name) or "" for name in ("start_date", "end_date", "projects"))
    return start, end, projects
