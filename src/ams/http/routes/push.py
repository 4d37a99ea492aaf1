"""Push delivery: configurations (HTTP contract 13), delivery states, requests of processes that deliver, public keys.

Processes that deliver (`ams push`) request leases, wait for messages, and dead-letter them; these routes are not in the
contract. Receivers of deliveries in Google's form find the keys by OpenID Connect Discovery.
"""

import hashlib
import re
import uuid
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from ams.cluster.leases import LEASE_SECONDS, RENEW_SECONDS, Heartbeat
from ams.core import push_config
from ams.core.ack_ids import ack_ids_of
from ams.core.clock import Milliseconds, optional_date
from ams.core.errors import Conflict, InvalidInput, refuse_if
from ams.core.names import Offset, SubscriptionId, ack_offset, ack_prefix, topic_path
from ams.core.push_config import AskedPush
from ams.http.bodies import BodyReader
from ams.http.routing import Call, forward, shown_list, wire_record
from ams.push.report import MAX_ATTEMPTS_KEPT
from ams.push.upstream import Target, Verdict
from ams.service.dead_letters import DeadLetters
from ams.service.delivery import Deliverer
from ams.service.parallel.pulls import Puller
from ams.service.parallel.settlement import Settler, holder_of
from ams.service.push.assignment import Assignment
from ams.service.push.configurations import DISABLED, KEEP_SECONDS, Pushing, PushStatus, PushWatcher
from ams.service.push.identity import ALGORITHM, PushIdentity
from ams.wire import push as wire
from ams.wire.actions import OPENID_KEYS
from ams.wire.base import Request

MAX_HELD_SUBSCRIPTIONS = 10_000  # subscriptions of one process
MAX_STATE_BYTES = 64 * 1024  # of one state, as JSON
MAX_AWAITED_SUBSCRIPTIONS = 1000  # subscriptions of one request
MAX_WAIT_SECONDS = 30

_HOLDER = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_ID = re.compile(r"[!-~]{1,36}")  # of a subscription: valid ids, so that others need no look-up
_MAX_TIME_MS = 253_402_300_799_999  # end of the year 9999, in milliseconds: the last time that can be written

_SAME_NAMES = (
    "type", "max_messages", "mattermost_url", "mattermost_username", "mattermost_channel", "dead_letter_topic",
    "max_delivery_attempts", "max_outstanding",
)  # fmt: skip
_CLAIMS = ("aud", "azp", "email", "email_verified", "exp", "iat", "iss", "sub")
_NO_USER = str(uuid.UUID(int=0))  # user id of the service token, which has no user

_rotation = BodyReader(wire.SecretRotation, "Invalid Push Secret Arguments")


