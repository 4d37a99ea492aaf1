"""Large appends: written in slices, others in between, and in the log whole or not at all."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.storage.log.embedded import check
from ams.storage.log.embedded.group_commit import Append, Chore, Control
from ams.storage.log.embedded.options import LogOptions
from ams.storage.log.embedded.record import HEADER_BYTES, Kind
from ams.storage.log.embedded.recovery import recover
from ams.storage.log.embedded.topic import TopicState
from tests.storage.log.embedded.test_committer import Told, append, topic
from tests.storage.log.engines import HOUR, Embedded, all_fragments, fragments, new_topic, numbered
from tests.support.unreliable_disk import UnreliableDisk

GROUP = 2000
LARGE = 10 * GROUP


def engine_with_small_groups() -> Embedded:
    return Embedded(options={"segment_bytes": 100_000, "group_bytes": GROUP})


def large_append(number: int) -> Append:
    """Return an append of 20 messages to a topic of this number."""
    large = append(topic(number), LARGE)
    large.fragments = [b"x" * 1000] * 20
    return large


def told_in_between(works: list[Append | Control | Chore], *first: Append | Control, **options: int) -> Told:
    """Return a committer to which, from the second write on, each write brings one more work."""
    told = Told(UnreliableDisk(), group_bytes=GROUP, **options)
    state = {"writes": 0}

    def bring() -> None:
        state["writes"] += 1
        if works and state["writes"] > 4:  # a segment is made, and a first slice is written
            told.committer.submit(works.pop(0))

    told.disk.during_sync = bring
    told.run(*first)
    return told


def order(told: Told) -> list[object]:
    """Return what was stored, in its order: appends by the first byte of their topics, controls by their kind."""
    found: list[object] = []
    for outcome in told.outcomes:
        found += [each.topic.id[0] for share in outcome.shares for each in share.appends]
        found += [control.kind for control in outcome.controls]
    return found


def test_groups_of_others_are_committed_between_the_slices_of_a_large_append():
    large, other = large_append(1), topic(2)

    told = told_in_between([append(other, 100) for _ in range(3)], large)

    assert order(told) == [2, 2, 2, 1]
    assert large.topic.tail.end == 20


def test_what_is_asked_for_the_topic_of_a_large_append_waits_for_it():
    large = large_append(1)
    after, other = append(large.topic, 100), append(topic(2), 100)

    told = told_in_between([Control(Kind.OLDEST, large.topic, None), after, other], large)

    assert order(told) == [2, 1, Kind.OLDEST, 1]
    assert (large.answer.first, after.answer.first) == (0, 20)


def test_a_large_append_is_finished_first_when_a_group_does_not_fit_into_its_gap():
    told = told_in_between([append(topic(2), 100), append(topic(3), GROUP)], large_append(1))

    assert order(told) == [2, 1, 3]


def test_a_segment_is_sealed_after_the_large_append_that_is_on_its_way_to_it():
    told = told_in_between([Chore(None, seal_all=True)], large_append(1))

    [stored] = [place for place, outcome in enumerate(told.outcomes) if outcome.shares]
    [sealed] = [place for place, outcome in enumerate(told.outcomes) if outcome.closed]
    assert stored < sealed
    assert told.done == [None]


def told_with_question(question: Callable[[Told], None]) -> tuple[Told, Append]:
    """Return a committer that a large append met, and others between its slices, and the large append.

    `question` is called once, when free space is asked for so that one of the others may be stored.
    """
    large, other = large_append(1), topic(2)
    small = [append(other, 100) for _ in range(3)]
    told = Told(UnreliableDisk(), group_bytes=GROUP)
    state = {"syncs": 0, "asked": 0}

    def during_sync() -> None:
        state["syncs"] += 1
        told.clock.advance(50)  # free space is asked for with every group
        if small and state["syncs"] > 6:
            told.committer.submit(small.pop(0))

    def during_question() -> None:
        state["asked"] += 1
        if state["asked"] == 3:  # after those of the first append and the large one
            question(told)

    told.disk.during_sync, told.disk.during_question = during_sync, during_question
    told.run(append(topic(3), 100), large)
    assert state["asked"] >= 3
    return told, large


def check_found(told: Told) -> None:
    """What was answered is what a start finds, without a gap and with nothing else."""
    ends: dict[bytes, int] = {}
    for share in (share for outcome in told.outcomes for share in outcome.shares):
        for each in share.appends:
            assert each.answer.first == ends.get(each.topic.id, 0)
            ends[each.topic.id] = each.answer.first + len(each.fragments)
    told.disk.heal()
    found = recover(told.disk, "/log", LogOptions())
    assert {each: state.end for each, state in found.topics.items()} == ends


@pytest.mark.parametrize("hours", [21, 24 * 365, -24])
def test_a_clock_that_moves_while_a_group_is_made_ready_closes_no_segment_under_a_large_append(hours: int):
    told, large = told_with_question(lambda told: told.clock.step(hours * HOUR))

    assert sorted(order(told)) == [1, 2, 2, 2, 3]
    assert not any(outcome.failed for outcome in told.outcomes)
    assert large.topic.tail.end == 20
    check_found(told)


def test_a_large_append_whose_segment_was_closed_under_it_is_refused():
    told, large = told_with_question(lambda told: told.writers[2].finish())

    assert order(told) == [3, 2]
    assert [each for outcome in told.outcomes for each in outcome.failed] == [large]
    check_found(told)


WORKS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4), st.sampled_from([100, 100, GROUP, LARGE])),
        st.tuples(st.just("retention"), st.integers(1, 4), st.sampled_from([HOUR, 24 * HOUR])),
        st.tuples(st.just("seal"), st.booleans()),
    ),
    max_size=12,
)
PASSES = st.lists(st.sampled_from([0, 50, HOUR // 8, -HOUR]), max_size=20)
"""Milliseconds by which time passes within a call; below 0 the clock is set back."""


def work_of(topics: list[TopicState], what: str, *arguments: int) -> Append | Control | Chore:
    if what == "seal":
        return Chore(None, seal_all=bool(arguments[0]))
    state = topics[arguments[0]]
    if what == "retention":
        return Control(Kind.RETENTION, state, None, arguments[1])
    made = append(state, arguments[1])
    made.fragments = [b"x" * 100] * (arguments[1] // 100)
    return made


@settings(max_examples=200)
@given(WORKS, PASSES, PASSES, st.none() | st.integers(4, 30))
def test_whatever_time_passes_within_calls_what_was_answered_is_found(works, in_syncs, in_questions, fails_after):
    topics = [topic(number, kind=0) for number in range(5)]
    left = [work_of(topics, *each) for each in works]
    told = Told(UnreliableDisk(), group_bytes=GROUP)
    if fails_after is not None:
        told.disk.fail("write", after=fails_after, where=".log")

    def let_pass(milliseconds: int) -> None:
        if milliseconds < 0:
            told.clock.step(milliseconds)
        else:
            told.clock.advance(milliseconds)

    def during_sync() -> None:
        let_pass(in_syncs.pop(0) if in_syncs else 50)
        if left and told.disk.changes > 20:
            told.committer.submit(left.pop(0))

    told.disk.during_sync = during_sync
    told.disk.during_question = lambda: let_pass(in_questions.pop(0) if in_questions else 0)

    told.run(append(topics[0], 100), work_of(topics, "append", 1, LARGE))

    failed = [each for outcome in told.outcomes for each in outcome.failed]
    assert fails_after is not None or not failed
    check_found(told)


@pytest.mark.parametrize("after", range(2, 14))
@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_call_that_fails_fails_the_large_append_whole_and_what_waits_goes_on(call: str, after: int):
    large, other = large_append(1), topic(2)
    later, others = append(large.topic, 100), [append(other, 100) for _ in range(3)]
    told = Told(UnreliableDisk(), group_bytes=GROUP)
    told.disk.fail(call, after=after, where=".log")

    told.run(large, later, *others)

    stored = [each for outcome in told.outcomes for share in outcome.shares for each in share.appends]
    failed = [each for outcome in told.outcomes for each in outcome.failed]
    assert {id(each) for each in (*stored, *failed)} == {id(each) for each in (large, later, *others)}
    assert len(stored) + len(failed) == 5
    check_found(told)


async def test_what_is_left_of_the_gap_is_a_mark_and_everything_is_found_again():
    engine = engine_with_small_groups()
    async with engine.opened() as log:
        one, two = await new_topic(log), await new_topic(log)
        sent = numbered(0, 20, size=1000)
        await asyncio.gather(log.append(one, sent, key="k"), log.append(two, numbered(0, 1)))
        await log.append(two, numbered(1, 1))
        assert (await log.append(one, sent, key="k")).first == 0
    report = check(engine.folder, files=engine.disk)
    assert (report.damage, report.torn, report.messages) == ((), (), 22)
    async with engine.opened() as log:
        assert (log.recovered.trimmed, log.recovered.damage) == ((), ())
        assert await all_fragments(log, one) == fragments(sent)
        assert (await log.append(one, sent, key="k")).first == 0
        assert (await log.append(one, numbered(20, 1))).first == 20


def test_the_gap_is_large_enough_for_the_mark_that_closes_it():
    told = Told(UnreliableDisk(), group_bytes=1)
    large = append(topic(1), 3)

    assert told.run(large) == [[large]]
    assert told.outcomes[-1].length == 128 + HEADER_BYTES + HEADER_BYTES + 12 + 4 + 3
