"""Selects the subscriptions to deliver: by leases if the service supports them, else by the worker's profile.

With leases, the service returns this process's subscriptions in every heartbeat (`ams.push.lease_holder`). A service
without leases puts the worker on the access lists of subscriptions to deliver (push contract 7, P3, P23). The profile
is read every minute, after an outage of the service, and some time after each activation. Services call a push server
first and change the access list afterwards. So an activation overrides the profile for a while.

Until either is known, and always when loading is disabled, it delivers what is activated over gRPC.
"""

import asyncio
import contextlib
import random
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

import msgspec
import structlog

from ams.app.push_server.targets import InvalidTarget, of_config, of_subscription, split_path
from ams.app.push_server.upstream import unknown_route
from ams.client import AsyncClient, wire
from ams.client import errors as client_errors
from ams.client.wire.call import call_of
from ams.cluster.leases import Heartbeat
from ams.core.backoff import Backoff, Pauses
from ams.core.names import subscription_path
from ams.core.push_config import GoogleForm
from ams.core.supervisor import Supervisor
from ams.push.lease_holder import Holding, LeaseReply, NoLeases, Unanswered
from ams.push.retry import UNREACHED
from ams.push.upstream import Target
from ams.push.workers import Workers

logger = structlog.get_logger("ams.push_server")

OK = "ok"
STARTING_TEXT = ""
NO_WORKER_TEXT = "Could not retrieve push worker user"  # the service is down, or does not say who the worker is
MAX_FAILURES, MIN_SUCCESSES = (3, 2)  # consecutive failures until unhealthy, and successes until healthy again

PROFILE_INTERVAL_SECONDS = 60.0  # between two reads, a tenth more or less
ACTIVATION_SECONDS = 10.0  # how long an activation over gRPC overrides the profile
MAX_REQUESTS = 8
_TRIES = 3  # for each subscription in one read
_RETRY_BACKOFF = Backoff(0.25, 0.5, jitter=(0.0, 1.0), least=0.25)  # seconds


class Condition:
    """Health as clients see it (push contract 4, P26): `OK` from the first success, single failures ignored."""

    def __init__(self, text: str = STARTING_TEXT) -> None:
        self.text = text
        self.changed = asyncio.Event()
        """Set at the next change of the text. Read it before the text, or a change in between is missed."""
        self._was_ok = text == OK
        self._missed = self._hit = 0

    @property
    def is_ok(self) -> bool:
        """Return whether calls are answered."""
        return self.text == OK

    def note_success(self) -> None:
        """Count a successful answer of the service."""
        self._missed = 0
        self._hit += 1
        if not self._was_ok or self._hit >= MIN_SUCCESSES:
            self._was_ok = True
            self._set_text(OK)

    def note_failure(self) -> None:
        """Count a failure of the service."""
        self._hit = 0
        self._missed += 1
        if not self._was_ok or self._missed >= MAX_FAILURES:
            self._set_text(NO_WORKER_TEXT)

    def _set_text(self, text: str) -> None:
        if text != self.text:
            self.text = text
            changed, self.changed = self.changed, asyncio.Event()
            changed.set()