class PushRoutes:
    """The routes of push configurations, processes that deliver, and the keys that receivers look up."""

    def __init__(
        self, pushing: Pushing, watcher: PushWatcher, identity: PushIdentity, assignment: Assignment,
        deliverer: Deliverer, puller: Puller, dead_letters: DeadLetters, settler: Settler,
    ) -> None:  # fmt: skip
        self._pushing, self._identity, self._assignment, self._deliverer = pushing, identity, assignment, deliverer
        self._puller, self._dead_letters, self._settler = puller, dead_letters, settler
        self.subscriptions_verify_push_endpoint = forward(pushing.verify, "subscription")
        self.subscriptions_push_status = forward(watcher.look, "subscription", show=_report)

    async def subscriptions_modify_push_config(self, call: Call) -> None:
        wanted = await call.read(wire.NewPushConfig, "Invalid Subscription Arguments")
        await self._pushing.modify(call.caller, call.subscription, requested_push(wanted.push_config))

    async def subscriptions_rotate_push_secret(self, call: Call) -> wire.NewSecret:
        keep = _rotation.read(await call.body() or b"{}").keep_seconds
        seconds = KEEP_SECONDS if keep is None else keep
        made = await self._pushing.rotate_secret(call.caller, call.subscription, seconds)
        return wire.NewSecret(made.secret, optional_date(made.previous_until))

    async def push_configuration(self, _call: Call) -> wire.OpenIdConfiguration:
        issuer = self._identity.issuer
        return wire.OpenIdConfiguration(issuer, issuer + OPENID_KEYS, ("id_token",), ("public",), (ALGORITHM,), _CLAIMS)

    async def push_keys(self, _call: Call) -> wire.Jwks:
        return wire.Jwks(msgspec.convert(await self._identity.keys(), list[wire.Jwk]))

    async def push_lease(self, call: Call) -> wire.Lease:
        if not self._pushing.enabled:
            raise Conflict(DISABLED)
        body = await call.read(wire.BeatBody, "Invalid Push Lease Arguments")
        heartbeat = _read_heartbeat(body)
        # The user is part of the name, so it differs from other users' holders and the service token's.
        holder = str(uuid.uuid5(uuid.UUID(call.caller.user or _NO_USER), heartbeat.holder))
        targets = await shown_list(await self._assignment.heartbeat(heartbeat._replace(holder=holder)), _target)
        version = hashlib.blake2b(msgspec.json.encode(targets), digest_size=16).hexdigest()
        return wire.Lease(LEASE_SECONDS, RENEW_SECONDS, version, None if version == body.version else targets)

    async def push_wait(self, call: Call) -> wire.Ready:
        if not self._pushing.enabled:
            raise Conflict(DISABLED)
        body = await call.read(wire.WaitBody, "Invalid Push Wait Arguments")
        subscriptions, seconds = body.subscriptions or [], body.seconds or 0
        if len(subscriptions) > MAX_AWAITED_SUBSCRIPTIONS or not all(map(_ID.fullmatch, subscriptions)):
            raise InvalidInput(f"A push wait is for {MAX_AWAITED_SUBSCRIPTIONS} subscriptions")
        refuse_if(not 0 <= seconds <= MAX_WAIT_SECONDS, f"A push wait is of 0 to {MAX_WAIT_SECONDS} seconds")
        message_waiter = partial(self._puller.message_waiter, holder=holder_of(call.caller))
        with call.watch_client() as left:
            waited_for = frozenset(map(SubscriptionId, subscriptions))
            ready = await self._deliverer.ready(waited_for, seconds, left, message_waiter)
        return wire.Ready(sorted(ready))

    async def subscriptions_dead_letter(self, call: Call) -> None:
        letter = await call.read(wire.DeadLetter, "Invalid Dead Letter Arguments")
        prefix, ack_id = ack_prefix(call.project, call.subscription), letter.ack_id or ""
        verdict = Verdict(letter.reason or "", letter.attempts or 0, letter.status or 0)
        if await self._deliverer.is_parallel(call.caller, call.subscription):
            wait = Milliseconds(letter.wait or 0)  # the attempt has failed; dead-lettered if it was the last
            ids = ack_ids_of(prefix, [ack_id])
            subscription = await self._settler.to_settle(call.caller, call.subscription, ids)
            await self._settler.refuse(subscription, ids, wait, verdict)
            return
        offset = ack_offset(prefix, ack_id)
        refuse_if(offset < 0, "Invalid ack id")
        await self._dead_letters.dead_letter_for(call.caller, call.subscription, Offset(offset), verdict)


def requested_push(config: wire.PushConfigBody | None) -> AskedPush | None:
    """Return the requested configuration; None if it is absent or all empty (HTTP contract 9.3)."""
    if config is None or is_empty(config):
        return None
    header = config.authorization_header or wire.AuthorizationHeaderBody()
    retry = config.retry_policy or wire.RetryPolicyBody()
    said = {name: value for name in _SAME_NAMES if (value := getattr(config, name))}
    return AskedPush(
        **said,
        endpoint=config.push_endpoint or "",
        header_type=header.type or "",
        retry_policy=retry.type or "",
        retry_period=retry.period or 0,
        base64_decode=config.base64_decode,
    )


