"""The committer: who waits together is written together, and nobody waits behind a busy topic."""

import asyncio
from itertools import count

from ams.core.clock import ManualClock
from ams.storage.log.embedded.committer import Committer, Space
from ams.storage.log.embedded.group_commit import Append, Chore, Control, Outcome
from ams.storage.log.embedded.options import LogOptions
from ams.storage.log.embedded.record import Kind, decode_header
from ams.storage.log.embedded.segment import CLASSES, HEAD_BYTES, Writer, seed_of
from ams.storage.log.embedded.spares import Spares
from ams.storage.log.embedded.topic import Tail, TopicState
from tests.storage.log.engines import Embedded, new_topic, numbered, texts
from tests.support.unreliable_disk import UnreliableDisk


class Told:
    """A committer that runs to its end on this thread, and what it told."""

    def __init__(self, disk: UnreliableDisk, **options) -> None:
        self.disk = disk
        for kind in CLASSES:
            disk.make_folder(f"/log/{kind.name}")
        settings = LogOptions(min_free_bytes=0, reserve_bytes=0, **options)
        sequences, spares = count(1), Spares(disk, settings)
        self.clock = clock = ManualClock()
        self.writers = writers = {
            kind.code: Writer(kind, "/log", disk, sequences, settings, spares) for kind in CLASSES
        }
        self.outcomes: list[Outcome] = []
        self.done: list[asyncio.Future[None]] = []
        space = Space(disk, "/log", clock, settings, spares)
        self.committer = Committer(writers, space, clock, settings, 0, self._tell)

    def _tell(self, outcomes, done) -> None:
        self.outcomes += outcomes
        self.done += done

    def run(self, *works: Append | Control | Chore) -> list[list[Append]]:
        """Do the works and return the groups in which appends were stored."""
        self.committer.submit(*works, None)
        self.committer.run()
        groups = [outcome.shares for outcome in self.outcomes if outcome.shares]
        return [[append for share in group for append in share.appends] for group in groups]


def topic(number: int, kind: int = 2) -> TopicState:
    return TopicState(bytes([number]) * 16, None, CLASSES[kind])


def append(state: TopicState, size: int = 10) -> Append:
    return Append(state, [b"x" * size], size, size, None)


def test_what_waits_is_one_group_with_one_sync():
    told = Told(UnreliableDisk())
    works = [append(topic(number % 5)) for number in range(50)]
    before = told.disk.changes

    (group,) = told.run(*works)

    assert {id(each) for each in group} == {id(each) for each in works}
    making, group_write_and_sync, mark_write_and_sync = 4, 2, 2
    assert told.disk.changes - before == making + group_write_and_sync + mark_write_and_sync


def test_a_group_is_no_larger_than_allowed_but_one_append_always_fits():
    told = Told(UnreliableDisk(), group_bytes=1000)
    state = topic(1)

    groups = told.run(*(append(state, size) for size in (400, 400, 400, 5000, 400)))

    assert [[each.size for each in group] for group in groups] == [[400, 400], [400], [5000], [400]]


def test_topics_take_turns_so_that_a_busy_one_does_not_keep_others_waiting():
    told = Told(UnreliableDisk(), group_bytes=1000)
    busy, quiet = topic(1), topic(2)
    works = [append(busy, 400) for _ in range(10)]
    last = append(quiet, 400)

    groups = told.run(*works, last)

    assert last in groups[0]
    assert [each for group in groups for each in group if each is not last] == works


def test_appends_and_controls_of_a_topic_keep_their_order():
    told = Told(UnreliableDisk())
    state = topic(1)
    before, after = append(state), append(state)

    told.run(before, Control(Kind.RETENTION, state, None, 1000), after)

    assert [(each.code, bool(each.shares), bool(each.controls)) for each in told.outcomes] == [
        (2, True, False),
        (0, False, True),
        (0, True, False),
    ]
    assert state.kind == CLASSES[0]


def test_controls_of_many_topics_share_a_sync():
    told = Told(UnreliableDisk())
    creates = [Control(Kind.CREATE, topic(number), None) for number in range(50)]

    told.run(*creates)

    assert [outcome.controls for outcome in told.outcomes if outcome.controls] == [creates]


def test_controls_of_one_topic_are_done_one_after_the_other():
    told = Told(UnreliableDisk())
    state, other = topic(1), topic(2)
    controls = [Control(Kind.RETENTION, each, None, age) for age in (1000, 10**9, 1000) for each in (state, other)]

    told.run(*controls)

    assert [outcome.code for outcome in told.outcomes if outcome.controls] == [0, 3, 0]
    assert state.kind == other.kind == CLASSES[0]


def test_topics_of_two_classes_fail_and_succeed_apart():
    told = Told(UnreliableDisk())
    told.disk.fail("sync", where="/1h/", times=10**6)
    week, hour = append(topic(1)), append(topic(2, kind=0))

    groups = told.run(week, hour)

    assert groups == [[week]]
    assert [work for outcome in told.outcomes for work in outcome.failed] == [hour]


def test_a_defect_fails_its_group_and_not_the_committer():
    told = Told(UnreliableDisk(), group_bytes=1)
    state = topic(1)
    state.tail = Tail(-1)
    broken, good = append(state), append(topic(2))

    groups = told.run(broken, good)

    assert [work for outcome in told.outcomes for work in outcome.failed] == [broken]
    assert groups == [[good]]


async def test_commits_are_numbered_without_repetition_over_restarts(engine: Embedded):
    for _ in range(3):
        async with engine.opened() as log:
            topic = await new_topic(log)
            await log.append(topic, texts("a"))
            await asyncio.gather(*(log.append(topic, numbered(n, 1)) for n in range(5)))

    (path,) = engine.disk.paths(".log")
    content, position, commits = engine.disk.content(path), HEAD_BYTES, []
    while position < len(content):
        header = decode_header(content, seed_of(1), position)
        assert header is not None
        commits.append(header.commit)
        position += header.size
    assert len(commits) >= 9
    assert commits == sorted(set(commits))


def test_small_appends_go_before_large_ones_and_wait_for_one_of_them_at_most():
    told = Told(UnreliableDisk(), group_bytes=1000)
    large = [append(topic(number), 5000) for number in range(4)]
    small = [append(topic(10 + number), 400) for number in range(4)]

    groups = told.run(*large, *small)

    kinds = ["large" if group[0].fragments[0].startswith(b"x" * 5000) else "small" for group in groups]
    assert kinds == ["small", "large", "small", "large", "large", "large"]
    assert [len(group) for group in groups] == [2, 1, 2, 1, 1, 1]