class ByActivation:
    """Delivers subscriptions activated over gRPC and never asks the service. Base of the other ways."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def activate(self, target: Target) -> None:
        """Start delivering immediately."""
        self._workers.activate(target)

    def deactivate(self, path: str) -> None:
        """Stop delivering immediately."""
        self._workers.deactivate(path)

    async def run(self) -> None:
        """Run until another way may be right. Nothing to do here."""
        await asyncio.Event().wait()

    async def stop(self, seconds: float) -> None:
        """Finish deliveries in flight."""
        await self._workers.stop(seconds)


class Follower:
    """Selects a way and runs it: `way` at present. `client` must not retry by itself."""

    def __init__(
        self, client: AsyncClient, workers: Workers, condition: Condition, *, random: random.Random, loads: bool = True
    ) -> None:
        self.workers, self.way = workers, ByActivation(workers)
        self._client, self._condition, self._random, self._loads = client, condition, random, loads
        self._holder = f"push-{uuid.uuid4()}"
        self._task: asyncio.Task[None] | None = None

    async def start(self, supervisor: Supervisor) -> None:
        """Start in the background. Without `loads` the service is never asked (P1)."""
        if self._loads:
            self._task = supervisor.task("following", self._follow(supervisor))

    async def stop(self, seconds: float) -> None:
        """Finish deliveries in flight, give leases back, and stop."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self.way.stop(seconds)

    async def _follow(self, supervisor: Supervisor) -> None:
        while True:
            try:
                self.way = await self._choose_way()
                logger.info("following", way=type(self.way).__name__)
                await self.way.run()
            except Exception:  # our own bug must not stop all deliveries
                supervisor.log_failure("following")
                self._condition.note_failure()
                await asyncio.sleep(1)

    async def _choose_way(self) -> ByActivation:
        pauses = Pauses(UNREACHED, self._random.random)
        while True:
            try:
                await self._client.call(wire.lease_push(self._holder, sorted(self.workers.held_subscriptions())))
            except client_errors.ClientError as error:
                # An operator who forbids leases in a roles file wants this process to work without them, too.
                if unknown_route(error) or isinstance(error, client_errors.NotAllowed):
                    return ByProfile(self._client, self.workers, self._condition, self._random)
                self._condition.note_failure()
                logger.warning("service.unreached", reason=error.message)
                await asyncio.sleep(pauses.next())
            else:
                return ByLeases(self._client, self.workers, self._condition, self._holder, self._random)


class ByLeases(ByActivation):
    """Sends heartbeats over the HTTP API, and delivers the subscriptions in the answers."""

    def __init__(
        self, client: AsyncClient, workers: Workers, condition: Condition, holder: str, random: random.Random
    ) -> None:
        super().__init__(workers)
        self._client = client
        reached, missed = condition.note_success, condition.note_failure
        self._holding = Holding(workers, self._ask, random, holder=holder, reached=reached, missed=missed)
        self._targets: Sequence[Target] = ()
        self._version = ""

    def activate(self, target: Target) -> None:
        """Send a heartbeat now: the service knows whether to deliver it."""
        self._holding.wake()

    def deactivate(self, path: str) -> None:
        """Stop, and send a heartbeat now: it may still be leased to this process."""
        super().deactivate(path)
        self._holding.wake()

    async def run(self) -> None:
        """Send heartbeats until cancelled, or the service no longer knows leases."""
        await self._holding.run()

    async def stop(self, seconds: float) -> None:
        """Finish deliveries in flight under their leases, and give all leases back."""
        await self._holding.stop(seconds)

    async def _ask(self, heartbeat: Heartbeat) -> LeaseReply:
        states = {str(each): state for each, state in islice(heartbeat.states.items(), wire.MAX_STATES)}
        call = wire.lease_push(
            heartbeat.holder, sorted(heartbeat.held), states=states, leaving=heartbeat.leaving, version=self._version
        )
        try:
            lease = await self._client.call(call)
        except client_errors.ClientError as error:
            if unknown_route(error):
                raise NoLeases from error
            raise Unanswered(error.message) from error
        self._workers.put_back(each for each in heartbeat.states if each not in states)
        if lease.targets is not None:
            self._targets = list(filter(None, map(_target, lease.targets)))
            self._version = lease.version
        return LeaseReply(self._targets, lease.lease_seconds, lease.beat_seconds)


def _target(leased: wire.PushTarget) -> Target | None:
    """Return a target to deliver; None, and a log line, for an invalid one (P4)."""
    try:
        config = of_config(leased.push_config)
    except InvalidTarget as error:
        logger.warning("subscription.skipped", subscription=leased.name, reason=str(error))
        return None
    if config is None:
        return None
    google = leased.google or None
    if google is not None:
        config = replace(config, google=GoogleForm(google.wrapped, google.write_metadata, google.service_account))
    return Target(
        leased.name, leased.topic, config, leased.ack_deadline_seconds, secrets=tuple(leased.secrets), id=leased.id,
        revision=leased.revision, topic_id=leased.topic_id, is_parallel=leased.parallel is True,
        counts_attempts=google is not None and google.counts_attempts,
        identity_token=google.identity_token if google is not None else "",
    )  # fmt: skip


