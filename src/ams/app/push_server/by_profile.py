"""Following the worker's profile: what it is on the access list of is to be delivered (push contract 7, P3, P23).

So it is with a service that knows no leases. The profile is read again every minute, after a time without the service,
and some time after each activation: services tell a push server first and change the access list afterwards, so for a
while what was told counts more than what is read.
"""

import asyncio
import contextlib
import random
from collections.abc import Iterable, Mapping

import msgspec
import structlog

from ams.app.push_server.condition import Condition
from ams.app.push_server.targets import Invalid, Named, named, of_subscription
from ams.client import AsyncClient, wire
from ams.client import errors as client_errors
from ams.client.wire.call import Call, reader
from ams.core.backoff import Backoff, Pauses
from ams.push.retry import UNREACHED
from ams.push.upstream import Target
from ams.push.workers import Workers

SECONDS = 60.0
"""From one reading to the next, a tenth more or less."""
TOLD_SECONDS = 10.0
"""How long what was told over gRPC counts more than what is read."""
AT_ONCE = 8
_TRIES = 3
"""Of each subscription in one reading."""
_BETWEEN_TRIES = Backoff(0.25, 0.5, jitter=(0.0, 1.0), least=0.25)
"""Seconds."""

logger = structlog.get_logger("ams.push_server")


class _Membership(msgspec.Struct):
    project: str = ""
    subscriptions: list[str] = []


class Profile(msgspec.Struct):
    """Who the caller is, as far as it matters here."""

    name: str = ""
    projects: list[_Membership] = []


_profile = reader(Profile)


def get_profile() -> Call[Profile]:
    """Ask who the caller is; the token is in a header, not in the address (P23)."""
    return Call("GET", "/v1/users/profile", _profile)


class ByProfile:
    """Reads, and delivers what it found."""

    def __init__(
        self,
        client: AsyncClient,
        workers: Workers,
        condition: Condition,
        random: random.Random,
        seconds: float = SECONDS,
        told_seconds: float = TOLD_SECONDS,
    ) -> None:
        self._client = client
        self._workers = workers
        self._condition = condition
        self._random = random
        self._seconds = seconds
        self._told_seconds = told_seconds
        self._pauses = Pauses(UNREACHED, random.random)
        self._read: dict[str, Target] = {}
        self._told: dict[str, tuple[float, Target | None]] = {}
        """By path: when it was told, and what is to be delivered, None for nothing."""
        self._places = asyncio.Semaphore(AT_ONCE)
        self._soon = asyncio.Event()

    def activate(self, target: Target) -> None:
        """Deliver it at once; the profile is read again when it should have it."""
        self._told[target.path] = (asyncio.get_running_loop().time(), target)
        self._workers.activate(target)
        self._soon.set()

    def deactivate(self, path: str) -> None:
        """Stop it at once; the profile is read again when it should lack it."""
        self._told[path] = (asyncio.get_running_loop().time(), None)
        self._workers.deactivate(path)
        self._soon.set()

    async def run(self) -> None:
        """Read again and again until this is cancelled; end when the service was away, as it may be another now."""
        was_away = False
        while True:
            self._soon.clear()
            try:
                is_whole = await self._round()
            except client_errors.ClientError as error:
                was_away = True
                self._condition.missed()
                logger.warning("profile.unread", reason=error.message)
                await asyncio.sleep(self._pauses.next())
                continue
            self._pauses.reset()
            self._condition.reached()
            if was_away:
                return
            await self._pause(self._seconds if is_whole else self._seconds / 6)

    async def stop(self, seconds: float) -> None:
        """Finish what is in flight."""
        await self._workers.stop(seconds)

    async def _pause(self, seconds: float) -> None:
        """Wait for the next reading, which comes earlier when something was told."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds * self._random.uniform(0.9, 1.1)
        while True:
            settled = [moment + self._told_seconds for moment, _ in self._told.values()]
            left = min([until, *settled]) - loop.time()
            if left <= 0:
                return
            self._soon.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._soon.wait(), left)

    async def _round(self) -> bool:
        """Read once and deliver what was found; return whether everything could be read."""
        began = asyncio.get_running_loop().time()
        profile = await self._client.call(get_profile())
        listed = list(_named(profile))
        found = await asyncio.gather(*map(self._target, listed))
        self._read = {target.path: target for target in found if isinstance(target, Target)}
        for path, (moment, _) in list(self._told.items()):
            if moment + self._told_seconds <= began:
                del self._told[path]
        self._workers.follow(self._wanted().values())
        return not any(isinstance(target, client_errors.ClientError) for target in found)

    def _wanted(self) -> Mapping[str, Target]:
        wanted = dict(self._read)
        for path, (_, target) in self._told.items():
            if target is None:
                wanted.pop(path, None)
            else:
                wanted.setdefault(path, target)
        return wanted

    async def _target(self, name: Named) -> Target | client_errors.ClientError | None:
        """Return what is to be delivered, the one from before when the service cannot tell now."""
        path = f"/projects/{name.project}/subscriptions/{name.subscription}"
        try:
            async with self._places:
                shown = await self._shown(name)
            if shown.push_config.get("verified") is False:
                return None
            return of_subscription(shown)
        except Invalid as error:
            logger.warning("subscription.skipped", subscription=path, reason=str(error))
            return None
        except client_errors.NotFound:
            return None
        except client_errors.ClientError as error:
            logger.warning("subscription.unread", subscription=path, reason=error.message)
            return self._read.get(path) or error

    async def _shown(self, name: Named) -> wire.Subscription:
        pauses = Pauses(_BETWEEN_TRIES, self._random.random)
        for _ in range(_TRIES - 1):
            try:
                return await self._client.call(wire.get_subscription(name.project, name.subscription))
            except client_errors.ClientError as error:
                if not error.retriable:
                    raise
            await asyncio.sleep(pauses.next())
        return await self._client.call(wire.get_subscription(name.project, name.subscription))


def _named(profile: Profile) -> Iterable[Named]:
    """Return what a profile names; names that cannot be are left out."""
    for membership in profile.projects:
        for subscription in membership.subscriptions:
            with contextlib.suppress(Invalid):
                yield named(f"/projects/{membership.project}/subscriptions/{subscription}")
