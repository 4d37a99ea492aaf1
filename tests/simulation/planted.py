"""Faults planted into the program, to see that the simulator finds each, and how many worlds that takes.

`python -m tests.simulation.planted` tells for each the first seed that finds it, and by which law.
"""

import asyncio
import itertools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from ams.core.clock import Milliseconds
from ams.core.retention_clock import RetentionClock
from ams.service.parallel.backlog import Backlog
from ams.service.parallel.hand_out_ids import HandOutIds
from ams.service.parallel.message_state import OrderingKeys
from ams.storage.cursors import sqlite
from ams.storage.cursors.sqlite import SqliteCursors
from ams.storage.database.invalidation import Invalidations
from ams.storage.log.embedded.catalog import SegmentCatalog, TopicState
from ams.storage.log.embedded.pages import OpenFiles
from ams.storage.log.embedded.state import LogState
from ams.storage.registry.projects import QuotaRecords
from ams.storage.registry.resources import SubscriptionRecords
from simulation.disk import NodeDisk
from simulation.running import run
from simulation.scenario import scenario_of
from simulation.search import law_of

Planted = AbstractContextManager[Any]
Fault = Callable[[], Planted]
MOST = 2000
"""Seeds in which each fault has to be found."""
replace = mock.patch.object


def lost_sync() -> Planted:
    """Groups of the log are written and not synced."""
    write = NodeDisk.write
    return replace(NodeDisk, "write_through", lambda disk, handle, parts, at: write(disk, handle, b"".join(parts), at))


def early_acknowledgement() -> Planted:
    """Acknowledgements of ordered subscriptions are answered before they are on disk."""
    joined = SqliteCursors._joined

    def early(cursors: SqliteCursors) -> "asyncio.Future[None]":
        joined(cursors)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    return replace(SqliteCursors, "_joined", early)


def stale_cursors() -> Planted:
    """One group of cursors in five is not written, and nobody is told."""
    store, numbers = sqlite.store, itertools.count(1)

    def some(*given: Any) -> None:
        if next(numbers) % 5:
            store(*given)

    return replace(sqlite, "store", some)


def wrong_horizon() -> Planted:
    """Retention takes what is five minutes too young."""
    wall = RetentionClock.wall
    return replace(RetentionClock, "wall", lambda clock: Milliseconds(wall(clock) + 300_000))


def quota_race() -> Planted:
    """A quota is checked before the addition only, and not in its transaction."""
    require = QuotaRecords.require

    def before_only(records: QuotaRecords, connection: Any, project: str, *names: str, more: int = 0) -> None:
        if more:
            require(records, connection, project, *names, more=more)

    return replace(QuotaRecords, "require", before_only)


def dropped_wake_up() -> Planted:
    """Pulls that wait are not woken by a message."""
    return replace(TopicState, "wake")


def id_of_an_earlier_lease() -> Planted:
    """An id settles its message also when that is leased to somebody else by now."""
    named = HandOutIds.named

    def lenient(own: HandOutIds, ids: Any, now: Milliseconds) -> Any:
        found = named(own, ids, now)
        for each in list(found.late):
            lease = own._leases.get(each.offset)
            if lease is not None:
                found.late.remove(each)
                found.leases.append((lease, [each.offset]))
        return found

    return replace(HandOutIds, "named", lenient)


def keys_out_of_order() -> Planted:
    """Messages of an ordering key do not wait for each other."""
    return replace(OrderingKeys, "begin", return_value=True)


def short_leases() -> Planted:
    """Leases end a second too early."""
    give = Backlog.give

    def short(backlog: Backlog, offsets: Any, attempt: int, size: int, deadline: int, *more: Any, **named: Any) -> str:
        return give(backlog, offsets, attempt, size, Milliseconds(deadline - 1000), *more, **named)

    return replace(Backlog, "give", short)


def projects_mixed_up() -> Planted:
    """A subscription is looked up by its name alone, whatever the project."""
    find, known = SubscriptionRecords.find, dict[str, Any]()

    async def by_name(records: Any, project: Any, name: Any) -> Any:
        if name == "jobs-steady":
            known[name] = known.get(name) or await find(records, project, name)
            return known[name]
        return await find(records, project, name)

    return replace(SubscriptionRecords, "find", by_name)


def stale_access() -> Planted:
    """Caches do not hear of changes of topics."""
    apply = Invalidations.apply

    def deaf(hub: Invalidations, forgets: Any) -> None:
        apply(hub, [each for each in forgets if each.kind != "topic"])

    return replace(Invalidations, "apply", deaf)


def forgotten_keys() -> Planted:
    """Idempotency keys are known for as long as their append is under way only."""
    return replace(SegmentCatalog, "is_new", return_value=True)


def lost_answer() -> Planted:
    """One group of appends in forty is stored, and its callers are not told."""
    answer, numbers = LogState._answer, itertools.count(1)

    def some(state: LogState, outcome: Any) -> None:
        if next(numbers) % 40 == 0:
            for share in outcome.shares:
                for append in share.appends:
                    append.done = asyncio.get_running_loop().create_future()
        answer(state, outcome)

    return replace(LogState, "_answer", some)


def files_left_open() -> Planted:
    """An orderly stop closes no files that were read."""
    return replace(OpenFiles, "close")


FAULTS: tuple[Fault, ...] = (
    lost_sync, early_acknowledgement, stale_cursors, wrong_horizon, quota_race, dropped_wake_up, id_of_an_earlier_lease,
    keys_out_of_order, short_leases, projects_mixed_up, stale_access, forgotten_keys, lost_answer, files_left_open,
)  # fmt: skip


def laws_broken(fault: Fault, seed: int) -> list[str]:
    """Return the laws that a world breaks with a fault."""
    with fault():
        return [law_of(each) for each in run(scenario_of(seed)).violations]


def main() -> None:
    """Tell of each fault which seed finds it first."""
    for fault in [each for each in FAULTS if each.__name__ in sys.argv[1:]] or FAULTS:
        tried = ((seed, laws_broken(fault, seed)) for seed in range(MOST))
        seed, laws = next((each for each in tried if each[1]), (MOST, ["nothing"]))
        print(f"{fault.__name__}: found after {seed + 1} seeds, by {', '.join(dict.fromkeys(laws))}", flush=True)


if __name__ == "__main__":
    main()
