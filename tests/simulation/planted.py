"""Faults planted into the program: the simulator must find each; the number of worlds shows how soon.

`python -m tests.simulation.planted` prints for each the first seed that finds it, and the broken law.
"""

import asyncio
import contextlib
import itertools
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from pyroaring import BitMap64

from ams.core.clock import Milliseconds
from ams.core.errors import LogUnavailable
from ams.core.names import Offset
from ams.core.retention_clock import RetentionClock
from ams.core.versions import Precondition
from ams.push import sender
from ams.service import delivery
from ams.service.dead_letters import DeadLetters
from ams.service.parallel import pulls
from ams.service.parallel.backlog import Backlog
from ams.service.parallel.hand_out_ids import HandOutIds, RestartGrace
from ams.service.parallel.message_state import KeyQueue
from ams.storage.cursors import embedded_rows
from ams.storage.cursors.embedded import EmbeddedCursors
from ams.storage.cursors.embedded_rows import CursorChangeGroup, encode_group
from ams.storage.database.invalidation import PRINCIPAL, SCHEMA, Invalidations
from ams.storage.database.sqlite import Commits
from ams.storage.log.embedded import EmbeddedLog, state
from ams.storage.log.embedded.catalog import SegmentCatalog, TopicState
from ams.storage.log.embedded.pages import OpenFiles
from ams.storage.log.embedded.state import LogState
from ams.storage.log.embedded.upkeep import Upkeep
from ams.storage.registry.projects import QuotaRecords
from ams.storage.registry.resources import SubscriptionRecords
from simulation.disk import NodeDisk
from simulation.running import run
from simulation.scenario import BY_GOOGLE, BY_PUSH, Scenario, scenario_of
from simulation.search import law_of

Planted = AbstractContextManager[Any]
Fault = Callable[[], Planted]
MOST = 2000
"""Seeds that must find each fault."""
ANY = frozenset[str]()
replace = mock.patch.object


def lost_sync() -> Planted:
    """Groups of the log are written and not synced."""
    write = NodeDisk.write
    return replace(NodeDisk, "write_through", lambda disk, handle, parts, at: write(disk, handle, b"".join(parts), at))


def early_acknowledgement() -> Planted:
    """Acknowledgements of ordered subscriptions are answered before they are on disk."""
    joined = EmbeddedCursors._join_group

    def early(cursors: EmbeddedCursors) -> "asyncio.Future[None]":
        joined(cursors)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    return replace(EmbeddedCursors, "_join_group", early)


def stale_cursors() -> Planted:
    """One group of cursors in five is not written, without an error."""
    numbers = itertools.count(1)

    def some(group: CursorChangeGroup, before: Any, lost: int) -> bytes:
        return encode_group(group if next(numbers) % 5 else CursorChangeGroup(), before, lost)

    return replace(embedded_rows, "encode_group", some)


def wrong_horizon() -> Planted:
    """Retention deletes messages five minutes too early."""
    wall = RetentionClock.wall
    return replace(RetentionClock, "wall", lambda clock: Milliseconds(wall(clock) + 300_000))


def quota_race() -> Planted:
    """A quota is checked before the insert only, and not in its transaction."""
    require = QuotaRecords.require

    def before_only(records: QuotaRecords, connection: Any, project: str, *names: str, more: int = 0) -> None:
        if more:
            require(records, connection, project, *names, more=more)

    return replace(QuotaRecords, "require", before_only)


def dropped_wake_up() -> Planted:
    """A new message does not wake waiting pulls."""
    return replace(TopicState, "wake")


def id_of_an_earlier_lease() -> Planted:
    """An old id settles its message although another lease holds it now."""
    named = HandOutIds.find_leases

    def lenient(own: HandOutIds, ids: Any, now: Milliseconds) -> Any:
        found = named(own, ids, now)
        for each in list(found.late):
            lease = own._leases.get(each.offset)
            if lease is not None:
                found.late.remove(each)
                found.leases.append((lease, [each.offset]))
        return found

    return replace(HandOutIds, "find_leases", lenient)


def keys_out_of_order() -> Planted:
    """Messages of an ordering key are given to any consumer."""
    return replace(KeyQueue, "takes", return_value=True)


def done_out_of_order() -> Planted:
    """An acknowledgement is stored at once, although an earlier message of its ordering key is on lease."""
    return replace(Backlog, "_hold")


def short_leases() -> Planted:
    """Leases end a second early."""
    give = Backlog.give

    def short(backlog: Backlog, offsets: Any, attempt: int, size: int, deadline: int, *more: Any, **named: Any) -> str:
        return give(backlog, offsets, attempt, size, Milliseconds(deadline - 1000), *more, **named)

    return replace(Backlog, "give", short)