class _Membership(msgspec.Struct):
    project: str = ""
    subscriptions: list[str] = []


class _Profile(msgspec.Struct):
    projects: list[_Membership] = []


class ByProfile(ByActivation):
    """Reads the worker's profile, and delivers its subscriptions."""

    def __init__(self, client: AsyncClient, workers: Workers, condition: Condition, random: random.Random) -> None:
        super().__init__(workers)
        self._client, self._condition, self._random = client, condition, random
        self._pauses = Pauses(UNREACHED, random.random)
        self._read: dict[str, Target] = {}
        self._activations: dict[str, tuple[float, Target | None]] = {}
        """By path: time of an activation or deactivation, and the target, None for a deactivation."""
        self._places = asyncio.Semaphore(MAX_REQUESTS)
        self._soon = asyncio.Event()

    def activate(self, target: Target) -> None:
        """Start immediately, and schedule a read of the profile."""
        self._activations[target.path] = (asyncio.get_running_loop().time(), target)
        super().activate(target)
        self._soon.set()

    def deactivate(self, path: str) -> None:
        """Stop immediately, and schedule a read of the profile."""
        self._activations[path] = (asyncio.get_running_loop().time(), None)
        super().deactivate(path)
        self._soon.set()

    async def run(self) -> None:
        """Read repeatedly until cancelled. Ends after an outage, because the service may have been replaced."""
        was_away = False
        while True:
            self._soon.clear()
            try:
                is_whole = await self._round()
            except client_errors.ClientError as error:
                was_away = True
                self._condition.note_failure()
                logger.warning("profile.unread", reason=error.message)
                await asyncio.sleep(self._pauses.next())
                continue
            self._pauses.reset()
            self._condition.note_success()
            if was_away:
                return
            await self._pause(PROFILE_INTERVAL_SECONDS if is_whole else PROFILE_INTERVAL_SECONDS / 6)

    async def _pause(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds * self._random.uniform(0.9, 1.1)
        while True:
            settled = [moment + ACTIVATION_SECONDS for moment, _ in self._activations.values()]
            left = min([until, *settled]) - loop.time()
            if left <= 0:
                return
            self._soon.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._soon.wait(), left)

    async def _round(self) -> bool:
        began = asyncio.get_running_loop().time()
        profile = await self._client.call(call_of("users:profile", _Profile))
        found = await asyncio.gather(*map(self._target, list(_subscription_names(profile))))
        self._read = {target.path: target for target in found if isinstance(target, Target)}
        wanted = dict(self._read)
        for path, (moment, target) in list(self._activations.items()):
            if moment + ACTIVATION_SECONDS <= began:
                del self._activations[path]
            elif target is None:
                wanted.pop(path, None)
            else:
                wanted.setdefault(path, target)
        self._workers.follow(wanted.values())
        return not any(isinstance(target, client_errors.ClientError) for target in found)

    async def _target(self, name: tuple[str, str]) -> Target | client_errors.ClientError | None:
        """Return the target of a subscription; the previous one if the service does not answer."""
        path = subscription_path(*name)
        try:
            async with self._places:
                shown = await self._fetch_subscription(name)
            if shown.push_config.get("verified") is False:
                return None
            return of_subscription(shown)
        except InvalidTarget as error:
            logger.warning("subscription.skipped", subscription=path, reason=str(error))
            return None
        except client_errors.NotFound:
            return None
        except client_errors.ClientError as error:
            logger.warning("subscription.unread", subscription=path, reason=error.message)
            return self._read.get(path) or error

    async def _fetch_subscription(self, name: tuple[str, str]) -> wire.Subscription:
        pauses, call = Pauses(_RETRY_BACKOFF, self._random.random), wire.get_subscription(*name)
        for _ in range(_TRIES - 1):
            try:
                return await self._client.call(call)
            except client_errors.ClientError as error:
                if not error.retriable:
                    raise
            await asyncio.sleep(pauses.next())
        return await self._client.call(call)


def _subscription_names(profile: _Profile) -> Iterable[tuple[str, str]]:
    for membership in profile.projects:
        for subscription in membership.subscriptions:
            with contextlib.suppress(InvalidTarget):
                yield split_path(subscription_path(membership.project, subscription))
