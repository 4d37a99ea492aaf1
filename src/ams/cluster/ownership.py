"""Ownership: which node works on a parallel subscription, where several share the cursors.

Leases are known to one process alone. So a node claims a subscription before it takes it over, and requests for one
that another node owns go there. The fence is not here: a node that was overtaken can store
nothing any more (`run` in `ams.storage.cursors.acks`). `OwnerRequests` says how the owner is asked.

To own is to hold a lease (`ams.cluster.leases`). A node that owns nothing renews less often, so that all living nodes
are known (`LeaseTable.holders`).
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from ams.cluster.lease_table import Holder, LeaseTable
from ams.cluster.leases import RENEW_SECONDS, lease_end
from ams.core.errors import AmsError, Overloaded, OwnedElsewhere, SubscriptionGone
from ams.core.names import SubscriptionId
from ams.core.supervisor import Rounds, Supervisor

MARK, FORWARDED_FOR = "x-ams-forwarded-by", "x-forwarded-for"
Headers = Sequence[tuple[str, Any]]  # names in lower case; a value is text, or bytes of gRPC's binary metadata


@dataclass(frozen=True, slots=True)
class OwnerRequests:
    """Decides whether an owner may be asked, over HTTP or gRPC, and makes the headers.

    A request goes as it came, with the token of its user: nodes have none between them. The owner lets it in and counts
    it as any other. A marked request is refused and not forwarded once more: two nodes that take each other for the
    owner would ask for ever. The mark only takes something away, so it needs no secret. An owner that is not reached,
    or refuses for a moment (503, UNAVAILABLE), is doubted and looked up anew, over HTTP once for the same request.
    """

    node: str  # the name of this one
    doubt: Callable[[SubscriptionId], None]  # called when a node does not seem to own a subscription
    passed_on: Sequence[str]  # names of headers

    def headers(self, owner: OwnedElsewhere, address: str, given: Headers, client: str) -> list[tuple[str, Any]]:
        """Return what the owner at `address` gets of the headers `given`, with the client's address and the mark.

        Raises `owner` for a request that was forwarded already, or without an address.
        """
        if any(name == MARK for name, _ in given):
            self.doubt(SubscriptionId(owner.subscription))
            raise owner
        if not address:
            raise owner
        hops = ", ".join([*(value for name, value in given if name == FORWARDED_FOR), *([client] if client else ())])
        said = [field for field in given if field[0] in self.passed_on]
        return [*said, *([(FORWARDED_FOR, hops)] if hops else ()), (MARK, self.node)]


_RETRY_SECONDS = 0.5  # after a turn that failed
_KNOWN_SECONDS = RENEW_SECONDS  # for how long it is believed that another node owns a subscription
_MOST_KNOWN = 10_000  # owners of subscriptions that are remembered
_LEAVE_SECONDS = 2.0
_STOPPING = "The service is stopping"

logger = structlog.get_logger("ams.parallel")


class Ownership:
    """Says what this process may work on. This one is alone: it owns everything, at no cost."""

    has_others = False  # True if other processes work on subscriptions too

    def holds(self, subscription: SubscriptionId) -> bool:
        """Return whether this process owns a subscription; asked for each request."""
        return True

    async def claim(self, subscription: SubscriptionId, *, seizes: bool = False) -> None:
        """Own a subscription; with `seizes` also one of another node. Raises `OwnedElsewhere`, `SubscriptionGone`."""

    async def look(self, subscription: SubscriptionId) -> None:
        """Claim nothing, and raise `OwnedElsewhere` when another node owns a subscription, or `RegistryUnavailable`."""

    def release(self, subscription: SubscriptionId) -> None:
        """Own a subscription no more, once others have heard of it; it may be claimed again at once."""

    def doubt(self, subscription: SubscriptionId) -> None:
        """Ask anew who owns a subscription: the node that was thought to does not seem to."""

    async def start(self, supervisor: Supervisor, lost: Callable[[], None]) -> None:
        """Renew in the background, until `close`; `lost` is called when nothing is owned any more."""

    async def leave(self) -> None:
        """Release everything, so that others need not wait."""

    async def close(self) -> None:
        """Release everything, and end the background work; once closed, nothing can be claimed."""


class SharedOwnership(Ownership):
    """Ownership among the nodes that share a database, by this node's own clock."""

    has_others = True

    def __init__(self, leases: LeaseTable, node: Holder) -> None:
        self._leases, self._node = leases, node
        self._held: set[SubscriptionId] = set()
        self._until = 0.0  # loop time at which this node owns nothing any more
        self._elsewhere: dict[SubscriptionId, tuple[Holder, float]] = {}
        """Owners of other subscriptions, and until which loop time they are believed."""
        self._asked: dict[SubscriptionId, asyncio.Future[Holder]] = {}
        self._seized: set[SubscriptionId] = set()
        self._released: set[SubscriptionId] = set()
        self._turns = asyncio.Lock()
        self._lost: Callable[[], None] = lambda: None
        not_renewed = partial(logger.warning, "ownership.not_renewed")
        self._rounds = Rounds(
            "ownership of subscriptions", RENEW_SECONDS, self._renew, not_renewed, retry_seconds=_RETRY_SECONDS
        )

    def holds(self, subscription: SubscriptionId) -> bool:
        """Return whether this node owns a subscription, by its own clock."""
        return subscription in self._held and _now() < self._until

    async def claim(self, subscription: SubscriptionId, *, seizes: bool = False) -> None:
        """Own a subscription, with the next turn; what is known to be elsewhere is not asked for."""
        if self._rounds.is_over:
            raise Overloaded(_STOPPING)
        if seizes:
            self._seized.add(subscription)
        else:
            self._refuse_known(subscription)
        answer = self._asked.get(subscription)
        if answer is None:
            answer = self._asked[subscription] = asyncio.get_running_loop().create_future()
        self._rounds.soon()
        owner = await asyncio.shield(answer)
        if owner.name != self._node.name:
            raise _elsewhere(subscription, owner)

    async def look(self, subscription: SubscriptionId) -> None:
        """Ask who owns a subscription, unless that is known."""
        if self.holds(subscription):
            return
        self._refuse_known(subscription)
        owner = await self._leases.holder(subscription)
        if owner is not None and owner.name != self._node.name:
            self._know(subscription, owner)
            self._refuse_known(subscription)

    def release(self, subscription: SubscriptionId) -> None:
        """Release a subscription with the next turn."""
        self._held.discard(subscription)
        self._released.add(subscription)
        self._rounds.soon()

    def doubt(self, subscription: SubscriptionId) -> None:
        """Forget who owns a subscription."""
        self._elsewhere.pop(subscription, None)

    async def start(self, supervisor: Supervisor, lost: Callable[[], None]) -> None:
        """Take turns in the background, until `close`."""
        self._lost = lost
        await self._rounds.start(supervisor)

    async def leave(self) -> None:
        """Release everything; what is asked for meanwhile waits."""
        async with self._turns:
            self._held.clear()
            self._released.clear()
            with contextlib.suppress(AmsError, TimeoutError):
                async with asyncio.timeout(_LEAVE_SECONDS):
                    await self._leases.leave(self._node)

    async def close(self) -> None:
        """Take no more turns, and release everything; once closed, nothing can be claimed."""
        await self._rounds.close()
        _fail(self._asked.values(), Overloaded(_STOPPING))
        await self.leave()

    def _refuse_known(self, subscription: SubscriptionId) -> None:
        known = self._elsewhere.get(subscription)
        if known is None:
            return
        owner, until = known
        if _now() < until:
            raise _elsewhere(subscription, owner)
        del self._elsewhere[subscription]

    async def _renew(self) -> None:
        if not (self._held or self._asked or self._released):
            if _now() >= self._until - RENEW_SECONDS:
                with contextlib.suppress(AmsError):  # nothing is lost when that fails
                    await self.turn()
            return
        try:
            await self.turn()
        finally:
            if self._held and _now() >= self._until:
                self._lose("it could not be renewed")

    async def turn(self) -> None:
        """Renew what is owned, and answer those who ask for more. Raises `RegistryUnavailable`."""
        async with self._turns:
            asked, self._asked = self._asked, {}
            seized, self._seized = self._seized, set()
            released, self._released = self._released, set()
            sent = _now()
            try:
                turn = await self._leases.turn(self._node, asked.keys(), seized=seized, released=released)
            except BaseException as error:
                self._released |= released
                _fail(asked.values(), error if isinstance(error, Exception) else Overloaded(_STOPPING))
                raise
            if not turn.is_kept and self._held:
                self._lose("another node may have it by now")
            self._until = lease_end(sent)
            for subscription, answer in asked.items():
                owner = turn.holders.get(subscription)
                if owner is None:
                    _fail((answer,), SubscriptionGone())
                    continue
                if owner.name == self._node.name:
                    self._held.add(subscription)
                    self._elsewhere.pop(subscription, None)
                else:
                    self._held.discard(subscription)
                    self._know(subscription, owner)
                if not answer.done():
                    answer.set_result(owner)

    def _know(self, subscription: SubscriptionId, owner: Holder) -> None:
        if len(self._elsewhere) >= _MOST_KNOWN:
            self._elsewhere.clear()
        self._elsewhere[subscription] = owner, _now() + _KNOWN_SECONDS

    def _lose(self, reason: str) -> None:
        logger.warning("ownership.lost", subscriptions=len(self._held), reason=reason)
        self._held.clear()
        self._lost()


def _elsewhere(subscription: SubscriptionId, owner: Holder) -> OwnedElsewhere:
    return OwnedElsewhere(subscription=subscription, node=owner.name, url=owner.url, pubsub=owner.pubsub)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _fail(answers: Iterable[asyncio.Future[Holder]], error: Exception) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(error)
            answer.exception()  # nobody may wait for it any more