def projects_mixed_up() -> Planted:
    """A subscription is looked up by its name alone, without the project."""
    find, known = SubscriptionRecords.find, dict[str, Any]()

    async def by_name(records: Any, project: Any, name: Any) -> Any:
        if name == "jobs-steady":
            known[name] = known.get(name) or await find(records, project, name)
            return known[name]
        return await find(records, project, name)

    return replace(SubscriptionRecords, "find", by_name)


def _deaf_to(kind: str) -> Planted:
    apply = Invalidations.apply

    def deaf(hub: Invalidations, forgets: Any) -> None:
        apply(hub, [each for each in forgets if each.kind != kind])

    return replace(Invalidations, "apply", deaf)


def stale_access() -> Planted:
    """Caches are not invalidated by changes of topics."""
    return _deaf_to("topic")


def revoked_tokens() -> Planted:
    """Caches are not invalidated by changes of users and their tokens."""
    return _deaf_to(PRINCIPAL)


def stale_schema() -> Planted:
    """Caches are not invalidated by changes of schemas."""
    return _deaf_to(SCHEMA)


def forgotten_keys() -> Planted:
    """Idempotency keys are forgotten when their append ends."""
    return replace(SegmentCatalog, "is_new", return_value=True)


def lost_answer() -> Planted:
    """One group of appends in forty is stored without an answer."""
    answer, numbers = LogState._answer, itertools.count(1)

    def some(state: LogState, outcome: Any) -> None:
        if next(numbers) % 40 == 0:
            for share in outcome.shares:
                for append in share.appends:
                    append.done = asyncio.get_running_loop().create_future()
        answer(state, outcome)

    return replace(LogState, "_answer", some)


def files_left_open() -> Planted:
    """An orderly stop does not close files that were read."""
    return replace(OpenFiles, "close")


def unsynced_database() -> Planted:
    """Commits of SQLite are written and not synced."""
    sync = NodeDisk.sync

    def some(disk: NodeDisk, handle: int) -> None:
        if not disk._handles[handle][0].endswith("-wal"):
            sync(disk, handle)

    return replace(NodeDisk, "sync", some)


def unsynced_names() -> Planted:
    """Names of new files are not synced."""
    return replace(NodeDisk, "sync_folder")


def doubtful_commit() -> Planted:
    """A commit whose sync failed counts as rolled back, but stays in the file."""
    return replace(Commits, "is_undone", return_value=True)


def ignored_filter() -> Planted:
    """Filters see no attributes."""
    return replace(pulls, "attributes_of", return_value={})


def snapshot_of_the_floor() -> Planted:
    """A seek to a snapshot loses acknowledgements above the first unacknowledged message."""
    restore = EmbeddedCursors.restore

    async def bare(cursors: EmbeddedCursors, subscription: Any, topic: Any, floor: Any, _: Any) -> Any:
        return await restore(cursors, subscription, topic, floor, BitMap64())

    return replace(EmbeddedCursors, "restore", bare)


def lost_update() -> Planted:
    """Versions are not compared."""
    return replace(Precondition, "check")


def detached_gives() -> Planted:
    """A detached subscription is not refused."""
    return replace(delivery, "require_attached")


def new_one_gets_the_old() -> Planted:
    """A new subscription begins at the start of its topic."""
    create = EmbeddedCursors.create

    async def early(cursors: EmbeddedCursors, subscription: Any, topic: Any, _: Any, *more: Any, **named: Any) -> None:
        await create(cursors, subscription, topic, Offset(0), *more, **named)

    return replace(EmbeddedCursors, "create", early)


def refusal_taken_for_success() -> Planted:
    """A receiver's refusal counts as success."""
    answer = sender.answer
    return replace(sender, "answer", lambda reply, now: answer(reply._replace(status=200), now))


def late_ids_confirmed() -> Planted:
    """Google's clients get OK for expired ids, with exactly-once delivery too."""
    from ams.pubsub.errors import FailedAckIds  # here, as it imports gRPC
    from ams.pubsub.subscriber import Leases

    settle = Leases._settle

    async def silent(leases: Leases, *given: Any) -> None:
        with contextlib.suppress(FailedAckIds):
            await settle(leases, *given)

    return replace(Leases, "_settle", silent)


def lost_letters() -> Planted:
    """A message with too many failures is acknowledged without a dead letter."""

    async def nowhere(*_: Any, **__: Any) -> None:
        pass

    return replace(DeadLetters, "put", nowhere)


def leases_forgotten_at_a_start() -> Planted:
    """With exactly-once delivery too, messages leased before a restart are given at once."""
    return replace(RestartGrace, "withhold")


