"""Ownership: the node that works on a parallel subscription, where several nodes share the cursors.

Message leases are in the memory of one process. So a node claims a subscription before it works on it, and requests for
a subscription of another node are forwarded there (`OwnerRequests`). Fencing is elsewhere: a node that lost a
subscription cannot store anything (`run` in `ams.storage.cursors.acks`).

An owner holds a lease (`ams.cluster.leases`). A node that owns nothing also renews, less often, so that all living
nodes are known (`LeaseTable.holders`).
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
from ams.core.cache import ExpiringCache
from ams.core.errors import AmsError, Overloaded, OwnedElsewhere, SubscriptionGone
from ams.core.names import SubscriptionId
from ams.core.supervisor import Supervisor, Ticker

NODE_MARK, FORWARDED_FOR = "x-ams-forwarded-by", "x-forwarded-for"
Headers = Sequence[tuple[str, Any]]  # names in lower case; a value is text, or bytes of gRPC's binary metadata


@dataclass(frozen=True, slots=True)
class OwnerRequests:
    """Headers for requests forwarded to the owner, over HTTP or gRPC.

    A request is forwarded unchanged, with its user's token. The owner authenticates and counts it as any other. A
    marked request is refused instead of forwarded again, so that two nodes cannot forward it forever. The mark only
    restricts, so it needs no secret. An owner that is unreachable or unavailable (503, UNAVAILABLE) is looked up again;
    over HTTP the request is retried once.
    """

    node: str  # name of this node
    doubt: Callable[[SubscriptionId], None]  # called when a node does not seem to be the owner
    passed_on: Sequence[str]  # names of headers

    def headers(self, owner: OwnedElsewhere, address: str, given: Headers, client: str) -> list[tuple[str, Any]]:
        """Return the headers for the owner at `address`. Raises `owner` without one, or for a forwarded request."""
        if any(name == NODE_MARK for name, _ in given):
            self.doubt(SubscriptionId(owner.subscription))
            raise owner
        if not address:
            raise owner
        hops = ", ".join([*(value for name, value in given if name == FORWARDED_FOR), *([client] if client else ())])
        said = [field for field in given if field[0] in self.passed_on]
        return [*said, *([(FORWARDED_FOR, hops)] if hops else ()), (NODE_MARK, self.node)]


_MAX_CACHED_OWNERS = 10_000
_LEAVE_SECONDS = 2.0
_STOPPING = "The service is stopping"
logger = structlog.get_logger("ams.parallel")


class Ownership:
    """Ownership of a single process, which owns everything."""

    has_others = False  # whether other processes also work on subscriptions

    def holds(self, subscription: SubscriptionId) -> bool:
        """Return whether this process owns a subscription. Hot path."""
        return True

    async def claim(self, subscription: SubscriptionId, *, seizes: bool = False) -> None:
        """Acquire a subscription; `seizes`: even from another node. Raises `OwnedElsewhere`, `SubscriptionGone`."""

    async def look(self, subscription: SubscriptionId) -> None:
        """Raise `OwnedElsewhere` if another node owns a subscription; may raise `RegistryUnavailable`. No claim."""

    def release(self, subscription: SubscriptionId) -> None:
        """Release a subscription; it may be claimed again at once."""

    def doubt(self, subscription: SubscriptionId) -> None:
        """Drop the cached owner of a subscription, which does not seem to own it."""

    async def start(self, supervisor: Supervisor, lost: Callable[[], None]) -> None:
        """Renew in the background until `close`; `lost` is called when all ownership is lost."""

    async def leave(self) -> None:
        """Release everything, so that other nodes need not wait for the expiry."""

    async def close(self) -> None:
        """Release everything and stop the background work; later claims fail."""


class SharedOwnership(Ownership):
    """Ownership among the nodes that share a database, by this node's own clock."""

    has_others = True

    def __init__(self, leases: LeaseTable, node: Holder) -> None:
        self._leases, self._node = leases, node
        self._held: set[SubscriptionId] = set()
        self._until = 0.0  # loop time of the expiry of all leases
        self._elsewhere = ExpiringCache[SubscriptionId, Holder](_MAX_CACHED_OWNERS, RENEW_SECONDS, _now)
        self._asked: dict[SubscriptionId, asyncio.Future[Holder]] = {}
        self._seized: set[SubscriptionId] = set()
        self._released: set[SubscriptionId] = set()
        self._turns = asyncio.Lock()
        self._lost: Callable[[], None] = lambda: None
        put_off = partial(logger.warning, "ownership.not_renewed")
        self._rounds = Ticker("ownership of subscriptions", RENEW_SECONDS, self._renew, put_off, retry_seconds=0.5)

    def holds(self, subscription: SubscriptionId) -> bool:
        return subscription in self._held and _now() < self._until

    async def claim(self, subscription: SubscriptionId, *, seizes: bool = False) -> None:
        """Acquire a subscription with the next turn, unless its cached owner is another node."""
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
        if self.holds(subscription):
            return
        self._refuse_known(subscription)
        owner = await self._leases.holder(subscription)
        if owner is not None and owner.name != self._node.name:
            self._elsewhere.put(subscription, owner)
            raise _elsewhere(subscription, owner)

    def release(self, subscription: SubscriptionId) -> None:
        self._held.discard(subscription)
        self._released.add(subscription)
        self._rounds.soon()

    def doubt(self, subscription: SubscriptionId) -> None:
        self._elsewhere.discard(subscription)

    async def start(self, supervisor: Supervisor, lost: Callable[[], None]) -> None:
        self._lost = lost
        await self._rounds.start(supervisor)

    async def leave(self) -> None:
        """Release everything; concurrent claims wait."""
        async with self._turns:
            self._held.clear()
            self._released.clear()
            with contextlib.suppress(AmsError, TimeoutError):
                async with asyncio.timeout(_LEAVE_SECONDS):
                    await self._leases.leave(self._node)

    async def close(self) -> None:
        await self._rounds.close()
        _fail(self._asked.values(), Overloaded(_STOPPING))
        await self.leave()

    def _refuse_known(self, subscription: SubscriptionId) -> None:
        if owner := self._elsewhere.get(subscription):
            raise _elsewhere(subscription, owner)

    async def _renew(self) -> None:
        if not (self._held or self._asked or self._released):
            if _now() >= self._until - RENEW_SECONDS:
                with contextlib.suppress(AmsError):  # a failure does no harm
                    await self.turn()
            return
        try:
            await self.turn()
        finally:
            if self._held and _now() >= self._until:
                self._lose("it could not be renewed")

    async def turn(self) -> None:
        """Renew the leases and answer waiting claims. Raises `RegistryUnavailable`."""
        async with self._turns:
            asked, self._asked = self._asked, {}
            seized, self._seized = self._seized, set()
            released, self._released = self._released, set()
            sent = _now()
            try:
                is_kept, owners = await self._leases.turn(self._node, asked.keys(), seized=seized, released=released)
            except BaseException as error:
                self._released |= released
                _fail(asked.values(), error if isinstance(error, Exception) else Overloaded(_STOPPING))
                raise
            if not is_kept and self._held:
                self._lose("another node may have it by now")
            self._until = lease_end(sent)
            for subscription, answer in asked.items():
                owner = owners.get(subscription)
                if owner is None:
                    _fail((answer,), SubscriptionGone())
                    continue
                if owner.name == self._node.name:
                    self._held.add(subscription)
                    self._elsewhere.discard(subscription)
                else:
                    self._held.discard(subscription)
                    self._elsewhere.put(subscription, owner)
                if not answer.done():
                    answer.set_result(owner)

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
            answer.exception()  # mark as retrieved, as its caller may be cancelled
