"""The committer: one thread that makes appends durable by group commit.

Appends wait while the previous group is written and synced. Then as many as fit form the next group, round robin over
topics. Each retention class of a group costs one write and one sync. A large append is written in slices, with other
groups in between. The event loop is notified once per group. The thread does little work per message and copies none,
because it shares the GIL with the event loop and may wait long for it.

`Space` refuses appends on a full disk, and keeps a reserve that lets others commit on one.
"""

import asyncio
import contextlib
import errno
import os
import queue
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import cast

import structlog

from ams.core.clock import Milliseconds
from ams.core.errors import LogUnavailable, OutcomeUnknown
from ams.core.names import Offset
from ams.storage.free_space import FreeSpace
from ams.storage.log.embedded import group_commit
from ams.storage.log.embedded.catalog import TopicState
from ams.storage.log.embedded.group_commit import Append, Appends, Chore, CommitOutcome, Control, CursorGroup
from ams.storage.log.embedded.options import LogPlace
from ams.storage.log.embedded.record import HEADER_BYTES, RecordKind, control_body, encode_control
from ams.storage.log.embedded.segment import CURSORS, RetentionClass, Spares, Writer, class_of

logger = structlog.get_logger("ams.log")
_MAX_CONTROL_BYTES = 2 * HEADER_BYTES
_MEASUREMENT_MS = 50  # how long a measurement of free space is used, less our own writes
_FULL_DISK_BYTES = 1024 * 1024  # with less, or less than half of `min_free_bytes`, the disk is full: SQLite needs it
Report = Callable[[list[CommitOutcome], list[asyncio.Future[None]]], None]  # outcomes, and chores that are done


