"""Following by leases: the service says in every heartbeat what is this process's to deliver (`ams.push.holding`)."""

import random
from collections.abc import Sequence
from itertools import islice

import structlog

from ams.app.push_server.condition import Condition
from ams.app.push_server.targets import Invalid, of_config
from ams.app.push_server.waiting import unknown_route
from ams.client import AsyncClient, wire
from ams.client import errors as client_errors
from ams.push.holding import Holding, LeaseReply, NoLeases, Unanswered
from ams.push.leases import Heartbeat
from ams.push.upstream import Target
from ams.push.workers import Workers

logger = structlog.get_logger("ams.push_server")


class ByLeases:
    """Sends heartbeats over the HTTP API, and delivers what the answers say."""

    def __init__(
        self, client: AsyncClient, workers: Workers, condition: Condition, holder: str, random: random.Random
    ) -> None:
        self._client = client
        self._workers = workers
        self._holding = Holding(
            workers, self._ask, random, holder=holder, reached=condition.reached, missed=condition.missed
        )
        self._targets: Sequence[Target] = ()
        self._version = ""

    def activate(self, target: Target) -> None:
        """Ask at once whether it is ours to deliver: the service knows what is wanted."""
        self._holding.wake()

    def deactivate(self, path: str) -> None:
        """Stop it, and ask at once whether it is wanted all the same."""
        self._workers.deactivate(path)
        self._holding.wake()

    async def run(self) -> None:
        """Send heartbeats until this is cancelled, or the service knows of no leases any more."""
        await self._holding.run()

    async def stop(self, seconds: float) -> None:
        """Finish what is in flight while the lease goes on, and give everything back."""
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
