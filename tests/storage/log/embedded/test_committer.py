"""The committer: pending works form one group, small ones first; a large append is stored whole or not at all."""

import asyncio
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.core.retention_clock import RetentionClock
from ams.storage.log.embedded import check
from ams.storage.log.embedded.catalog import Tail, TopicState
from ams.storage.log.embedded.committer import Committer, Space
from ams.storage.log.embedded.group_commit import Append, Chore, CommitOutcome, Control
from ams.storage.log.embedded.options import LogOptions, LogPlace
from ams.storage.log.embedded.record import RecordKind, decode_header
from ams.storage.log.embedded.recovery import recover
from ams.storage.log.embedded.segment import CLASSES, HEAD_BYTES, Spares, Writer, seed_of
from simulation.unreliable_disk import UnreliableDisk
from tests.storage.log.engines import HOUR, Embedded, all_fragments, fragments, make_messages, new_topic, texts
from tests.support.clock import ManualClock


class ReportingCommitter:
    """A committer that runs to its end on this thread, and its reports."""

    def __init__(self, disk: UnreliableDisk, **options) -> None:
        self.disk = disk
        for kind in CLASSES:
            disk.make_folder(f"/log/{kind.name}")
        self.clock = ManualClock()
        settings = LogOptions(min_free_bytes=0, reserve_bytes=0, **options)
        place = LogPlace("/log", disk, self.clock, RetentionClock(self.clock), settings)
        sequences, spares = count(1), Spares(place)
        self.writers = {kind.code: Writer(kind, place, sequences, spares) for kind in CLASSES}
        self.outcomes: list[CommitOutcome] = []
        self.done: list[asyncio.Future[None]] = []
        self.committer = Committer(self.writers, Space(place, spares), place, 0, self._tell)

    def _tell(self, outcomes, done) -> None:
        self.outcomes += outcomes
        self.done += done

    def run(self, *works: Append | Control | Chore) -> list[list[Append]]:
        self.committer.submit(*works, None)
        self.committer.run()
        groups = [outcome.shares for outcome in self.outcomes if outcome.shares]
        return [[append for share in group for append in share.appends] for group in groups]


def topic(number: int, kind: int = 2) -> TopicState:
    return TopicState(bytes([number]) * 16, None, CLASSES[kind])


def append(state: TopicState, size: int = 10) -> Append:
    return Append(state, [b"x" * size], size, size, None)


def test_what_waits_is_one_group_with_one_sync() -> None:
    told = ReportingCommitter(UnreliableDisk())
    works = [append(topic(number % 5)) for number in range(50)]
    before = told.disk.changes

    (group,) = told.run(*works)

    assert {id(each) for each in group} == {id(each) for each in works}
    making, group_write_and_sync, mark_write_and_sync = 4, 2, 2
    assert told.disk.changes - before == making + group_write_and_sync + mark_write_and_sync


def test_a_group_is_no_larger_than_allowed_but_one_append_always_fits() -> None:
    told = ReportingCommitter(UnreliableDisk(), group_bytes=1000)
    state = topic(1)
    groups = told.run(*(append(state, size) for size in (400, 400, 400, 5000, 400)))
    assert [[each.size for each in group] for group in groups] == [[400, 400], [400], [5000], [400]]


def test_topics_take_turns_so_that_a_busy_one_does_not_keep_others_waiting() -> None:
    told = ReportingCommitter(UnreliableDisk(), group_bytes=1000)
    busy, quiet = topic(1), topic(2)
    works = [append(busy, 400) for _ in range(10)]
    last = append(quiet, 400)

    groups = told.run(*works, last)

    assert last in groups[0]
    assert [each for group in groups for each in group if each is not last] == works


def test_appends_and_controls_of_a_topic_keep_their_order() -> None:
    told = ReportingCommitter(UnreliableDisk())
    state = topic(1)
    before, after = append(state), append(state)

    told.run(before, Control(RecordKind.RETENTION, state, None, 1000), after)

    assert [(each.code, bool(each.shares), bool(each.controls)) for each in told.outcomes] == [
        (2, True, False), (0, False, True), (0, True, False),
    ]  # fmt: skip
    assert state.kind == CLASSES[0]


