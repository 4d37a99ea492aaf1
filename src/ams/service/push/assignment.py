"""Assignment of push deliveries to processes, and the state of each delivery.

Every subscription with a verified push configuration is delivered. The registry is read at every heartbeat of every
process that delivers, so changes need no announcement.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ams.cluster.leases import Heartbeat, Leases
from ams.core.names import SubscriptionId, subscription_path, topic_path
from ams.core.push_config import PushConfig
from ams.push.upstream import Target
from ams.service.push.identity import Claim, claim_of
from ams.storage.registry.push import Pushed
from ams.storage.registry.registry import Registry
from ams.wire.push import WorkerState

Secrets = Mapping[SubscriptionId, Sequence[str]]  # secrets that deliveries are signed with, newest first
Tokens = Mapping[Claim, str]


@dataclass(slots=True)
class Assignment:
    """Shares subscriptions among the processes that deliver. All calls raise `RegistryUnavailable`."""

    registry: Registry
    leases: Leases
    live: Callable[[SubscriptionId], WorkerState | None] | None = None  # returns the state of a worker of this process
    secrets: Callable[[], Awaitable[Secrets]] | None = None  # returns the valid ones of all subscriptions
    tokens: Callable[[Iterable[PushConfig]], Awaitable[Tokens]] | None = None  # those that configurations ask for
    _made_of: tuple[Sequence[Pushed], Secrets, Tokens] = ((), {}, {})
    _targets: Sequence[Target] = ()

    async def targets(self) -> Sequence[Target]:
        """Return all targets, oldest first."""
        pushed = await self.registry.pushed.all()
        secrets = await self.secrets() if self.secrets else {}
        tokens = await self.tokens(each.config for each in pushed) if self.tokens else {}
        if self._made_of != (pushed, secrets, tokens):
            self._targets = [_target(each, secrets, tokens) for each in pushed]
            self._made_of = pushed, secrets, tokens
        return self._targets

    async def heartbeat(self, heartbeat: Heartbeat) -> Sequence[Target]:
        """Renew the leases of a holder; return its targets."""
        if heartbeat.leaving:
            await self.leases.heartbeat(heartbeat, frozenset())
            return []
        wanted = await self.targets()
        assigned = await self.leases.heartbeat(heartbeat, frozenset(SubscriptionId(each.id) for each in wanted))
        return [each for each in wanted if each.id in assigned]

    async def state(self, subscription: SubscriptionId) -> WorkerState | None:
        """Return the state of a delivery, from its worker here, or from the last report; None: unknown."""
        return (self.live and self.live(subscription)) or await self.leases.state(subscription)


def _target(pushed: Pushed, secrets: Secrets, tokens: Tokens) -> Target:
    claim = claim_of(pushed.config)
    return Target(
        path=subscription_path(pushed.project, pushed.name), topic=topic_path(pushed.project, pushed.topic),
        config=pushed.config, ack_deadline_seconds=pushed.ack_deadline_seconds, id=pushed.id,
        secrets=tuple(secrets.get(pushed.id, ())), revision=pushed.config.revision, topic_id=pushed.topic_id,
        is_parallel=pushed.is_parallel, counts_attempts=pushed.counts_attempts,
        identity_token=tokens.get(claim, "") if claim else "",
    )  # fmt: skip
