"""The committer: one thread that makes appends durable, a group at a time.

Appends wait while the group before them is written and synced; then as many as fit are taken, round robin over topics.
Each class's part of a group is one write and one sync; a much larger append is written in slices, with groups in
between. The event loop is notified of a group once. Little is done per message, and messages are written from where
they are: the thread shares the interpreter with the event loop, and getting it back may take long.

`Space` says when the disk is too full for appends, and keeps the reserve that lets others commit on a full one.
"""

import asyncio
import contextlib
import errno
import os
import queue
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import cast

import structlog

from ams.core.clock import Clock, Milliseconds
from ams.core.errors import LogUnavailable, OutcomeUnknown
from ams.core.names import Offset, TopicId
from ams.storage.files import Disk
from ams.storage.free_space import ReservedSpace
from ams.storage.log.embedded.catalog import TopicState
from ams.storage.log.embedded.group_commit import (
    Append,
    Appends,
    Chore,
    Control,
    CursorGroup,
    LargeAppend,
    Outcome,
    Packed,
    Work,
    is_sliced,
    max_bytes,
    pack,
    room_for,
)
from ams.storage.log.embedded.options import LogOptions
from ams.storage.log.embedded.record import HEADER_BYTES, Header, Kind, control_body, encode
from ams.storage.log.embedded.segment import CURSORS, Open, RetentionClass, Spares, Writer, class_of, seed_of

logger = structlog.get_logger("ams.log")

_MAX_CONTROL_BYTES = 2 * HEADER_BYTES
_TRUST_MS = 50  # how long a measured amount of free space is used, less what we write meanwhile
_EMPTY = 1024 * 1024  # less than this, or than half of `min_free_bytes`, is a full disk: SQLite needs it to commit


