"""What an open log holds, on the event loop: its topics and where their messages are; and how commits change it."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from ams.core.clock import Milliseconds
from ams.core.errors import LogUnavailable, OutcomeUnknown
from ams.core.names import Offset, TopicId
from ams.storage.log.embedded.catalog import Segment, SegmentCatalog
from ams.storage.log.embedded.classes import CLASSES
from ams.storage.log.embedded.entries import Answered, SegmentEntries
from ams.storage.log.embedded.index import Row
from ams.storage.log.embedded.record import Kind
from ams.storage.log.embedded.segment import HEAD_BYTES, index_path
from ams.storage.log.embedded.topic import TopicState
from ams.storage.log.embedded.work import Append, Closed, Control, Outcome


@dataclass(slots=True)
class Holdings:
    """Topics, segments, and appends under way."""

    folder: str
    topics: dict[TopicId, TopicState]
    catalog: SegmentCatalog
    commit: int
    """The last commit applied here."""
    table: str | None
    """Path of the index file with the newest table of topics."""
    keys: dict[bytes, "asyncio.Future[None]"] = field(default_factory=dict)
    """By key hash: completes when the append with this key, under way now, has its answer."""
    creating: dict[TopicId, "asyncio.Future[None]"] = field(default_factory=dict)
    """Topics whose creation is under way."""
    unsealed: list[Segment] = field(default_factory=list)
    """Segments that will not grow any more and have no index file yet, oldest first."""

    def apply(self, outcome: Outcome) -> None:
        """Make what the committer did visible: ends, places, answers."""
        if outcome.begun is not None:
            self._begin(outcome)
        if outcome.records:
            self._place(outcome)
        if outcome.sequence:
            self.catalog.by_sequence[outcome.sequence].length = outcome.length
        if outcome.answers:
            self._answer(outcome)
        if outcome.controls:
            self._note_time(outcome)
        for control in outcome.controls:
            self._obey(control)
        for work in outcome.failed:
            self._fail(work, OutcomeUnknown() if outcome.in_doubt else LogUnavailable())
        for closed in outcome.closed:
            self._close(closed)
        self.commit = max(self.commit, outcome.commit)

    def table_rows(self) -> tuple[int, list[Row]]:
        """Return what must outlive segments, for the thread that writes index files.

        The commit is read first: what is newer in the rows does no harm, what were older would.
        """
        commit = self.commit
        return commit, [topic.row() for topic in list(self.topics.values())]

    def forget_key(self, hashed: bytes) -> None:
        """Let those go on who wait for the append with this key."""
        gate = self.keys.pop(hashed, None)
        if gate is not None:
            gate.set_result(None)

    def _begin(self, outcome: Outcome) -> None:
        begun, kind = outcome.begun, CLASSES[outcome.code]
        assert begun is not None
        path = index_path(self.folder, kind, begun.sequence)
        self.catalog.add(Segment(kind, begun.sequence, begun.path, path, HEAD_BYTES, SegmentEntries()))

    def _place(self, outcome: Outcome) -> None:
        segment = self.catalog.by_sequence[outcome.sequence]
        assert segment.entries is not None
        add, bit = segment.entries.add, 1 << outcome.code
        for topic, first, time, messages, position, length in outcome.records:
            add(topic.id, first, time, messages, position, length)
            topic.end = Offset(first + messages)
            topic.classes |= bit
            if topic.waiter is not None:
                topic.wake()

    def _answer(self, outcome: Outcome) -> None:
        for append, appended in outcome.answers:
            if append.key:
                entries = self.catalog.by_sequence[outcome.sequence].entries
                assert entries is not None
                entries.add_key(append.topic.id, append.hashed, Answered(appended, append.content))
                self.forget_key(append.hashed)
            append.topic.decided()
            if not append.done.done():
                append.done.set_result(appended)

    def _note_time(self, outcome: Outcome) -> None:
        """Let a segment of creates only be as old as they are, and not older than every message."""
        entries = self.catalog.by_sequence[outcome.sequence].entries
        assert entries is not None
        entries.note_time(outcome.time)

    def _obey(self, control: Control) -> None:
        topic = control.topic
        if control.kind == Kind.CREATE:
            self.topics[topic.id] = topic
            del self.creating[topic.id]
        elif control.kind == Kind.DROP:
            self.topics.pop(topic.id, None)
            topic.wake()
        elif control.kind == Kind.RETENTION:
            topic.retention = control.retention
            topic.age_due = Milliseconds(0)
        if not control.done.done():
            control.done.set_result(None)

    def give_up(self, works: Iterable[Append | Control], *, is_known: bool = True) -> None:
        """Fail work that a part left which failed, and whatever waits for it; of what `is_known` nothing is stored."""
        for work in works:
            if not work.done.done():
                self._fail(work, LogUnavailable() if is_known else OutcomeUnknown())
        for hashed in list(self.keys):
            self.forget_key(hashed)
        for topic in self.topics.values():
            topic.give_up()

    def _fail(self, work: Append | Control, error: LogUnavailable) -> None:
        if isinstance(work, Append):
            work.topic.decided()
            if work.key:
                self.forget_key(work.hashed)
        elif work.kind == Kind.CREATE:
            self.creating.pop(work.topic.id, None)
        elif work.kind == Kind.DROP:
            work.topic.leaving = False
        if not work.done.done():
            work.done.set_exception(error)

    def _close(self, closed: Closed) -> None:
        segment = self.catalog.by_sequence[closed.sequence]
        segment.length, segment.closed = closed.length, True
        self.unsealed.append(segment)
