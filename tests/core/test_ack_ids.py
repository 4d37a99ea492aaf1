import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.ack_ids import AckId, AckIds, HandOutId, ack_ids_of, identity_of, read_hand_out, slices_of, without
from ams.core.errors import InvalidInput
from ams.core.names import Offset, SubscriptionId, ack_prefix

PREFIX = ack_prefix("P", "S")
OFFSETS = st.integers(0, 10**18 - 1)
NUMBERS = st.integers(0, 10**18 - 1)
HAND_OUTS = st.builds(HandOutId, st.integers(1, 10**9 - 1), NUMBERS, NUMBERS, NUMBERS, st.just("9f3c21"))


@given(st.lists(st.tuples(OFFSETS, HAND_OUTS), min_size=1, max_size=20))
def test_ids_are_read_as_they_were_written(named: list[tuple[int, HandOutId]]) -> None:
    found = ack_ids_of(PREFIX, [f"{PREFIX}{offset}-{hand_out.text}" for offset, hand_out in named])
    read = [(offset, read_hand_out(text)) for text, offsets in found.items() for offset in offsets]
    assert sorted(read) == sorted(named)


FEW = st.integers(0, 9).map(Offset)


@given(st.dictionaries(st.text(), st.lists(FEW, min_size=1, max_size=12), max_size=8), st.integers(1, 9))
def test_slices_have_all_ids_in_their_order_and_none_is_in_two(ids: AckIds, most: int) -> None:
    def named(some: AckIds) -> list[tuple[str, Offset]]:
        return [(text, offset) for text, offsets in some.items() for offset in offsets]

    slices = [list(dict.fromkeys(named(each))) for each in slices_of(ids, most)]

    assert [each for slice_ in slices for each in slice_] == list(dict.fromkeys(named(ids)))
    assert all(len(named(each)) <= most for each in slices_of(ids, most))
    assert len(named(ids)) // most <= len(slices) <= -(-len(named(ids)) // most)


@given(st.dictionaries(st.sampled_from("abc"), st.lists(FEW, min_size=1, max_size=12)), st.data())
def test_ids_without_some_are_the_others_in_their_order(ids: AckIds, data: st.DataObject) -> None:
    every = [AckId(offset, text) for text, offsets in ids.items() for offset in offsets]
    some = data.draw(st.sets(st.sampled_from(every))) if every else set()

    kept = without(ids, some)

    left = [AckId(offset, text) for text, offsets in kept.items() for offset in offsets]
    assert left == [each for each in every if each not in some]
    assert all(kept.values())


@pytest.mark.parametrize(
    "bad",
    [
        "17-1.0.4.208.9f3c21",
        "projects/P/subscriptions/T:17-1.0.4.208.9f3c21",
        PREFIX,
        PREFIX + "17",
        PREFIX + "-1.0.4.208.9f3c21",
        PREFIX + "x-1.0.4.208.9f3c21",
        PREFIX + "+7-1.0.4.208.9f3c21",
        PREFIX + "١٧-1.0.4.208.9f3c21",
        PREFIX + "1" * 19 + "-1.0.4.208.9f3c21",
        PREFIX + "17-" + "1" * 401,
    ],
)
def test_what_is_no_id_of_the_subscription_is_refused(bad: str) -> None:
    good = PREFIX + "17-1.0.4.208.9f3c21"
    for ids in ([bad], [good, bad], [bad, good]):
        with pytest.raises(InvalidInput, match="^Invalid ack id$"):
            ack_ids_of(PREFIX, ids)


@pytest.mark.parametrize(
    "bad", ["", "1.0.4.208", "1.0.4.208.9f3c2", "-1.0.4.208.9f3c21", "1.0.4.208.9F3C21", "a.b.c.d.e"]
)
def test_what_is_no_hand_out_is_refused(bad: str) -> None:
    with pytest.raises(InvalidInput, match="^Invalid ack id$"):
        read_hand_out(bad)


def test_an_id_is_short_enough_for_a_thousand_in_a_request() -> None:
    longest = HandOutId(10**9 - 1, 10**18 - 1, 10**18 - 1, 10**18 - 1, identity_of(SubscriptionId("9f3c21aa-1")))
    assert len(ack_prefix("p" * 100, "s" * 100)) + 18 + len(longest.text) < 400
