"""How deliveries go, over HTTP; no part of the contract, but for the text."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import UNSET, UnsetType

from ams.http.routes import answers
from ams.http.routing import Call, Row
from ams.push import state
from ams.service.push.watching import PushStatus, PushWatcher

Moment = str | UnsetType
"""A time, UTC with milliseconds; left out when there is none."""


class PushAttempt(msgspec.Struct, omit_defaults=True):
    """One request to the endpoint; without `status` there was no answer, without `error` it succeeded."""

    time: str
    messages: int
    milliseconds: int
    bytes: int
    status: int = 0
    error: str = ""


class PushError(msgspec.Struct, omit_defaults=True):
    """What went wrong: `consume`, `send` or `acknowledge`; `detail` is for those who may see push secrets."""

    time: str
    what: str
    detail: str = ""
    status: int = 0


class PushReport(msgspec.Struct, rename="camel"):
    """How a delivery goes. Counters are since its worker began; without a worker there is none of that.

    `state` is `active`, `retrying`, `stopped`, `unverified`, `inactive` or `unknown`; `error` is what is wrong now,
    `lastError` what was wrong last.
    """

    push_status: str
    state: str
    backlog: int | UnsetType = UNSET
    circuit: str | UnsetType = UNSET
    batch: int | UnsetType = UNSET
    last_success: Moment = UNSET
    last_error: PushError | UnsetType = UNSET
    error: PushError | UnsetType = UNSET
    next_attempt: Moment = UNSET
    delivered: int | UnsetType = UNSET
    deliveries: int | UnsetType = UNSET
    failed: int | UnsetType = UNSET
    dead: int | UnsetType = UNSET
    undecodable: int | UnsetType = UNSET
    late: int | UnsetType = UNSET
    attempts: Sequence[PushAttempt] = ()


class PushStatusRoutes:
    """The routes of deliveries."""

    def __init__(self, watcher: PushWatcher) -> None:
        self._watcher = watcher

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        path = "/projects/{project}/subscriptions/{subscription}:pushStatus"
        return [Row("GET", path, "subscriptions:pushStatus", self.look, answers=PushReport)]

    async def look(self, call: Call) -> bytes:
        """Answer how the delivery of a subscription goes."""
        return answers.encode(_report(await self._watcher.look(call.caller, call.subscription)))


def _report(status: PushStatus) -> PushReport:
    report = PushReport(status.text, status.state, UNSET if status.backlog is None else status.backlog)
    worker = status.worker
    if worker is None:
        return report
    return msgspec.structs.replace(
        report,
        circuit=worker.circuit,
        batch=worker.batch,
        last_success=_moment(worker.last_success),
        last_error=_error(worker.last_failure),
        error=_error(worker.failure),
        next_attempt=_moment(worker.next_attempt),
        delivered=worker.delivered,
        deliveries=worker.deliveries,
        failed=worker.failed,
        dead=worker.dead,
        undecodable=worker.undecodable,
        late=worker.late,
        attempts=[_attempt(each) for each in worker.attempts],
    )


def _attempt(attempt: state.Attempt) -> PushAttempt:
    return PushAttempt(
        _written(attempt.time), attempt.messages, attempt.milliseconds, attempt.bytes, attempt.status, attempt.error
    )


def _error(failure: state.Failure | None) -> PushError | UnsetType:
    if failure is None:
        return UNSET
    return PushError(_written(failure.time), failure.what, failure.detail, failure.status)


def _moment(moment: int | None) -> Moment:
    return UNSET if moment is None else _written(moment)


def _written(moment: int) -> str:
    """Write a time, in milliseconds since the epoch, with all three digits of the fraction."""
    return f"{datetime.fromtimestamp(moment // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{moment % 1000:03d}Z"