def is_empty(value: Any) -> bool:
    """Return whether a part of a body is absent or all empty."""
    if isinstance(value, Request):
        return all(is_empty(member) for member in msgspec.structs.astuple(value))
    return not value


def shown_push(project: str, config: push_config.PushConfig) -> wire.PushConfig:
    """Return a push configuration of a project for the wire."""
    dead_letters, shows_period = config.dead_letter_topic, bool(config.retry_period or config.endpoint)
    return wire_record(
        wire.PushConfig,
        config,
        push_endpoint=config.endpoint,
        authorization_header=wire.AuthorizationHeader(config.header_type, config.header_value),
        # With an endpoint, the official library needs a period (clients.md, A8).
        retry_policy=wire.RetryPolicy(config.retry_policy, config.retry_period if shows_period else None),
        dead_letter_topic=topic_path(project, dead_letters) if dead_letters else msgspec.UNSET,
        max_delivery_attempts=config.max_delivery_attempts or msgspec.UNSET,
        max_outstanding=config.max_outstanding or msgspec.UNSET,
    )


def _report(status: PushStatus) -> wire.PushReport:
    if (worker := status.worker) is None:
        return wire.PushReport(push_status=status.text, state=status.state, backlog=status.backlog, attempts=[])
    return wire_record(
        wire.PushReport,
        worker,
        push_status=status.text,
        state=status.state,
        backlog=status.backlog,
        last_success=_timestamp(worker.last_success),
        last_error=_error(worker.last_failure),
        error=_error(worker.failure),
        next_attempt=_timestamp(worker.next_attempt),
        attempts=[wire_record(wire.PushAttempt, each, time=_timestamp(each.time)) for each in worker.attempts],
    )


def _error(failure: wire.Failure | None) -> wire.PushError | None:
    return None if failure is None else wire_record(wire.PushError, failure, time=_timestamp(failure.time))


def _timestamp(moment: int | None) -> str:
    if moment is None:
        return ""
    return f"{datetime.fromtimestamp(moment // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{moment % 1000:03d}Z"


def _read_heartbeat(body: wire.BeatBody) -> Heartbeat:
    held, states = body.held or [], body.states or {}
    refuse_if(not _HOLDER.fullmatch(body.holder or ""), "Invalid push lease holder")
    if len(held) > MAX_HELD_SUBSCRIPTIONS or not all(map(_ID.fullmatch, held)):
        raise InvalidInput(f"A push lease holder may hold {MAX_HELD_SUBSCRIPTIONS} subscriptions")
    if len(states) > wire.MAX_STATES or not all(_is_good(state) for state in states.values()):
        raise InvalidInput("Invalid push lease states")
    known = {SubscriptionId(each): state for each, state in states.items()}
    return Heartbeat(body.holder or "", frozenset(map(SubscriptionId, held)), known, body.leaving or False)


def _is_good(state: wire.WorkerState) -> bool:
    failures = [each for each in (state.failure, state.last_failure) if each is not None]
    moments = [each for each in (state.last_success, state.next_attempt) if each is not None]
    moments += [each.time for each in failures] + [each.time for each in state.attempts]
    return (
        len(state.attempts) <= MAX_ATTEMPTS_KEPT
        and all(0 <= each <= _MAX_TIME_MS for each in moments)
        and len(msgspec.json.encode(state)) <= MAX_STATE_BYTES
    )


def _target(target: Target) -> wire.PushTarget:
    form, counts, token = target.config.google, target.counts_attempts, target.identity_token
    google: wire.GooglePush | msgspec.UnsetType = msgspec.UNSET
    if form is not None:
        google = wire.GooglePush(form.is_wrapped, form.write_metadata, counts, form.service_account, token)
    config, parallel = shown_push(target.path.split("/")[2], target.config), target.is_parallel or msgspec.UNSET
    return wire_record(wire.PushTarget, target, name=target.path, push_config=config, parallel=parallel, google=google)