class Space(FreeSpace):
    """Free space of the log's disk. On a shortage it deletes first the spares, then the reserve."""

    def __init__(self, place: LogPlace, spares: Spares) -> None:
        options, reserve = place.options, os.path.join(place.folder, "reserve")
        super().__init__(place.files, place.folder, options.min_free_bytes, reserve, options.reserve_bytes)
        self._spares, self._clock = spares, place.clock
        self._empty = min(_FULL_DISK_BYTES, options.min_free_bytes // 2)
        self._believed = 0
        self._measured = -_MEASUREMENT_MS

    def refusal(self, size: int) -> str | None:
        """Return why `size` more bytes are refused now, or None. Committer thread only."""
        now = self._clock.monotonic()
        if self._believed - size < self._min_free or now - self._measured >= _MEASUREMENT_MS:
            try:
                free = self._free_for_growth(size)
                if free <= self._empty and self.release_reserve():
                    free = super()._free_for_growth()
            except OSError as error:
                return f"free space is unknown: {error.strerror}"
            self._believed, self._measured = free, now
        self._believed -= size
        if self._believed >= self._min_free:
            return None
        return self._too_little()

    def release_reserve(self) -> bool:
        """Delete reserve and spares; return whether there were any. Thread-safe."""
        had_spares = self._spares.give_up()
        return super().release_reserve() or had_spares

    def _free_for_growth(self, size: int = 0) -> int:
        free = super()._free_for_growth()
        return super()._free_for_growth() if free - size < self._min_free and self._spares.give_up() else free


class Committer:
    """Owns the writers and the numbers of commits. Calls `report` with outcomes, in order, on its thread."""

    def __init__(
        self, writers: dict[int, Writer], space: Space, place: LogPlace, commit: int, report: Report, cursors: int = 0
    ) -> None:
        """`commit` is the last number used, `cursors` that of the last group of cursors."""
        self.refusal: str | None = None  # why appends fail now, or None
        self._writers, self._space, self._commit, self._report = writers, space, commit, report
        self._clock, self._options = place.clock, place.options
        self._inbox: queue.SimpleQueue[Sequence[group_commit.Work]] = queue.SimpleQueue()
        self._waiting: OrderedDict[TopicState, deque[Append | Control]] = OrderedDict()
        self._large_is_due = False  # whether an append larger than a group has the next turn
        self._cursors: CursorGroup | None = None  # waits for the next write
        self._cursors_commit = cursors
        self._chores: list[Chore] = []
        self._taken: Appends | list[Control] = {}  # the current group
        self._large: group_commit.LargeAppend | None = None  # written in slices
        self._stopping = False
        self._ended = False
        self._sync_due: Milliseconds | None = None

    @property
    def tails(self) -> int:
        """Preallocated bytes in the open segments."""
        segments = [writer.open for writer in self._writers.values()]
        return sum(each.tail for each in segments if each is not None)

    def submit(self, *works: group_commit.Work) -> None:
        """Queue work from the event loop; wakes the thread once. Raises `LogUnavailable` if the thread has failed."""
        if self._ended:
            raise LogUnavailable
        self._inbox.put(works)

    def run(self) -> None:
        """Work until asked to finish and the queue is empty."""
        while not self._stopping or self._waiting or self._large or self._cursors:
            self._receive()
            if self._large and self._cursors:  # the next group may wait for the rest of the large append
                self._commit_cursors(self._cursors)
            if self._waiting:
                self._taken = self._take()
                if self._taken:
                    self._commit_group(self._taken)
                self._taken = {}
            if self._cursors:
                self._commit_cursors(self._cursors)
            if self._large:
                self._continue_large(self._large)
            self._sync_if_due()
            self._do_chores()
        self._finish()

    def unfinished_work(self) -> tuple[Sequence[Append | Control], Sequence[Append | Control], Sequence[Chore]]:
        """After a failure of the thread: return current group, waiting work and chores. No more work is accepted."""
        self._ended = True
        with contextlib.suppress(queue.Empty):
            while True:
                self._accept(self._inbox.get_nowait())
        taken: list[Append | Control] = [*(self._taken if isinstance(self._taken, list) else _all(self._taken))]
        waiting = [work for works in self._waiting.values() for work in works]
        if self._large:
            taken.append(self._large.append)
            waiting += self._large.later
        return taken, waiting, self._chores

    def _receive(self) -> None:
        try:
            if not self._waiting and not self._stopping and not self._large and not self._cursors:
                patience = None if self._sync_due is None else max(self._sync_due - self._clock.monotonic(), 0) / 1000
                self._accept(self._inbox.get(timeout=patience))
            while True:
                self._accept(self._inbox.get_nowait())
        except queue.Empty:
            return

    def _accept(self, works: Sequence[group_commit.Work]) -> None:
        waiting, large = self._waiting, self._large
        for work in works:
            if work is None:
                self._stopping = True
            elif isinstance(work, Chore):
                self._chores.append(work)
            elif isinstance(work, CursorGroup):
                self._cursors = work
            elif large and work.topic is large.append.topic:
                large.later.append(work)
            elif work.topic in waiting:
                waiting[work.topic].append(work)
            else:
                waiting[work.topic] = deque((work,))

    def _take(self) -> Appends | list[Control]:
        """Return the next group: appends, round robin over topics, or controls, one per topic.

        An append larger than a group goes after the others that wait, and then has the next turn. So an append waits
        for at most one large one. While one is written in slices other large ones wait: the group may be empty.
        """
        if self._all_fit():
            everything, self._waiting = self._waiting, OrderedDict()
            return cast("Appends", everything)
        group: dict[TopicState, list[Append]] = {}
        passed: list[tuple[TopicState, deque[Append | Control]]] = []
        size = 0
        while self._waiting:
            topic, works = self._waiting.popitem(last=False)
            work = works[0]
            is_large = isinstance(work, Append) and work.size > self._options.group_bytes
            if is_large and (not self._large_is_due or self._large is not None):
                passed.append((topic, works))
                continue
            if group and (isinstance(work, Control) or size + work.size > self._options.group_bytes):
                self._put_first(topic, works)
                break
            works.popleft()
            if works:
                self._waiting[topic] = works
            if isinstance(work, Control):
                self._put_back(passed)
                return [work, *self._other_controls(topic)]
            group.setdefault(topic, []).append(work)
            size += work.size
        self._put_back(passed)
        return group if group or self._large else self._take()

    def _all_fit(self) -> bool:
        size = 0
        for works in self._waiting.values():
            for work in works:
                if isinstance(work, Control):
                    return False
                size += work.size
                if size > self._options.group_bytes:
                    return False
        return True

    def _other_controls(self, first: TopicState) -> Iterator[Control]:
        for topic, works in list(self._waiting.items()):
            work = works[0]
            if topic is not first and isinstance(work, Control):
                works.popleft()
                if not works:
                    del self._waiting[topic]
                yield work

    def _put_back(self, passed: list[tuple[TopicState, deque[Append | Control]]]) -> None:
        self._large_is_due = bool(passed)
        for topic, works in reversed(passed):
            self._put_first(topic, works)

    def _put_first(self, topic: TopicState, works: deque[Append | Control]) -> None:
        self._waiting[topic] = works
        self._waiting.move_to_end(topic, last=False)

    def _commit_group(self, group: Appends | list[Control]) -> None:
        # One time for all checks: with a later one the segment could be closed under its large append.
        now = self._clock.wall()
        if self._large and self._must_finish_first(self._large, group, now):
            self._finish_large(self._large)
            now = self._clock.wall()
        outcomes = self._commit_controls(group, now) if isinstance(group, list) else self._commit_appends(group, now)
        self._report_outcomes(outcomes)

    def _report_outcomes(self, outcomes: list[CommitOutcome]) -> None:
        begun = self._succeed_failed()
        for outcome in outcomes:
            # Once a successor segment is durable, the failed group's bytes can no longer return.
            outcome.in_doubt &= self._writers[outcome.code].needs_successor
        self._report(outcomes + begun, [])

    def _commit_appends(self, group: Appends, now: Milliseconds) -> list[CommitOutcome]:
        codes = {topic.kind.code for topic in group}
        by_class: dict[int, Appends] = {
            code: group if len(codes) == 1 else {topic: group[topic] for topic in group if topic.kind.code == code}
            for code in codes
        }
        sizes = {code: sum([append.size for append in _all(appends)]) for code, appends in by_class.items()}
        size, large = sum(sizes.values()), None
        if size > self._options.group_bytes:  # a single append
            [[append]] = group.values()
            if group_commit.is_sliced(append, self._options):
                large, size = append, group_commit.max_bytes(append) + group_commit.gap_bytes(append, self._options)
        if refusal := self._space.refusal(size):
            self._refuse(refusal)
            return [CommitOutcome(code, failed=[*_all(appends)]) for code, appends in by_class.items()]
        if large:
            return [self._begin_large(self._writers[large.topic.kind.code], large, size, now)]
        return [self._commit_class(self._writers[code], by_class[code], size, now) for code, size in sizes.items()]

    def _commit_class(self, writer: Writer, appends: Appends, size: int, now: Milliseconds) -> CommitOutcome:
        """Write appends of one class. A failed write does not raise: the outcome names its appends."""
        has_gap = self._large is not None and self._large.writer is writer  # the gap has space for appends only
        cursors = self._cursors if self._options.sync == "always" and not has_gap else None
        outcome = CommitOutcome(writer.kind.code)
        try:
            self._make_ready(writer, size + (len(cursors.body) if cursors else 0), now, outcome)
            self._commit += 1
            packed = group_commit.Packed(appends, writer.segment, self._commit, now)
            if cursors:
                packed.parts.append(self._cursors_record(writer, cursors, now))
            writer.write(packed.parts, sync=self._options.sync == "always")
        except Exception as error:
            self._fail(writer, outcome, _all(appends), error)
            return outcome
        self._finish_appends(writer, packed, now, outcome)
        if cursors:
            outcome.cursors, self._cursors, self._cursors_commit = cursors, None, self._commit
        return outcome

    def _commit_cursors(self, group: CursorGroup) -> None:
        """Store cursors in their own chain, without a check of free space: they must work on a full disk."""
        writer, now = self._writers[CURSORS.code], self._clock.wall()
        outcome = CommitOutcome(writer.kind.code)
        try:
            self._make_ready(writer, len(group.body), now, outcome)
            self._commit += 1
            writer.write([self._cursors_record(writer, group, now)], sync=True)
        except Exception as error:
            has_space = self._abandon(writer, outcome, error)
            self._report_outcomes([outcome])
            if has_space:
                self._commit_cursors(group)
                return
            self._cursors = None
            in_doubt = any(each.needs_successor for each in group.tried)
            failure = OutcomeUnknown() if in_doubt else LogUnavailable(str(error))
            self._report([CommitOutcome(writer.kind.code, cursors=group, cursors_error=failure)], [])
            return
        outcome.cursors, self._cursors, self._cursors_commit = group, None, self._commit
        self._note_write(writer, now, outcome)
        self._report_outcomes([outcome])

    def _cursors_record(self, writer: Writer, group: CursorGroup, now: Milliseconds) -> bytes:
        # Names its predecessor: so a start detects missing groups, and failed ones that were not cut off.
        group.tried.append(writer)
        stamp = writer.segment.stamp(self._commit)
        return encode_control(RecordKind.CURSORS, group.body, now, stamp, first=Offset(self._cursors_commit))

    def _finish_appends(
        self, writer: Writer, packed: group_commit.Packed, now: Milliseconds, outcome: CommitOutcome
    ) -> None:
        for share in packed.shares:
            share.topic.tail = share.tail
        writer.segment.keys += packed.keys
        outcome.records, outcome.shares = packed.records, packed.shares
        self._note_write(writer, now, outcome)
        self._resume()

    def _begin_large(self, writer: Writer, append: Append, size: int, now: Milliseconds) -> CommitOutcome:
        outcome = CommitOutcome(writer.kind.code)
        try:
            self._make_ready(writer, size, now, outcome)
            self._commit += 1
            self._large = group_commit.LargeAppend(append, writer, self._commit, now, self._options)
            self._large.later = self._waiting.pop(append.topic, self._large.later)
        except Exception as error:
            self._fail(writer, outcome, [append], error)
        return outcome

    def _must_finish_first(
        self, large: group_commit.LargeAppend, group: Appends | list[Control], now: Milliseconds
    ) -> bool:
        """Return whether a group goes to the large append's segment and does not fit its gap, or ends the segment."""
        if isinstance(group, list):
            sizes = [_MAX_CONTROL_BYTES for control in group if self._kind_after(control) == large.writer.kind]
        else:
            sizes = [group_commit.max_bytes(each) for each in _all(group) if each.topic.kind == large.writer.kind]
        return bool(sizes) and (not large.has_room(sum(sizes)) or large.writer.is_due(sum(sizes), now))

    def _finish_large(self, large: group_commit.LargeAppend) -> None:
        while self._large is large:
            self._continue_large(large)

    def _continue_large(self, large: group_commit.LargeAppend) -> None:
        """Write the next slice, or complete the append. A failed write does not raise: it is reported as an outcome."""
        outcome = CommitOutcome(large.writer.kind.code)
        try:
            if not large.is_written:
                large.write_slice()
                return
            self._commit += 1
            large.join(self._commit)
        except Exception as error:
            self._fail(large.writer, outcome, (), error)
        else:
            self._resume_topic(large)
            self._finish_appends(large.writer, large.packed, large.now, outcome)
        self._report_outcomes([outcome])

    def _resume_topic(self, large: group_commit.LargeAppend) -> None:
        self._large = None
        if large.later:
            self._waiting[large.append.topic] = large.later

    def _commit_controls(self, controls: list[Control], now: Milliseconds) -> list[CommitOutcome]:
        by_class: dict[int, list[Control]] = {}
        for control in controls:
            by_class.setdefault(self._kind_after(control).code, []).append(control)
        return [self._commit_controls_of(self._writers[code], own, now) for code, own in by_class.items()]

    def _commit_controls_of(self, writer: Writer, controls: list[Control], now: Milliseconds) -> CommitOutcome:
        outcome = CommitOutcome(writer.kind.code)
        try:
            self._make_ready(writer, 0, now, outcome)
            self._commit += 1
            stamp, records = writer.segment.stamp(self._commit), []
            for each in controls:
                body = control_body(each.kind, each.retention, each.topic.tail.published)
                records.append(encode_control(each.kind, body, now, stamp, each.topic.id, each.oldest))
            writer.write(records, sync=self._options.sync == "always")
        except Exception as error:
            self._fail(writer, outcome, controls, error)
            return outcome
        for control in controls:
            control.topic.kind = writer.kind
        outcome.controls, outcome.time = controls, now
        self._note_write(writer, now, outcome)
        return outcome

    def _kind_after(self, control: Control) -> RetentionClass:
        if control.kind == RecordKind.RETENTION:
            return class_of(control.retention or self._options.retention)
        return control.topic.kind

    def _make_ready(self, writer: Writer, size: int, now: Milliseconds, outcome: CommitOutcome) -> None:
        if writer.is_due(size, now):
            self._close(writer, outcome)
        if writer.open is None:
            outcome.begun = writer.begin(now)

    def _close(self, writer: Writer, outcome: CommitOutcome) -> None:
        segment = writer.finish()
        if segment is not None:
            outcome.closed.append(segment)

    def _note_write(self, writer: Writer, now: Milliseconds, outcome: CommitOutcome) -> None:
        segment = writer.segment
        outcome.commit, outcome.sequence, outcome.length = self._commit, segment.sequence, segment.length
        if segment.first_time is None:
            segment.first_time = now
        if segment.durable < segment.length and self._sync_due is None:
            self._sync_due = Milliseconds(self._clock.monotonic() + self._options.sync_interval_ms)

    def _resume(self) -> None:
        if self.refusal:
            logger.info("log.resumed")
            self.refusal = None

    def _fail(
        self, writer: Writer, outcome: CommitOutcome, works: Iterable[Append | Control], error: Exception
    ) -> None:
        self._abandon(writer, outcome, error)
        outcome.failed += works
        if self._large and self._large.writer is writer:  # its slices are lost with the segment
            outcome.failed.append(self._large.append)
            self._resume_topic(self._large)
        self._refuse(f"the log could not be written: {error}")

    def _abandon(self, writer: Writer, outcome: CommitOutcome, error: Exception) -> bool:
        """Abandon a segment after an error; return whether the reserve freed the missing space."""
        has_space = False
        if not isinstance(error, OSError):
            logger.exception("log.committer_failed")
        elif error.errno in (errno.ENOSPC, errno.EDQUOT):
            has_space = self._space.release_reserve()
        given_up = writer.abandon()
        if given_up is not None:
            outcome.closed.append(given_up)
            outcome.in_doubt = given_up.reached > given_up.length
        return has_space

    def _refuse(self, reason: str) -> None:
        if self.refusal != reason:
            logger.error("log.refusing", reason=reason)
        self.refusal = reason

    def _succeed_failed(self) -> list[CommitOutcome]:
        """Begin the successors of failed segments, so that their failed bytes can never return.

        Waiting callers get the error afterwards. If a successor fails too, they get `OutcomeUnknown`. The next group
        tries again; until then every append to the class fails.
        """
        outcomes = []
        for writer in self._writers.values():
            if writer.needs_successor:
                with contextlib.suppress(OSError):
                    outcomes.append(CommitOutcome(writer.kind.code, begun=writer.begin(self._clock.wall())))
        return outcomes

    def _sync_if_due(self) -> None:
        if self._sync_due is None or self._clock.monotonic() < self._sync_due:
            return
        self._sync_due = None
        outcomes = []
        for writer in self._writers.values():
            try:
                writer.sync()
            except OSError as error:
                outcomes.append(CommitOutcome(writer.kind.code))
                self._fail(writer, outcomes[-1], [], error)
        self._report(outcomes + self._succeed_failed(), [])

    def _do_chores(self) -> None:
        while self._chores:
            chore = self._chores[-1]
            now = self._clock.wall()
            due = [each for each in self._writers.values() if each.open and (chore.seal_all or each.is_old(now))]
            outcomes = [self._seal(writer) for writer in due]
            self._space.keep_reserve()
            if self.refusal and self._space.refusal(0) is None:
                outcomes += self._succeed_failed()
                if not any(writer.needs_successor for writer in self._writers.values()):
                    self._resume()
            self._report(outcomes, [chore.done])
            self._chores.pop()

    def _seal(self, writer: Writer) -> CommitOutcome:
        if self._large and self._large.writer is writer:
            self._finish_large(self._large)
        outcome = CommitOutcome(writer.kind.code)
        try:
            self._close(writer, outcome)
        except OSError as error:
            self._fail(writer, outcome, [], error)
        return outcome

    def _finish(self) -> None:
        """End every open segment with a mark, so that the next start can tell damage from a torn end."""
        for writer in self._writers.values():
            try:
                writer.sync()
                segment = writer.open
                if segment is not None and segment.length > segment.marked:
                    self._commit += 1
                    stamp = segment.stamp(self._commit)
                    writer.write([encode_control(RecordKind.MARK, b"", self._clock.wall(), stamp)], sync=True)
                    segment.marked = segment.length
                writer.finish()
            except OSError as error:
                logger.error("log.not_marked", reason=error.strerror)
                writer.abandon()


def _all(appends: Appends) -> Iterable[Append]:
    return chain.from_iterable(appends.values())
