from hypothesis import given
from hypothesis import strategies as st

from ams.core.clock import Milliseconds
from ams.core.messages import Fragment, Stored
from ams.core.names import Offset
from ams.storage.log.kafka.reading.run import Run, Wish, memory_of


def stored(*offsets, size=10):
    return [Stored(Offset(offset), Milliseconds(1), Fragment(b"x" * size)) for offset in offsets]


messages = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), unique_by=lambda each: each[0]).map(
    lambda pairs: [Stored(Offset(o), Milliseconds(1), Fragment(b"x" * size)) for o, size in sorted(pairs)]
)


def wanted(found, max_messages, max_bytes):
    """What a read of `found` may answer, message by message."""
    chosen = []
    for each in found[:max_messages]:
        if chosen and sum(len(one.fragment) for one in [*chosen, each]) > max_bytes:
            break
        chosen.append(each)
    return chosen


@given(messages, st.integers(1, 12), st.integers(0, 100), st.lists(st.integers(0, 40), max_size=4))
def test_a_wish_takes_the_same_in_however_many_pieces(found, max_messages, max_bytes, cuts):
    wish = Wish(max_messages, max_bytes)
    begin = 0
    for cut in [*sorted(cuts), len(found)]:
        if not wish.full:
            wish.take(found[begin:cut])
        begin = max(begin, cut)
    assert wish.messages == wanted(found, max_messages, max_bytes)


@given(messages, st.integers(0, 61), st.integers(1, 12), st.integers(0, 100))
def test_a_run_gives_what_is_there_from_an_offset_and_says_where_to_go_on(found, start, max_messages, max_bytes):
    run = Run(Offset(0), Offset(61), list(found))
    wish = Wish(max_messages, max_bytes)
    next_ = run.fill(wish, Offset(start))
    rest = [each for each in found if each.offset >= start]
    assert wish.messages == wanted(rest, max_messages, max_bytes)
    assert [each for each in rest if each.offset < next_] == wish.messages
    assert next_ == 61 or wish.full


@given(messages, messages)
def test_a_run_grows_by_what_it_has_not(found, more):
    run = Run(Offset(0), Offset(30), [each for each in found if each.offset < 30])
    run.extend(Offset(61), [each for each in more if each.offset >= 20])
    expected = [each for each in found if each.offset < 30] + [each for each in more if each.offset >= 30]
    assert run.messages == expected
    assert (run.start, run.next, run.bytes) == (0, 61, memory_of(expected))


@given(messages, st.integers(0, 2000))
def test_a_run_keeps_its_newest_within_a_budget(found, most):
    run = Run(Offset(0), Offset(61), list(found))
    run.trim(most)
    assert run.bytes == memory_of(run.messages) <= most
    assert run.messages == found[len(found) - len(run.messages) :]
    assert all(each.offset >= run.start for each in run.messages)
    assert run.messages == found or run.start == found[-len(run.messages) - 1].offset + 1


def test_a_run_lets_go_of_what_is_no_longer_kept():
    run = Run(Offset(0), Offset(10), stored(1, 3, 5))
    run.drop_before(Offset(4))
    assert (run.start, run.next, run.messages, run.bytes) == (4, 10, stored(5), memory_of(stored(5)))
    run.drop_before(Offset(20))
    assert (run.start, run.next, run.messages, run.bytes) == (20, 20, [], 0)
