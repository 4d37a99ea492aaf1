"""Push delivery over HTTP: configurations (HTTP contract 13), how deliveries go, and dead letters."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from ams.core import push_config
from ams.core.ack_ids import ack_ids_of
from ams.core.clock import Milliseconds, optional_date
from ams.core.errors import InvalidInput
from ams.core.names import Offset, ack_offset, ack_prefix, topic_path
from ams.core.push_config import AskedPush
from ams.http.bodies import Reader
from ams.http.routes import answers
from ams.http.routing import Call, Row
from ams.push.upstream import Verdict
from ams.service.dead_letters import DeadLetters
from ams.service.parallel.settling import LeaseRequests
from ams.service.push.pushing import KEEP_SECONDS, Pushing, PushSecrets, PushStatus, PushWatcher
from ams.wire.base import Request
from ams.wire.push import (
    Attempt,
    AuthorizationHeader,
    AuthorizationHeaderBody,
    DeadLetter,
    Failure,
    NewPushConfig,
    NewSecret,
    PushAttempt,
    PushConfig,
    PushConfigBody,
    PushError,
    PushReport,
    RetryPolicy,
    RetryPolicyBody,
    SecretRotation,
)

BAD_ARGUMENTS = "Invalid Dead Letter Arguments"

_rotation = Reader(SecretRotation, lambda: InvalidInput("Invalid Push Secret Arguments"))
_modify = Reader(NewPushConfig, lambda: InvalidInput("Invalid Subscription Arguments"))
_letter = Reader(DeadLetter, lambda: InvalidInput(BAD_ARGUMENTS))


class PushRoutes:
    """The routes of push configurations."""

    def __init__(self, pushing: Pushing, secrets: PushSecrets) -> None:
        self._pushing = pushing
        self._secrets = secrets

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        one = "/projects/{project}/subscriptions/{subscription}"
        modify, verify = "subscriptions:modifyPushConfig", "subscriptions:verifyPushEndpoint"
        rotate = "subscriptions:rotatePushSecret"
        return [
            Row("POST", one + ":modifyPushConfig", modify, self.modify, reads=NewPushConfig, versioned=True),
            Row("POST", one + ":verifyPushEndpoint", verify, self.verify, versioned=True),
            Row("POST", one + ":rotatePushSecret", rotate, self.rotate, reads=SecretRotation, answers=NewSecret),
        ]

    async def modify(self, call: Call) -> bytes:
        """Replace a push configuration; an empty one makes it a pull subscription."""
        wanted = asked(_modify.read(await call.body()).push_config)
        await self._pushing.modify(call.caller, call.subscription, wanted)
        return answers.EMPTY

    async def verify(self, call: Call) -> bytes:
        """Ask the endpoint whether it wants the messages; what the body says does not matter."""
        await self._pushing.verify(call.caller, call.subscription)
        return answers.EMPTY

    async def rotate(self, call: Call) -> bytes:
        """Sign deliveries with a new secret from now on; nothing else ever shows it."""
        keep = _rotation.read(await call.body() or answers.EMPTY_OBJECT).keep_seconds
        made = await self._secrets.rotate(call.caller, call.subscription, KEEP_SECONDS if keep is None else keep)
        return answers.encode(NewSecret(made.secret, optional_date(made.previous_until)))


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


class DeadLetterRoutes:
    """The routes of dead letters."""

    def __init__(self, dead_letters: DeadLetters, leases: LeaseRequests) -> None:
        self._dead_letters = dead_letters
        self._leases = leases

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        path = "/projects/{project}/subscriptions/{subscription}:deadLetter"
        return [Row("POST", path, "subscriptions:deadLetter", self.dead_letter, reads=DeadLetter)]

    async def dead_letter(self, call: Call) -> bytes:
        """Put the next message aside into the dead letter topic, once however often asked, and acknowledge it.

        A message of a parallel subscription has failed: it is put aside when that was as often as it may.
        """
        letter = _letter.read(await call.body())
        prefix, ack_id = ack_prefix(call.caller.here.name, call.subscription), letter.ack_id or ""
        verdict = Verdict(letter.reason or "", letter.attempts or 0, letter.status or 0)
        if await self._leases.deliverer.is_parallel(call.caller, call.subscription):
            wait = Milliseconds(letter.wait or 0)
            await self._leases.refuse(call.caller, call.subscription, ack_ids_of(prefix, [ack_id]), wait, verdict)
            return answers.EMPTY
        offset = ack_offset(prefix, ack_id)
        if offset < 0:
            raise InvalidInput("Invalid ack id")
        await self._dead_letters.dead_letter_for(call.caller, call.subscription, Offset(offset), verdict)
        return answers.EMPTY


def asked(config: PushConfigBody | None) -> AskedPush | None:
    """Return what a body asks for; None when it is absent, or has only empty values (HTTP contract 9.3)."""
    if config is None or is_empty(config):
        return None
    header = config.authorization_header or AuthorizationHeaderBody()
    retry = config.retry_policy or RetryPolicyBody()
    return AskedPush(
        type=config.type or "",
        endpoint=config.push_endpoint or "",
        max_messages=config.max_messages or 0,
        header_type=header.type or "",
        retry_policy=retry.type or "",
        retry_period=retry.period or 0,
        mattermost_url=config.mattermost_url or "",
        mattermost_username=config.mattermost_username or "",
        mattermost_channel=config.mattermost_channel or "",
        base64_decode=config.base64_decode,
        dead_letter_topic=config.dead_letter_topic or "",
        max_delivery_attempts=config.max_delivery_attempts or 0,
        max_outstanding=config.max_outstanding or 0,
    )


def is_empty(value: Any) -> bool:
    """Whether a part of a body says nothing: it is absent, or has only empty values."""
    if isinstance(value, Request):
        return all(is_empty(member) for member in msgspec.structs.astuple(value))
    return not value


def shown_push(project: str, config: push_config.PushConfig) -> PushConfig:
    """Show a push configuration of a project."""
    dead_letters = config.dead_letter_topic
    return PushConfig(
        type=config.type,
        push_endpoint=config.endpoint,
        max_messages=config.max_messages,
        authorization_header=AuthorizationHeader(config.header_type, config.header_value),
        retry_policy=_retry(config),
        verification_hash=config.verification_hash,
        verified=config.verified,
        mattermost_url=config.mattermost_url,
        mattermost_username=config.mattermost_username,
        mattermost_channel=config.mattermost_channel,
        base64_decode=config.base64_decode,
        dead_letter_topic=topic_path(project, dead_letters) if dead_letters else msgspec.UNSET,
        max_delivery_attempts=config.max_delivery_attempts or msgspec.UNSET,
        max_outstanding=config.max_outstanding or msgspec.UNSET,
    )


def _retry(config: push_config.PushConfig) -> RetryPolicy:
    """Show a retry policy: where there is an endpoint, the official library wants a period (clients.md, A8)."""
    shows_period = bool(config.retry_period or config.endpoint)
    return RetryPolicy(config.retry_policy, config.retry_period if shows_period else None)


def _report(status: PushStatus) -> PushReport:
    worker = status.worker
    if worker is None:
        return PushReport(push_status=status.text, state=status.state, backlog=status.backlog, attempts=[])
    return PushReport(
        push_status=status.text,
        state=status.state,
        backlog=status.backlog,
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
        outstanding=worker.outstanding,
        attempts=[_attempt(each) for each in worker.attempts],
    )


def _attempt(attempt: Attempt) -> PushAttempt:
    return PushAttempt(
        _written(attempt.time), attempt.messages, attempt.milliseconds, attempt.bytes, attempt.status, attempt.error
    )


def _error(failure: Failure | None) -> PushError | None:
    if failure is None:
        return None
    return PushError(_written(failure.time), failure.what, failure.detail, failure.status)


def _moment(moment: int | None) -> str:
    return "" if moment is None else _written(moment)


def _written(moment: int) -> str:
    """Write a time, in milliseconds since the epoch, with all three digits of the fraction."""
    return f"{datetime.fromtimestamp(moment // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{moment % 1000:03d}Z"
