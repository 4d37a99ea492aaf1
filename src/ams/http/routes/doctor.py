"""Why nothing arrives, and what is wrong with the service, over HTTP; no part of the contract."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from ams.core.clock import Milliseconds
from ams.core.names import subscription_path, topic_path
from ams.http.routes import answers
from ams.http.routing import Call, Row
from ams.service import doctor
from ams.service.service_doctor import ServiceDoctor

Seconds = float | UnsetType
"""A span; left out when it is not known."""


class Finding(msgspec.Struct):
    """One thing that explains the state; `wrong` when somebody should do something about it."""

    wrong: bool
    text: str


class Standing(msgspec.Struct, rename="camel"):
    """Where a subscription stands on its topic. What is left out never happened, or before the service started."""

    min: int
    max: int
    current: int
    backlog: int
    handed_out: int
    lost: int
    retention_seconds: float
    handed_out_seconds_ago: Seconds = UNSET
    last_pull_seconds_ago: Seconds = UNSET
    last_acknowledgement_seconds_ago: Seconds = UNSET
    last_publish_seconds_ago: Seconds = UNSET
    oldest_waiting_seconds: Seconds = UNSET


class Diagnosis(msgspec.Struct, rename="camel"):
    """What is known of a subscription, and what it means. Without its topic there is no `standing`."""

    subscription: str
    topic: str
    ack_deadline_seconds: int
    push: bool
    push_verified: bool
    healthy: bool
    findings: Sequence[Finding]
    standing: Standing | UnsetType = UNSET


class ServiceDiagnosis(msgspec.Struct):
    """What is known of the service as a whole; `healthy` when no finding is wrong."""

    healthy: bool
    findings: Sequence[Finding]


class DoctorRoutes:
    """The routes of the doctors."""

    def __init__(self, doctor: doctor.Doctor, service: ServiceDoctor) -> None:
        self._doctor = doctor
        self._service = service

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        path = "/projects/{project}/subscriptions/{subscription}:doctor"
        return [
            Row("GET", path, "subscriptions:doctor", self.look, answers=Diagnosis),
            Row("GET", "/doctor", "service:doctor", self.look_at_service, answers=ServiceDiagnosis),
        ]

    async def look(self, call: Call) -> bytes:
        """Answer why nothing arrives."""
        diagnosis = await self._doctor.look(call.caller, call.subscription)
        return answers.encode(_report(call.caller.here.name, diagnosis))

    async def look_at_service(self, _call: Call) -> bytes:
        """Answer what is wrong with the service."""
        found = [Finding(*finding) for finding in await self._service.look()]
        return answers.encode(ServiceDiagnosis(not any(finding.wrong for finding in found), found))


def _report(project: str, diagnosis: doctor.Diagnosis) -> Diagnosis:
    subscription = diagnosis.subscription
    return Diagnosis(
        subscription=subscription_path(project, subscription.name),
        topic=topic_path(project, subscription.topic),
        ack_deadline_seconds=subscription.ack_deadline_seconds,
        push=subscription.push is not None,
        push_verified=subscription.push is not None and subscription.push.verified,
        healthy=diagnosis.healthy,
        findings=[Finding(*finding) for finding in diagnosis.findings],
        standing=_standing(diagnosis.standing) if diagnosis.standing else UNSET,
    )


def _standing(standing: doctor.Standing) -> Standing:
    return Standing(
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
    )


def _seconds(span: Milliseconds | None) -> Seconds:
    return UNSET if span is None else span / 1000