def altered_message() -> Planted:
    """One append in forty stores its first message again instead of its last."""
    append, numbers = EmbeddedLog.append, itertools.count(1)

    async def some(log: EmbeddedLog, topic: Any, messages: Any, **named: Any) -> Any:
        stored = messages if next(numbers) % 40 else [*messages[:-1], messages[0]]
        return await append(log, topic, stored, **named)

    return replace(EmbeddedLog, "append", some)


def _stored_change(**fields: Any) -> Planted:
    settle = EmbeddedCursors.settle

    async def less(cursors: EmbeddedCursors, subscription: Any, epoch: int, run: int, change: Any) -> bool:
        return await settle(cursors, subscription, epoch, run, change._replace(**fields))

    return replace(EmbeddedCursors, "settle", less)


def acknowledgements_of_memory() -> Planted:
    """Acknowledgements of parallel subscriptions are not stored."""
    return _stored_change(done=())


def failures_of_memory() -> Planted:
    """Failures of parallel subscriptions are not stored."""
    return _stored_change(failures={})


def nothing_taken_back() -> Planted:
    """After a failure, later messages of the ordering key stay on lease."""
    return replace(Backlog, "_take_back")


def answers_turned_round() -> Planted:
    """Google's clients get messages in the wrong order."""
    from ams.pubsub import messages  # here, as it imports gRPC

    received = messages.received_messages
    return replace(messages, "received_messages", lambda lots, **named: received(lots, **named)[::-1])


def refused_and_stored() -> Planted:
    """A publish with an unknown outcome is refused, as if it were not stored."""
    return replace(state, "OutcomeUnknown", LogUnavailable)


def half_a_backup() -> Planted:
    """A backup has only half of each growing file."""
    kept = Upkeep.keep_files

    @contextlib.asynccontextmanager
    async def halve_files(upkeep: Upkeep) -> AsyncIterator[Any]:
        async with kept(upkeep) as files:

            async def halves() -> Any:
                return [each._replace(length=each.length and each.length // 2) for each in await files()]

            yield halves

    return replace(Upkeep, "keep_files", halve_files)


FAULTS: Mapping[Fault, frozenset[str]] = {
    lost_sync: ANY, early_acknowledgement: ANY, stale_cursors: ANY, wrong_horizon: frozenset({"publish brief"}),
    quota_race: frozenset({"churn a topic", "churn a subscription"}), dropped_wake_up: frozenset({"wait and consume"}),
    id_of_an_earlier_lease: frozenset({"work late"}), keys_out_of_order: frozenset({"work"}),
    done_out_of_order: frozenset({"work"}),
    short_leases: frozenset({"work"}), projects_mixed_up: ANY, stale_access: frozenset({"change access"}),
    forgotten_keys: frozenset({"publish again", "publish with a key"}), lost_answer: ANY, files_left_open: ANY,
    unsynced_database: ANY, unsynced_names: ANY, doubtful_commit: ANY, ignored_filter: frozenset({"work"}),
    snapshot_of_the_floor: frozenset({"move"}), lost_update: frozenset({"change a list"}),
    revoked_tokens: frozenset({"change a login"}), stale_schema: frozenset({"change a schema"}),
    detached_gives: frozenset({"use what is new"}), new_one_gets_the_old: frozenset({"use what is new"}),
    refusal_taken_for_success: BY_PUSH, late_ids_confirmed: frozenset({"work by Google"}),
    lost_letters: frozenset({"work"}),
    leases_forgotten_at_a_start: frozenset({"work"}), altered_message: ANY,
    acknowledgements_of_memory: frozenset({"work"}), failures_of_memory: frozenset({"work"}),
    nothing_taken_back: frozenset({"work", "work by Google"}),
    answers_turned_round: BY_GOOGLE, refused_and_stored: ANY, half_a_backup: frozenset({"back up"}),
}  # fmt: skip
"""Faults, and operations that a world needs to find each; other worlds are skipped."""


def laws_broken(fault: Fault, scenario: Scenario) -> list[str]:
    """Return the laws that a world with a fault breaks."""
    with fault():
        return [law_of(each) for each in run(scenario).violations]


def main() -> None:
    """Print for each fault the first seed that finds it."""
    for fault in [each for each in FAULTS if each.__name__ in sys.argv[1:]] or FAULTS:
        seeds = [seed for seed in range(MOST) if not FAULTS[fault] or scenario_of(seed).has(FAULTS[fault])]
        tried = ((seed, laws_broken(fault, scenario_of(seed))) for seed in seeds)
        seed, laws = next((each for each in tried if each[1]), (MOST, ["nothing"]))
        print(f"{fault.__name__}: found after {seed + 1} seeds, by {', '.join(dict.fromkeys(laws))}", flush=True)


if __name__ == "__main__":
    main()
