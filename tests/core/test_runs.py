"""Messages as runs are the same messages."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.clock import Milliseconds
from ams.core.messages import Fragment, Stored, batch_of, message
from ams.core.names import Offset
from ams.core.runs import Columns, Run, Runs, runs_of, sizes

KEYED = b'"orderingKey":"k","data":""'


def made(first: int, time: int, fragments: list[bytes]) -> Run:
    return Run.of(Offset(first), Milliseconds(time), [Fragment(each) for each in fragments])


FRAGMENTS = st.sampled_from([b"", b'"data":"aGk="', b'"attributes":{"a":"b"},"data":""', KEYED])


@st.composite
def runs(draw: st.DrawFn) -> list[Run]:
    """Runs in offset order, with and without holes and new times between them."""
    found: list[Run] = []
    first, time = draw(st.integers(0, 100)), draw(st.integers(0, 100))
    for fragments in draw(st.lists(st.lists(FRAGMENTS, min_size=1, max_size=5), max_size=5)):
        found.append(made(first, time, fragments))
        first += len(fragments) + draw(st.integers(0, 2))
        time += draw(st.integers(0, 2))
    return found


@given(runs())
def test_runs_are_the_sequence_of_their_messages(given: list[Run]) -> None:
    messages = Runs(given)
    listed = [
        Stored(Offset(run.first + number), run.time, each)
        for run in given
        for number, each in enumerate(run.fragments)
    ]  # fmt: skip

    assert list(messages) == listed == messages
    assert (len(messages), bool(messages)) == (len(listed), bool(listed))
    for place in range(-len(listed), len(listed)):
        assert messages[place] == listed[place]
    for place in (len(listed), -len(listed) - 1):
        with pytest.raises(IndexError):
            messages[place]
    assert messages[1:3] == listed[1:3]
    assert runs_of(messages) is given


@given(runs(), st.integers(0, 25))
def test_columns_are_the_sequence_of_their_messages(given: list[Run], cut: int) -> None:
    listed = list(Runs(given))
    messages = Columns.of(listed)

    assert list(messages) == listed == messages
    assert Columns.of(messages) is messages
    assert [messages[place] for place in range(-len(listed), len(listed))] == listed * 2
    first, rest = messages[:cut], messages[cut:]
    first.extend(rest)
    assert first == messages == listed


@given(runs())
def test_single_messages_are_put_together_to_the_longest_runs(given: list[Run]) -> None:
    found = runs_of(list(Runs(given)))

    assert Runs(found) == Runs(given)
    assert all(run.size == sum(map(len, run.fragments)) for run in found)
    assert all(run.has_ordering_keys == (KEYED in run.fragments) for run in found)
    for before, after in pairwise(found):
        assert before.end < after.first or before.time < after.time


@given(st.lists(FRAGMENTS, min_size=1, max_size=9), st.data())
def test_a_part_of_a_run_is_what_fits_but_one_message_at_least(fragments: list[bytes], data: st.DataObject) -> None:
    skip = data.draw(st.integers(0, len(fragments) - 1))
    most, room = data.draw(st.integers(1, 10)), data.draw(st.integers(0, 60))

    part = made(7, 1, fragments).part(Offset(7 + skip), most, room)

    assert part[:4] == made(7 + skip, 1, fragments[skip : skip + len(part.fragments)])[:4]
    assert part.has_ordering_keys == (KEYED in fragments)
    assert 1 <= len(part.fragments) <= most
    assert part.size <= room or len(part.fragments) == 1
    more = fragments[skip : skip + len(part.fragments) + 1]
    assert len(more) in (len(part.fragments), most + 1) or sum(map(len, more)) > room


def test_sizes_are_those_of_all_messages() -> None:
    messages = [message("aGk=", {"k": "v"}), message("aGV5")]
    stored = [Stored(Offset(5 * number), Milliseconds(1), each.fragment) for number, each in enumerate(messages)]

    assert sizes(stored) == (sum(len(each.fragment) for each in messages), batch_of(messages).data_bytes)