def test_controls_of_many_topics_share_a_sync_and_those_of_one_are_done_one_after_the_other() -> None:
    told = ReportingCommitter(UnreliableDisk())
    states = [topic(number) for number in range(50)]
    told.run(*[Control(RecordKind.RETENTION, each, None, age) for age in (1000, 10**9, 1000) for each in states])

    assert [(each.code, len(each.controls)) for each in told.outcomes if each.controls] == [(0, 50), (3, 50), (0, 50)]
    assert {each.kind for each in states} == {CLASSES[0]}


def test_topics_of_two_classes_fail_and_succeed_apart() -> None:
    told = ReportingCommitter(UnreliableDisk())
    told.disk.fail("sync", where="/1h/", times=10**6)
    week, hour = append(topic(1)), append(topic(2, kind=0))

    assert told.run(week, hour) == [[week]]
    assert [work for outcome in told.outcomes for work in outcome.failed] == [hour]


def test_a_defect_fails_its_group_and_not_the_committer() -> None:
    told = ReportingCommitter(UnreliableDisk(), group_bytes=1)
    state = topic(1)
    state.tail = Tail(-1)
    broken, good = append(state), append(topic(2))

    groups = told.run(broken, good)

    assert [work for outcome in told.outcomes for work in outcome.failed] == [broken]
    assert groups == [[good]]


async def test_commits_are_numbered_without_repetition_over_restarts(engine: Embedded) -> None:
    for _ in range(3):
        async with engine.open_log() as log:
            topic = await new_topic(log)
            await log.append(topic, texts("a"))
            await asyncio.gather(*(log.append(topic, make_messages(n, 1)) for n in range(5)))

    (path,) = engine.disk.paths(".log")
    content, position, commits = engine.disk.content(path), HEAD_BYTES, []
    while position < len(content):
        header = decode_header(content, seed_of(1), position)
        assert header is not None
        commits.append(header.commit)
        position += header.size
    assert len(commits) >= 9
    assert commits == sorted(set(commits))


def test_small_appends_go_before_large_ones_and_wait_for_one_of_them_at_most() -> None:
    told = ReportingCommitter(UnreliableDisk(), group_bytes=1000)
    large = [append(topic(number), 5000) for number in range(4)]
    groups = told.run(*large, *[append(topic(10 + number), 400) for number in range(4)])
    assert [[each.size for each in group] for group in groups] == [[400] * 2, [5000], [400] * 2, *[[5000]] * 3]


GROUP = 2000
LARGE_BYTES = 10 * GROUP


def large_append(number: int) -> Append:
    large = append(topic(number), LARGE_BYTES)
    large.fragments = [b"x" * 1000] * 20
    return large


def told_in_between(works: list[Append | Control | Chore], first: Append) -> ReportingCommitter:
    """Return a committer that gets one more work with each write from the second on."""
    told = ReportingCommitter(UnreliableDisk(), group_bytes=GROUP)
    state = {"writes": 0}

    def bring() -> None:
        state["writes"] += 1
        if works and state["writes"] > 4:  # a segment is made, and a first slice is written
            told.committer.submit(works.pop(0))

    told.disk.during_sync = bring
    told.run(first)
    return told


def list_works(told: ReportingCommitter) -> list[object]:
    """Return the stored works in their order: appends by the first byte of their topics, controls by their kind."""
    found: list[object] = []
    for outcome in told.outcomes:
        found += [each.topic.id[0] for share in outcome.shares for each in share.appends]
        found += [control.kind for control in outcome.controls]
    return found


def test_others_are_committed_between_the_slices_of_a_large_append_and_what_its_topic_is_asked_waits_for_it() -> None:
    large = large_append(1)
    after, other = append(large.topic, 100), topic(2)

    works = [Control(RecordKind.OLDEST, large.topic, None), after, *(append(other, 100) for _ in range(3))]
    assert list_works(told_in_between(works, large)) == [2, 2, 2, 1, RecordKind.OLDEST, 1]
    assert (large.answer.first, after.answer.first) == (0, 20)


def test_a_large_append_is_finished_first_when_a_group_does_not_fit_into_its_gap() -> None:
    assert list_works(told_in_between([append(topic(2), 100), append(topic(3), GROUP)], large_append(1))) == [2, 1, 3]


def test_a_segment_is_sealed_after_the_large_append_that_is_on_its_way_to_it() -> None:
    told = told_in_between([Chore(None, seal_all=True)], large_append(1))

    [stored] = [place for place, outcome in enumerate(told.outcomes) if outcome.shares]
    [sealed] = [place for place, outcome in enumerate(told.outcomes) if outcome.closed]
    assert stored < sealed
    assert told.done == [None]


