"""Leases of push delivery over HTTP, and waiting for messages, for processes that deliver (`ams push`).

No part of the contract.
"""

import hashlib
import re
import uuid
from functools import partial

import msgspec

from ams.access.admission import Caller
from ams.core.errors import Conflict, InvalidInput
from ams.core.names import SubscriptionId
from ams.http.bodies import Reader
from ams.http.routes import answers
from ams.http.routes.push import shown_push
from ams.http.routing import Call, Row
from ams.push.leases import HEARTBEAT_SECONDS, LEASE_SECONDS, Heartbeat
from ams.push.report import ATTEMPTS
from ams.push.upstream import Target
from ams.service.delivering import Deliverer
from ams.service.parallel.pulling import Puller
from ams.service.parallel.settling import holder_of
from ams.service.push.assignment import Assignment
from ams.service.push.pushing import DISABLED, Pushing
from ams.wire.push import MAX_STATES, BeatBody, GooglePush, Lease, PushTarget, Ready, WaitBody, WorkerState

MAX_HELD = 10_000
"""Subscriptions one process may hold."""
MAX_STATE_BYTES = 64 * 1024
"""Of one state, as JSON."""
MAX_LEASE_BODY = 8 * 2**20
MAX_WAITED_FOR = 1000
"""Subscriptions that one request may wait for."""
MAX_WAIT_SECONDS = 30
MAX_WAIT_BODY = 64 * 1024

_HOLDER = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_ID = re.compile(r"[!-~]{1,36}")
_LAST_MOMENT = 253_402_300_799_999
"""The end of the year 9999, in milliseconds: later ones cannot be written."""

_heartbeat = Reader(BeatBody, lambda: InvalidInput("Invalid Push Lease Arguments"))
_wait = Reader(WaitBody, lambda: InvalidInput("Invalid Push Wait Arguments"))

_NOBODY = str(uuid.UUID(int=0))
"""Stands for the user the service token is not."""


class LeaseRoutes:
    """The routes of leases."""

    def __init__(self, assignment: Assignment, pushing: Pushing) -> None:
        self._assignment = assignment
        self._pushing = pushing

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        return [
            Row("POST", "/push:lease", "push:lease", self.lease, reads=BeatBody, answers=Lease, most=MAX_LEASE_BODY)
        ]

    async def lease(self, call: Call) -> bytes:
        """Answer what a process that delivers shall deliver from now on."""
        if not self._pushing.enabled:
            raise Conflict(DISABLED)
        body = _heartbeat.read(await call.body())
        heartbeat = _checked(body)
        heartbeat = heartbeat._replace(holder=_of_user(call.caller, heartbeat.holder))
        targets = await answers.each(await self._assignment.heartbeat(heartbeat), _target)
        version = hashlib.blake2b(answers.encode(targets), digest_size=16).hexdigest()
        changed = None if version == body.version else targets
        return answers.encode(Lease(LEASE_SECONDS, HEARTBEAT_SECONDS, version, changed))


class WaitRoutes:
    """The routes of waits."""

    def __init__(self, deliverer: Deliverer, puller: Puller, pushing: Pushing) -> None:
        self._deliverer = deliverer
        self._puller = puller
        self._pushing = pushing

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        return [Row("POST", "/push:wait", "push:wait", self.wait, reads=WaitBody, answers=Ready, most=MAX_WAIT_BODY)]

    async def wait(self, call: Call) -> bytes:
        """Answer as soon as one of many subscriptions has something to pull."""
        if not self._pushing.enabled:
            raise Conflict(DISABLED)
        body = _wait.read(await call.body())
        subscriptions, seconds = body.subscriptions or [], body.seconds or 0
        if len(subscriptions) > MAX_WAITED_FOR or not all(map(is_id, subscriptions)):
            raise InvalidInput(f"A push wait is for {MAX_WAITED_FOR} subscriptions")
        if not 0 <= seconds <= MAX_WAIT_SECONDS:
            raise InvalidInput(f"A push wait is of 0 to {MAX_WAIT_SECONDS} seconds")
        coming = partial(self._puller.coming, holder=holder_of(call.caller))
        with call.watched() as left:
            waited_for = frozenset(map(SubscriptionId, subscriptions))
            ready = await self._deliverer.ready(waited_for, seconds, left, coming)
        return answers.encode(Ready(sorted(ready)))


def _of_user(caller: Caller, holder: str) -> str:
    """Return what a holder is called here: not as another user's holder is, nor as the service token's."""
    return str(uuid.uuid5(uuid.UUID(caller.user or _NOBODY), holder))


def _checked(body: BeatBody) -> Heartbeat:
    """Return what a body says; raise `InvalidInput` for what is no name, too much, or cannot be written again."""
    held, states = body.held or [], body.states or {}
    if not _HOLDER.fullmatch(body.holder or ""):
        raise InvalidInput("Invalid push lease holder")
    if len(held) > MAX_HELD or not all(map(is_id, held)):
        raise InvalidInput(f"A push lease holder may hold {MAX_HELD} subscriptions")
    if len(states) > MAX_STATES or not all(_is_good(state) for state in states.values()):
        raise InvalidInput("Invalid push lease states")
    return Heartbeat(
        holder=body.holder or "",
        held=frozenset(map(SubscriptionId, held)),
        states={SubscriptionId(each): state for each, state in states.items()},
        leaving=body.leaving or False,
    )


def is_id(text: str) -> bool:
    """Whether this may be the identity of a subscription: everything else no database needs to be asked for."""
    return _ID.fullmatch(text) is not None


def _is_good(state: WorkerState) -> bool:
    failures = [each for each in (state.failure, state.last_failure) if each is not None]
    moments = [each for each in (state.last_success, state.next_attempt) if each is not None]
    moments += [each.time for each in failures] + [each.time for each in state.attempts]
    return (
        len(state.attempts) <= ATTEMPTS
        and all(0 <= each <= _LAST_MOMENT for each in moments)
        and len(answers.encode(state)) <= MAX_STATE_BYTES
    )


def _target(target: Target) -> PushTarget:
    return PushTarget(
        id=target.id,
        name=target.path,
        topic=target.topic,
        topic_id=target.topic_id,
        revision=target.revision,
        ack_deadline_seconds=target.ack_deadline_seconds,
        push_config=shown_push(target.path.split("/")[2], target.config),
        parallel=target.is_parallel or msgspec.UNSET,
        google=_google(target),
        secrets=target.secrets,
    )


def _google(target: Target) -> GooglePush | msgspec.UnsetType:
    form = target.config.google
    if form is None:
        return msgspec.UNSET
    return GooglePush(
        form.is_wrapped, form.write_metadata, target.counts_attempts, form.service_account, target.identity_token
    )
