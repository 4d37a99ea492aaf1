"""Workers of a process: one for each target, never two for one subscription.

The table follows a wanted set, as a whole or target by target. A changed target gets a new worker, which starts when
the old one has finished its deliveries in flight. The same holds for a subscription whose path changed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from ams.core.clock import Clock
from ams.core.names import SubscriptionId
from ams.push.attempts import WorkerDependencies
from ams.push.report import DeliveryTally
from ams.push.sender import HttpSender
from ams.push.upstream import Away, Target, Upstream
from ams.push.worker import DeliveryWorker
from ams.wire.push import WorkerState

LEASE_OVER = "the lease of this process is over"
DRAIN_SECONDS = 10.0  # for a worker to finish what is in flight (P8)
_SPREAD_SECONDS, _MAX_SPREAD_SECONDS = 0.002, 1.0  # between first pulls, and for all of them (P14)


class Workers:
    """Starts, replaces and ends workers."""

    def __init__(
        self,
        upstream: Upstream,
        sender: HttpSender,
        clock: Clock,
        random: Callable[[], float],
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        tally: DeliveryTally | None = None,
    ) -> None:
        self._means = WorkerDependencies(
            upstream, sender, clock, random, tally or DeliveryTally(), sleep, self._token, self._require_lease
        )
        self._lease_ends: float | None = None  # loop time; None: no lease, and no other process delivers
        self._wanted: dict[str, Target] = {}
        self._paths: dict[str, str] = {}  # of wanted targets, by the identity of the subscription
        self._running: dict[str, DeliveryWorker] = {}  # by path; draining ones too
        self._busy: set[str] = set()  # identities of what runs
        self._draining: set[DeliveryWorker] = set()
        self._drains: set[asyncio.Task[None]] = set()

    def follow(self, targets: Iterable[Target]) -> None:
        """Deliver exactly these targets: start missing workers, replace changed ones, drain the others."""
        self._wanted = {each.path: each for each in targets}
        self._paths = {each.id: each.path for each in self._wanted.values() if each.id}
        for worker in list(self._running.values()):
            if worker not in self._draining and not self._is_wanted(worker):
                self._drain(worker, DRAIN_SECONDS)
        missing = [each for each in self._wanted.values() if self._is_free(each)]
        spread = min(_SPREAD_SECONDS * (len(missing) - 1), _MAX_SPREAD_SECONDS)
        for each in missing:
            self._start(each, spread * self._means.random())

    def hold_until(self, ends: float | None) -> None:
        """Set the end of the lease, by the loop's clock; None: no lease is needed."""
        self._lease_ends = ends

    def activate(self, target: Target) -> bool:
        """Add a target. Returns False, and does nothing, if its path is delivered already."""
        if target.path in self._wanted:
            return False
        self._wanted[target.path] = target
        if target.id:
            self._paths[target.id] = target.path
        self._start_if_free(target)
        return True

    def deactivate(self, path: str) -> bool:
        """Stop delivering to a subscription. Returns False if it was not active. Deliveries in flight finish."""
        if not self._forget(path):
            return False
        worker = self._running.get(path)
        if worker is not None and worker not in self._draining:
            self._drain(worker, DRAIN_SECONDS)
        return True

    async def stop(self, seconds: float = DRAIN_SECONDS) -> None:
        """Drain all workers within so many seconds; return when none is left."""
        self._wanted, self._paths = {}, {}
        for worker in list(self._running.values()):
            self._drain(worker, seconds)
        while self._drains:
            await asyncio.wait(self._drains)

    def held_subscriptions(self) -> frozenset[SubscriptionId]:
        """Return subscriptions whose workers run or drain here: no other process may deliver these."""
        return frozenset(map(SubscriptionId, self._busy))

    def paths(self) -> frozenset[str]:
        """Return the resource names of subscriptions whose workers run or drain here."""
        return frozenset(self._running)

    def state(self, path: str) -> WorkerState | None:
        """Return the state of a delivery; None if the subscription is not delivered here."""
        if path not in self._wanted:
            return None
        worker = self._running.get(path)  # perhaps the former one, which still drains
        is_present = worker is not None and worker not in self._draining and self._is_wanted(worker)
        return worker.state() if worker and is_present else WorkerState()

    def state_of(self, subscription: SubscriptionId) -> WorkerState | None:
        return self.state(self._paths.get(subscription, ""))

    def states(self) -> Mapping[str, WorkerState]:
        return {path: self.state(path) or WorkerState() for path in self._wanted}

    def take_changes(self) -> dict[SubscriptionId, WorkerState]:
        """Return the states that changed since the last call, for a report to the service."""
        changes = {}
        for worker in self._running.values():
            if worker.report.changed and worker.target.id and worker not in self._draining:
                worker.report.changed = False
                changes[SubscriptionId(worker.target.id)] = worker.state()
        return changes

    def put_back(self, changes: Iterable[SubscriptionId]) -> None:
        """Return these states from the next `take_changes` again: the report failed."""
        lost = frozenset(changes)
        for worker in self._running.values():
            if worker.target.id in lost:
                worker.report.changed = True

    def _require_lease(self) -> None:
        if self._lease_ends is not None and asyncio.get_running_loop().time() >= self._lease_ends:
            raise Away(LEASE_OVER)

    def _token(self, target: Target) -> str:
        newest = self._wanted.get(target.path)
        return newest.identity_token if newest is not None and newest == target else target.identity_token

    def _is_wanted(self, worker: DeliveryWorker) -> bool:
        return self._wanted.get(worker.target.path) == worker.target

    def _is_free(self, target: Target) -> bool:
        return target.path not in self._running and target.id not in self._busy

    def _start_if_free(self, target: Target | None) -> None:
        if target is not None and self._is_free(target):
            self._start(target, 0.0)

    def _start(self, target: Target, after: float) -> None:
        worker = DeliveryWorker(target, self._means, self._on_gone)
        self._running[target.path] = worker
        if target.id:
            self._busy.add(target.id)
        worker.start(after)

    def _drain(self, worker: DeliveryWorker, seconds: float) -> None:
        async def finish() -> None:
            await worker.drain(seconds)
            self._on_ended(worker)

        self._draining.add(worker)
        drain = asyncio.create_task(finish(), name=f"ams-push-drain {worker.target.path}")
        self._drains.add(drain)
        drain.add_done_callback(self._drains.discard)

    def _on_gone(self, worker: DeliveryWorker) -> None:
        if self._is_wanted(worker) and self._running.get(worker.target.path) is worker:
            self._forget(worker.target.path)
        self._on_ended(worker)

    def _on_ended(self, worker: DeliveryWorker) -> None:
        target = worker.target
        self._draining.discard(worker)
        if self._running.get(target.path) is not worker:
            return
        del self._running[target.path]
        self._means.upstream.forget(target)
        self._busy.discard(target.id)
        self._start_if_free(self._wanted.get(target.path))
        self._start_if_free(self._wanted.get(self._paths.get(target.id, "")))

    def _forget(self, path: str) -> bool:
        target = self._wanted.pop(path, None)
        if target is not None:
            self._paths.pop(target.id, None)
        return target is not None