class Space(ReservedSpace):
    """The free space of the log's disk, with the spares, which are given up for it before the reserve is."""

    def __init__(self, files: Disk, folder: str, clock: Clock, options: LogOptions, spares: Spares) -> None:
        super().__init__(files, os.path.join(folder, "reserve"), options.reserve_bytes, options.min_free_bytes)
        self._spares, self._clock = spares, clock
        self._empty = min(_EMPTY, options.min_free_bytes // 2)
        self._believed = 0
        self._measured = -_TRUST_MS

    def refusal(self, size: int) -> str | None:
        """Return why `size` more bytes are refused now; None when there is enough space. For the committer thread."""
        now = self._clock.monotonic()
        if self._believed - size < self._min_free or now - self._measured >= _TRUST_MS:
            self._believed, self._measured = self._measure(size), now
        self._believed -= size
        if self._believed >= self._min_free:
            return None
        return self._too_little()

    def release_reserve(self) -> bool:
        """Give reserve and spares back to the file system; return whether there were any. From every thread."""
        had_spares = self._spares.give_up()
        return super().release_reserve() or had_spares

    def _free_for_growth(self) -> int:
        free = super()._free_for_growth()
        return super()._free_for_growth() if free < self._min_free and self._spares.give_up() else free

    def _measure(self, size: int) -> int:
        free = self._files.free_bytes(self._folder)
        if free - size < self._min_free and self._spares.give_up():
            free = self._files.free_bytes(self._folder)
        if free <= self._empty and self.release_reserve():
            free = self._files.free_bytes(self._folder)
        return free


class Committer:
    """Owns the writers and the numbering of commits; `report` is called with outcomes, in order, from its thread."""

    def __init__(
        self,
        writers: dict[int, Writer],
        space: Space,
        clock: Clock,
        options: LogOptions,
        commit: int,
        report: Callable[[list[Outcome], list[asyncio.Future[None]]], None],
        cursors_commit: int = 0,
    ) -> None:
        """Take over; `commit` is the last number given before, `cursors_commit` that of the last group of cursors."""
        self.refusal: str | None = None  # why appends fail now; None while they do not
        self._writers, self._space, self._clock = writers, space, clock
        self._options, self._commit, self._report = options, commit, report
        self._inbox: queue.SimpleQueue[Sequence[Work]] = queue.SimpleQueue()
        self._waiting: OrderedDict[TopicState, deque[Append | Control]] = OrderedDict()
        self._large_is_due = False  # whether the last group let an append larger than a group wait
        self._cursors: CursorGroup | None = None  # the one that waits
        self._cursors_commit = cursors_commit
        self._chores: list[Chore] = []
        self._taken: Appends | list[Control] = {}  # the group that is being stored
        self._large: LargeAppend | None = None  # the append that is being written in slices
        self._stopping = False
        self._ended = False
        self._sync_due: Milliseconds | None = None

    @property
    def tails(self) -> int:
        """Bytes of open segments' files behind what was written to them."""
        segments = [writer.open for writer in self._writers.values()]
        return sum(each.tail for each in segments if each is not None)

    def submit(self, *works: Work) -> None:
        """Queue work from the event loop, waking the thread once. Raises `LogUnavailable` when that has failed."""
        if self._ended:
            raise LogUnavailable
        self._inbox.put(works)

    def run(self) -> None:
        """Work until asked to finish and nothing waits; the thread's main function."""
        while not self._stopping or self._waiting or self._large or self._cursors:
            self._receive()
            if self._large and self._cursors:  # a group may have to wait for the rest of a large append
                self._commit_cursors(self._cursors)
            if self._waiting:
                self._taken = self._take()
                if self._taken:
                    self._commit_group(self._taken)
                self._taken = {}
            if self._cursors:
                self._commit_cursors(self._cursors)
            if self._large:
                self._go_on_with(self._large)
            self._sync_if_due()
            self._do_chores()
        self._finish()

    def left(self) -> tuple[Sequence[Append | Control], Sequence[Append | Control], Sequence[Chore]]:
        """Return what a thread that failed was storing, what waited, and chores; from then on nothing is taken."""
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

    def _accept(self, works: Sequence[Work]) -> None:
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
        """Return the next group: appends of all topics in turn, or controls, one of a topic.

        An append larger than a group lets what else waits go first and then has the next turn, so that no append
        waits for more than one of them. While one is written in slices the others wait: then there may be no group.
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
        """Put what had to wait before all others; it has the next turn."""
        self._large_is_due = bool(passed)
        for topic, works in reversed(passed):
            self._put_first(topic, works)

    def _put_first(self, topic: TopicState, works: deque[Append | Control]) -> None:
        self._waiting[topic] = works
        self._waiting.move_to_end(topic, last=False)

    def _commit_group(self, group: Appends | list[Control]) -> None:
        # Read once: by a later time the segment could be too old, and be closed under a large append in it.
        now = self._clock.wall()
        if self._large and self._is_in_the_way(self._large, group, now):
            self._finish_large(self._large)
            now = self._clock.wall()
        self._conclude(
            self._commit_controls(group, now) if isinstance(group, list) else self._commit_appends(group, now)
        )

    def _conclude(self, outcomes: list[Outcome]) -> None:
        begun = self._succeed_failed()
        for outcome in outcomes:
            # What was written of a group that failed is out of the way once a successor says so.
            outcome.in_doubt &= self._writers[outcome.code].needs_successor
        self._report(outcomes + begun, [])

    def _commit_appends(self, group: Appends, now: Milliseconds) -> list[Outcome]:
        by_class = _by_class(group)
        sizes = {code: sum([append.size for append in _all(appends)]) for code, appends in by_class.items()}
        size = sum(sizes.values())
        if size > self._options.group_bytes:  # then it is one append
            [[large]] = group.values()
            if is_sliced(large, self._options):
                return [self._begin_large(self._writers[large.topic.kind.code], large, now)]
        refusal = self._refusal(size)
        if refusal:
            self._refuse(refusal)
            return [Outcome(code, failed=[*_all(appends)]) for code, appends in by_class.items()]
        return [self._commit_class(self._writers[code], by_class[code], size, now) for code, size in sizes.items()]

    def _refusal(self, size: int) -> str | None:
        try:
            return self._space.refusal(size)
        except OSError as error:
            return f"free space is unknown: {error.strerror}"

    def _commit_class(self, writer: Writer, appends: Appends, size: int, now: Milliseconds) -> Outcome:
        outcome, cursors = Outcome(writer.kind.code), self._cursors_beside(writer)
        try:
            self._make_ready(writer, size + (len(cursors.body) if cursors else 0), now, outcome)
            segment = _open(writer)
            self._commit += 1
            packed = pack(appends, segment, self._commit, now)
            if cursors:
                packed.parts.append(self._cursors_record(writer, cursors, now))
            writer.write(packed.parts, sync=self._options.sync == "always")
        except Exception as error:
            self._fail(writer, outcome, _all(appends), error)
            return outcome
        self._stored(writer, packed, now, outcome)
        if cursors:
            self._cursors_stored(cursors, outcome)
        return outcome

    def _cursors_beside(self, writer: Writer) -> CursorGroup | None:
        """Return the cursors that go to the disk with a group of appends, by the same sync."""
        has_gap = self._large is not None and self._large.writer is writer  # its room is counted in appends
        return self._cursors if self._options.sync == "always" and not has_gap else None

    def _commit_cursors(self, group: CursorGroup) -> None:
        """Store cursors in their own chain; space is not asked for, as they must go on on a full disk."""
        writer, now = self._writers[CURSORS.code], self._clock.wall()
        outcome = Outcome(writer.kind.code)
        try:
            self._make_ready(writer, len(group.body), now, outcome)
            self._commit += 1
            writer.write([self._cursors_record(writer, group, now)], sync=True)
        except Exception as error:
            has_space = self._abandon(writer, outcome, error)
            self._conclude([outcome])
            if has_space:
                self._commit_cursors(group)
                return
            self._cursors = None
            in_doubt = any(each.needs_successor for each in group.tried)
            failed = Outcome(writer.kind.code, cursors=group)
            failed.cursors_error = OutcomeUnknown() if in_doubt else LogUnavailable(str(error))
            self._report([failed], [])
            return
        segment = _open(writer)
        outcome.commit, outcome.sequence, outcome.length = self._commit, segment.sequence, segment.length
        self._cursors_stored(group, outcome)
        self._written(writer, now)
        self._conclude([outcome])

    def _cursors_record(self, writer: Writer, group: CursorGroup, now: Milliseconds) -> bytes:
        # It names the one before it: so a start notices missing ones, and one that failed and was not cut off.
        group.tried.append(writer)
        before = Offset(self._cursors_commit)
        return self._record(writer, Kind.CURSORS, TopicId(bytes(16)), group.body, now, before)

    def _cursors_stored(self, group: CursorGroup, outcome: Outcome) -> None:
        outcome.cursors, self._cursors, self._cursors_commit = group, None, self._commit

    def _stored(self, writer: Writer, packed: Packed, now: Milliseconds, outcome: Outcome) -> None:
        segment = _open(writer)
        for share in packed.shares:
            share.topic.tail = share.tail
        segment.keys += packed.keys
        outcome.commit, outcome.sequence, outcome.length = self._commit, segment.sequence, segment.length
        outcome.records, outcome.loaded, outcome.shares = packed.records, packed.loaded, packed.shares
        self._written(writer, now)
        self._resume()

    def _begin_large(self, writer: Writer, append: Append, now: Milliseconds) -> Outcome:
        outcome, size = Outcome(writer.kind.code), room_for(append, self._options)
        refusal = self._refusal(size)
        if refusal:
            self._refuse(refusal)
            outcome.failed.append(append)
            return outcome
        try:
            self._make_ready(writer, size, now, outcome)
            self._commit += 1
            self._large = LargeAppend(append, writer, self._commit, now, self._options)
            self._large.later = self._waiting.pop(append.topic, self._large.later)
        except Exception as error:
            self._fail(writer, outcome, [append], error)
        return outcome

    def _is_in_the_way(self, large: LargeAppend, group: Appends | list[Control], now: Milliseconds) -> bool:
        """Return whether a group would go to a large append's segment and not fit into its gap, or end the segment."""
        if isinstance(group, list):
            sizes = [_MAX_CONTROL_BYTES for control in group if self._kind_after(control) == large.writer.kind]
        else:
            sizes = [max_bytes(each) for each in _all(group) if each.topic.kind == large.writer.kind]
        return bool(sizes) and (not large.has_room(sum(sizes)) or large.writer.is_due(sum(sizes), now))

    def _finish_large(self, large: LargeAppend) -> None:
        while self._large is large:
            self._go_on_with(large)

    def _go_on_with(self, large: LargeAppend) -> None:
        """Write a slice, or what makes the append part of its segment when all are written."""
        outcome = Outcome(large.writer.kind.code)
        try:
            if not large.is_written:
                large.write_slice()
                return
            self._commit += 1
            large.join(self._commit)
        except Exception as error:
            self._fail(large.writer, outcome, (), error)
        else:
            self._let_go(large)
            self._stored(large.writer, large.packed, large.now, outcome)
        self._conclude([outcome])

    def _let_go(self, large: LargeAppend) -> None:
        self._large = None
        if large.later:
            self._waiting[large.append.topic] = large.later

    def _commit_controls(self, controls: list[Control], now: Milliseconds) -> list[Outcome]:
        by_class: dict[int, list[Control]] = {}
        for control in controls:
            by_class.setdefault(self._kind_after(control).code, []).append(control)
        return [self._commit_controls_of(self._writers[code], own, now) for code, own in by_class.items()]

    def _commit_controls_of(self, writer: Writer, controls: list[Control], now: Milliseconds) -> Outcome:
        outcome = Outcome(writer.kind.code)
        try:
            self._make_ready(writer, 0, now, outcome)
            self._commit += 1
            records = []
            for each in controls:
                body = control_body(each.kind, each.retention, each.topic.tail.published)
                records.append(self._record(writer, each.kind, each.topic.id, body, now, each.oldest))
            writer.write(records, sync=self._options.sync == "always")
        except Exception as error:
            self._fail(writer, outcome, controls, error)
            return outcome
        for control in controls:
            control.topic.kind = writer.kind
        segment = _open(writer)
        outcome.commit, outcome.sequence, outcome.length = self._commit, segment.sequence, segment.length
        outcome.controls, outcome.time = controls, now
        self._written(writer, now)
        return outcome

    def _kind_after(self, control: Control) -> RetentionClass:
        if control.kind == Kind.RETENTION:
            return class_of(control.retention or self._options.retention)
        return control.topic.kind

    def _make_ready(self, writer: Writer, size: int, now: Milliseconds, outcome: Outcome) -> None:
        if writer.is_due(size, now):
            self._close(writer, outcome)
        if writer.open is None:
            outcome.begun = writer.begin(now)

    def _close(self, writer: Writer, outcome: Outcome) -> None:
        segment = writer.finish()
        if segment is not None:
            outcome.closed.append(segment)

    def _record(
        self, writer: Writer, kind: Kind, topic: TopicId, body: bytes, now: Milliseconds, first: Offset
    ) -> bytes:
        segment = _open(writer)
        header = Header(kind, True, topic, first, now, self._commit, segment.durable, 0, 0)
        return encode(header, body, seed_of(segment.sequence))

    def _written(self, writer: Writer, now: Milliseconds) -> None:
        segment = _open(writer)
        if segment.first_time is None:
            segment.first_time = now
        if segment.durable < segment.length and self._sync_due is None:
            self._sync_due = Milliseconds(self._clock.monotonic() + self._options.sync_interval_ms)

    def _resume(self) -> None:
        if self.refusal:
            logger.info("log.resumed")
            self.refusal = None

    def _fail(self, writer: Writer, outcome: Outcome, works: Iterable[Append | Control], error: Exception) -> None:
        """Nothing of a group is acknowledged: give its segment up and answer with errors."""
        self._abandon(writer, outcome, error)
        outcome.failed += works
        if self._large and self._large.writer is writer:  # what was written of it went with the segment
            outcome.failed.append(self._large.append)
            self._let_go(self._large)
        self._refuse(f"the log could not be written: {error}")

    def _abandon(self, writer: Writer, outcome: Outcome, error: Exception) -> bool:
        """Give a segment up after an error; return whether there is space by now that was missing."""
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

    def _succeed_failed(self) -> list[Outcome]:
        """Begin the successors of failed segments, so that their failed bytes can never return.

        Callers that wait get the failure after that. Where it fails too they get that the outcome is not
        known, and it is tried again with the next group; until then every append to the class fails.
        """
        outcomes = []
        for writer in self._writers.values():
            if writer.needs_successor:
                with contextlib.suppress(OSError):
                    outcomes.append(Outcome(writer.kind.code, begun=writer.begin(self._clock.wall())))
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
                outcomes.append(Outcome(writer.kind.code))
                self._fail(writer, outcomes[-1], [], error)
        self._report(outcomes + self._succeed_failed(), [])

    def _do_chores(self) -> None:
        while self._chores:
            chore = self._chores[-1]
            now = self._clock.wall()
            due = [each for each in self._writers.values() if each.open and (chore.seal_all or each.is_old(now))]
            outcomes = [self._seal(writer) for writer in due]
            self._space.keep_reserve()
            if self.refusal and self._refusal(0) is None:
                outcomes += self._succeed_failed()
                if not any(writer.needs_successor for writer in self._writers.values()):
                    self._resume()
            self._report(outcomes, [chore.done])
            self._chores.pop()

    def _seal(self, writer: Writer) -> Outcome:
        if self._large and self._large.writer is writer:
            self._finish_large(self._large)
        outcome = Outcome(writer.kind.code)
        try:
            self._close(writer, outcome)
        except OSError as error:
            self._fail(writer, outcome, [], error)
        return outcome

    def _finish(self) -> None:
        """Mark every open segment as whole, so that a later start can tell damage from a torn end."""
        for writer in self._writers.values():
            try:
                writer.sync()
                segment = writer.open
                if segment is not None and segment.length > segment.marked:
                    self._commit += 1
                    now = self._clock.wall()
                    mark = self._record(writer, Kind.MARK, TopicId(bytes(16)), b"", now, Offset(0))
                    writer.write([mark], sync=True)
                    segment.marked = segment.length
                writer.finish()
            except OSError as error:
                logger.error("log.not_marked", reason=error.strerror)
                writer.abandon()


def _by_class(group: Appends) -> Mapping[int, Appends]:
    codes = {topic.kind.code for topic in group}
    if len(codes) == 1:
        return {codes.pop(): group}
    return {code: {topic: group[topic] for topic in group if topic.kind.code == code} for code in codes}


def _all(appends: Appends) -> Iterable[Append]:
    return chain.from_iterable(appends.values())


def _open(writer: Writer) -> Open:
    assert writer.open is not None
    return writer.open
