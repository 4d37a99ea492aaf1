"""Faults planted into the coordination of nodes: worlds of several nodes must find each.

`python -m tests.simulation.planted_in_clusters` prints for each the first seed that finds it, and the broken law.
"""

import sys
from typing import Any
from unittest import mock

from ams.cluster import ownership
from ams.cluster.ownership import SharedOwnership
from ams.storage.cursors import postgresql_rows
from ams.storage.cursors.postgresql import PostgresCursors
from ams.storage.database.invalidation import Invalidations
from ams.storage.log.kafka.sender import TopicQueue
from simulation.cluster.running import cluster_scenario_of, run_cluster
from simulation.search import law_of
from tests.simulation.planted import Fault, Planted

MOST = 2000
replace = mock.patch.object


def two_owners() -> Planted:
    """A node acts as owner of another's subscription; its writes are still refused."""

    async def claim(own: SharedOwnership, subscription: Any, **_: Any) -> None:
        own._held.add(subscription)

    return replace(SharedOwnership, "claim", claim)


def no_fence() -> Planted:
    """A node's writes are stored although another node has taken over the subscription."""
    settle = PostgresCursors.settle

    async def settle_unfenced(cursors: PostgresCursors, subscription: Any, epoch: int, run: int, change: Any) -> bool:
        newest = await cursors.progress(subscription)
        return await settle(cursors, subscription, newest.epoch, newest.run or run, change)

    return replace(PostgresCursors, "settle", settle_unfenced)


def late_renewal() -> Planted:
    """A node believes in its ownership for half a minute after a renewal."""
    return replace(ownership, "lease_end", lambda sent: sent + 30.0)


def stale_cache() -> Planted:
    """Caches are used while invalidations may be lost, and get none."""

    def deaf(hub: Invalidations, forgets: Any) -> None:
        for _ in forgets:
            pass

    return replace(Invalidations, "apply", deaf)


def lost_update() -> Planted:
    """A cursor overwrites another node's newer version."""
    worse = postgresql_rows._WRITE_CURSORS.replace("AND c.version = m.read", "")
    return replace(postgresql_rows, "_WRITE_CURSORS", worse)


def sent_twice() -> Planted:
    """A batch with an unknown outcome is sent again as a new one."""
    next_batch = TopicQueue.next_batch

    def anew(queue: TopicQueue, limit: int, now: float) -> Any:
        batch = next_batch(queue, limit, now)
        if batch is not None and batch.attempts:
            queue.renew()
            batch.data = b""
        return batch

    return replace(TopicQueue, "next_batch", anew)


FAULTS: tuple[Fault, ...] = (two_owners, no_fence, late_renewal, stale_cache, lost_update, sent_twice)


def laws_broken(fault: Fault, seed: int) -> list[str]:
    """Return the laws that a world of several nodes with a fault breaks."""
    with fault():
        return [law_of(each) for each in run_cluster(cluster_scenario_of(seed)).violations]


def main() -> None:
    """Print for each fault the first seed that finds it."""
    for fault in [each for each in FAULTS if each.__name__ in sys.argv[1:]] or FAULTS:
        tried = ((seed, laws_broken(fault, seed)) for seed in range(MOST))
        seed, laws = next((each for each in tried if each[1]), (MOST, ["nothing"]))
        print(f"{fault.__name__}: found after {seed + 1} seeds, by {', '.join(dict.fromkeys(laws))}", flush=True)


if __name__ == "__main__":
    main()
