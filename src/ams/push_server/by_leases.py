"""Following by leases: the service says in every beat what is this process's to deliver (`ams.push.leases`).

A lease counts from the sending of the last beat that was answered. Whoever is not answered stops before it ends: what
is in flight gets a moment to finish and is cut off then, as somebody else may deliver it from the end on.
"""

import asyncio
import contextlib
import random
from collections.abc import Mapping

import msgspec
import structlog

from ams.client import AsyncClient
from ams.client import errors as client_errors
from ams.client.wire.call import Call, Json, json_body, reader
from ams.names import SubscriptionId
from ams.push.leases import BEAT_SECONDS, LEASE_SECONDS, Beat
from ams.push.state import WorkerState
from ams.push.target import Target
from ams.push_server.condition import Condition
from ams.push_server.contact import Pauses
from ams.push_server.table import Table
from ams.push_server.targets import Invalid, of_config
from ams.push_server.waiting import unknown_route

STATES = 100
"""Most states that one beat tells."""
_FINISH_SECONDS, _SPARE_SECONDS = 1.5, 0.5
"""At the end of a lease: for deliveries in flight, and between their end and that of the lease."""
_LEAST_SECONDS = 0.2
"""For a beat to be answered, however little there is left."""
_AWAY_SECONDS = 8.0
"""Longest pause between beats while the service does not answer."""

logger = structlog.get_logger("ams.push_server")


class Leased(msgspec.Struct, rename="camel"):
    """A target as the service tells it to a holder."""

    id: str
    name: str
    topic: str
    topic_id: str
    revision: int = 0
    ack_deadline_seconds: int
    push_config: Json
    secrets: list[str] = []


class Answer(msgspec.Struct, rename="camel"):
    """What a beat is answered; without targets they are those of the version that was named."""

    version: str
    targets: list[Leased] | None = None
    lease_seconds: float = LEASE_SECONDS
    beat_seconds: float = BEAT_SECONDS


_answer = reader(Answer)
_states = msgspec.json.Encoder()


def lease_push(beat: Beat, version: str) -> Call[Answer]:
    """Say that a holder lives; `version` is what its last answer named."""
    body = {
        "holder": beat.holder,
        "held": sorted(beat.held),
        "states": {key: msgspec.Raw(_states.encode(state)) for key, state in beat.states.items()},
        "leaving": beat.leaving,
        "version": version,
    }
    return Call("POST", "/v1/push:lease", _answer, json_body(body), repeatable=True)


class ByLeases:
    """Beats, and delivers what the answers say."""

    def __init__(
        self, client: AsyncClient, workers: Table, condition: Condition, holder: str, random: random.Random
    ) -> None:
        self._client = client
        self._workers = workers
        self._condition = condition
        self._holder = holder
        self._pauses = Pauses(random, _AWAY_SECONDS)
        self._targets: list[Target] = []
        self._version = ""
        self._beat_seconds = BEAT_SECONDS
        self._ends: float | None = None
        """When the lease ends, by the loop's clock; None: nothing is held by a lease."""
        self._now = asyncio.Event()
        self._leaving = False

    def activate(self, target: Target) -> None:
        """Ask at once whether it is ours to deliver: the service knows what is wanted."""
        self._now.set()

    def deactivate(self, path: str) -> None:
        """Stop it, and ask at once whether it is wanted all the same."""
        self._workers.deactivate(path)
        self._now.set()

    async def run(self) -> None:
        """Beat until this is cancelled, or the service knows of no leases any more."""
        while True:
            self._now.clear()
            try:
                pause = await self._round()
            except client_errors.ClientError as error:
                if unknown_route(error):
                    await self._lose("the service knows no leases any more")
                    return
                pause = await self._unanswered(error.message)
            except TimeoutError:
                pause = await self._unanswered("no answer in time")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._now.wait(), pause)

    async def stop(self, seconds: float) -> None:
        """Finish what is in flight while the lease goes on, and give everything back."""
        self._leaving = True
        beating = asyncio.create_task(self.run())
        try:
            await self._workers.stop(seconds)
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
        with contextlib.suppress(client_errors.ClientError, TimeoutError):
            await self._beat(Beat(self._holder, frozenset(), self._workers.take_changes(), leaving=True))

    async def _round(self) -> float:
        """Beat once and follow the answer; return how long to wait for the next one."""
        changes = self._changes()
        sent = asyncio.get_running_loop().time()
        try:
            answer = await self._beat(Beat(self._holder, self._workers.held(), changes, self._leaving))
        except BaseException:
            self._workers.put_back(changes)
            raise
        self._ends = sent + answer.lease_seconds
        self._beat_seconds = answer.beat_seconds
        self._pauses.over()
        self._condition.reached()
        if answer.targets is not None:
            self._targets = list(filter(None, map(_target, answer.targets)))
            self._version = answer.version
        if not self._leaving:
            self._workers.follow(self._targets)
        return self._beat_seconds

    async def _beat(self, beat: Beat) -> Answer:
        seconds = BEAT_SECONDS if self._ends is None else max(min(BEAT_SECONDS, self._left()), _LEAST_SECONDS)
        async with asyncio.timeout(seconds):
            return await self._client.call(lease_push(beat, self._version))

    def _changes(self) -> Mapping[SubscriptionId, WorkerState]:
        changes = self._workers.take_changes()
        later = list(changes)[STATES:]
        self._workers.put_back(later)
        for key in later:
            del changes[key]
        return changes

    async def _unanswered(self, reason: str) -> float:
        """Go on until shortly before the lease ends; return how long to wait for the next try."""
        self._condition.missed()
        logger.warning("lease.unanswered", reason=reason)
        pause = self._pauses.next()
        if self._ends is None:
            return pause
        left = self._left()
        if left > 0:
            return min(pause, left)
        await self._lose(reason)
        return pause

    def _left(self) -> float:
        """Return for how many seconds to try on before the lease is lost."""
        assert self._ends is not None
        return self._ends - _SPARE_SECONDS - _FINISH_SECONDS - asyncio.get_running_loop().time()

    async def _lose(self, reason: str) -> None:
        """Deliver nothing any more: the lease is over."""
        if self._ends is None:
            return
        logger.warning("lease.lost", reason=reason)
        self._ends, self._version = None, ""
        await self._workers.stop(_FINISH_SECONDS)


def _target(leased: Leased) -> Target | None:
    """Return a target to deliver; one that cannot be is left out, with a line in the log (P4)."""
    try:
        config = of_config(leased.push_config)
    except Invalid as error:
        logger.warning("subscription.skipped", subscription=leased.name, reason=str(error))
        return None
    if config is None:
        return None
    return Target(
        path=leased.name,
        topic=leased.topic,
        config=config,
        ack_deadline_seconds=leased.ack_deadline_seconds,
        secrets=tuple(leased.secrets),
        id=leased.id,
        revision=leased.revision,
        topic_id=leased.topic_id,
    )