def check_found(told: ReportingCommitter) -> None:
    """Check that a start finds every answered work without gaps, and nothing else."""
    ends: dict[bytes, int] = {}
    for share in (share for outcome in told.outcomes for share in outcome.shares):
        for each in share.appends:
            assert each.answer.first == ends.get(each.topic.id, 0)
            ends[each.topic.id] = each.answer.first + len(each.fragments)
    told.disk.heal()
    assert {each: state.end for each, state in recover(told.disk, "/log", LogOptions()).topics.items()} == ends


WORKS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4), st.sampled_from([100, 100, GROUP, LARGE_BYTES])),
        st.tuples(st.just("retention"), st.integers(1, 4), st.sampled_from([HOUR, 24 * HOUR])),
        st.tuples(st.just("seal"), st.booleans()),
    ),
    max_size=12,
)
PASSES = st.lists(st.sampled_from([0, 50, HOUR // 8, -HOUR, -24 * HOUR, 21 * HOUR]), max_size=20)
"""Milliseconds that pass within a call; negative ones, and those above an hour, set the clock."""


def work_of(topics: list[TopicState], what: str, *arguments: int) -> Append | Control | Chore:
    if what == "seal":
        return Chore(None, seal_all=bool(arguments[0]))
    state = topics[arguments[0]]
    if what == "retention":
        return Control(RecordKind.RETENTION, state, None, arguments[1])
    made = append(state, arguments[1])
    made.fragments = [b"x" * 100] * (arguments[1] // 100)
    return made


@settings(max_examples=200)
@given(WORKS, PASSES, PASSES, st.none() | st.integers(4, 30))
def test_whatever_time_passes_within_calls_what_was_answered_is_found(works, in_syncs, in_questions, fails_after):
    topics = [topic(number, kind=0) for number in range(5)]
    left = [work_of(topics, *each) for each in works]
    told = ReportingCommitter(UnreliableDisk(), group_bytes=GROUP)
    if fails_after is not None:
        told.disk.fail("write", after=fails_after, where=".log")

    def let_pass(milliseconds: int) -> None:
        (told.clock.advance if 0 <= milliseconds < HOUR else told.clock.step)(milliseconds)

    def during_sync() -> None:
        let_pass(in_syncs.pop(0) if in_syncs else 50)
        if left and told.disk.changes > 20:
            told.committer.submit(left.pop(0))

    told.disk.during_sync = during_sync
    told.disk.during_question = lambda: let_pass(in_questions.pop(0) if in_questions else 0)

    told.run(append(topics[0], 100), work_of(topics, "append", 1, LARGE_BYTES))

    failed = [each for outcome in told.outcomes for each in outcome.failed]
    assert fails_after is not None or not failed
    check_found(told)


@pytest.mark.parametrize("after", range(2, 14))
@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_call_that_fails_fails_the_large_append_whole_and_what_waits_goes_on(call: str, after: int) -> None:
    large, other = large_append(1), topic(2)
    later, others = append(large.topic, 100), [append(other, 100) for _ in range(3)]
    told = ReportingCommitter(UnreliableDisk(), group_bytes=GROUP)
    told.disk.fail(call, after=after, where=".log")

    told.run(large, later, *others)

    stored = [each for outcome in told.outcomes for share in outcome.shares for each in share.appends]
    failed = [each for outcome in told.outcomes for each in outcome.failed]
    assert {id(each) for each in (*stored, *failed)} == {id(each) for each in (large, later, *others)}
    assert len(stored) + len(failed) == 5
    check_found(told)


async def test_what_is_left_of_the_gap_is_a_mark_and_everything_is_found_again() -> None:
    engine = Embedded(options={"segment_bytes": 100_000, "group_bytes": GROUP})
    async with engine.open_log() as log:
        one, two = await new_topic(log), await new_topic(log)
        sent = make_messages(0, 20, size=1000)
        await asyncio.gather(log.append(one, sent, key="k"), log.append(two, make_messages(0, 1)))
        await log.append(two, make_messages(1, 1))
        assert (await log.append(one, sent, key="k")).first == 0
    report = check(engine.folder, files=engine.disk)
    assert (report.damage, report.torn, report.messages) == ((), (), 22)
    async with engine.open_log() as log:
        assert (log.trimmed, log.damage) == ((), ())
        assert await all_fragments(log, one) == fragments(sent)
        assert (await log.append(one, sent, key="k")).first == 0
        assert (await log.append(one, make_messages(20, 1))).first == 20
