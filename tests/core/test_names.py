import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core import names
from ams.core.ack_ids import AckId, AckIds, HandOutId, ack_ids_of, exclude_ids, identity_of, read_hand_out, slice_ids
from ams.core.errors import InvalidInput

NAMES = st.from_regex(r"\A[a-zA-Z0-9_-]{1,255}\Z")


@given(NAMES)
def test_letters_digits_dashes_and_underscores_make_a_name(text: str) -> None:
    assert names.checked_name("topic", text) == text


@pytest.mark.parametrize("text", ["", "a b", "a/b", "a.b", "ä", "a\n", "a:publish", "x" * 256, "\u0661"])
def test_anything_else_is_refused_naming_the_variable(text: str) -> None:
    assert not names.is_name(text)
    with pytest.raises(InvalidInput, match="^Invalid topic name$"):
        names.checked_name("topic", text)


@given(st.from_regex(names.RESOURCE_NAME, fullmatch=True))
def test_what_clients_of_googles_may_call_a_topic_is_found(text: str) -> None:
    assert names.checked_resource_name("topic", text) == text
    assert names.topic_reference("P", f"projects/P/topics/{text}") == text
    assert names.is_name(text) or names.is_google_name(text)


@pytest.mark.parametrize(
    "text", ["a.", "a/b", "a@b.c", "a:b", "1.a", ".ab", "~ab", "goog.a", "GOOGle~", "ä.b", "a." * 128]
)
def test_what_nobody_may_call_a_topic_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="^Invalid topic name$"):
        names.checked_resource_name("topic", text)


@given(NAMES, NAMES, st.integers(0, 2**63 - 1))
def test_an_ack_id_gives_back_its_number(project: str, subscription: str, number: int) -> None:
    prefix = names.ack_prefix(project, subscription)
    assert names.ack_offset(prefix, f"{prefix}{number}") == number


@pytest.mark.parametrize("ack_id", [
    "", "projects/P/subscriptions/S:", "projects/P/subscriptions/S:x", "projects/P/subscriptions/other:1",
    "/projects/P/subscriptions/S:1", "projects/P/subscriptions/S:1.0", "projects/P/subscriptions/S:1 ",
    "projects/P/subscriptions/S:9223372036854775808", "projects/P/subscriptions/S:\u0661",
    "projects/P/subscriptions/S:--1",
    "projects/P/subscriptions/S:1_0", "projects/p/subscriptions/S:1",
])  # fmt: skip
def test_11_1_an_ack_id_of_another_shape_is_refused(ack_id: str) -> None:
    prefix = names.ack_prefix("P", "S")

    with pytest.raises(InvalidInput, match="^Invalid ack id$"):
        names.ack_offset(prefix, ack_id)
    for place in (0, 4, 9):
        among = [f"{prefix}{number}" for number in range(9)]
        with pytest.raises(InvalidInput, match="^Invalid ack id$"):
            names.ack_offsets(prefix, [*among[:place], ack_id, *among[place:]])


WRITTEN_NUMBERS = st.integers(-(2**63), 2**63 - 1).map(str) | st.integers(0, 99).map(lambda number: f"0{number}")


@given(
    st.lists(WRITTEN_NUMBERS | st.sampled_from(["", "+5", "\u0661", "1_0", "9" * 19, "x"]), max_size=12), st.booleans()
)
def test_many_ack_ids_are_read_as_each_of_them_is(numbers: list[str], one_of_another: bool) -> None:
    prefix = names.ack_prefix("P", "S")
    ids = [f"{prefix}{number}" for number in numbers]
    if one_of_another:
        ids.append(f"{names.ack_prefix('P', 'R')}7")
    try:
        expected = [names.ack_offset(prefix, each) for each in ids]
    except InvalidInput:
        with pytest.raises(InvalidInput, match="^Invalid ack id$"):
            names.ack_offsets(prefix, ids)
    else:
        assert names.ack_offsets(prefix, ids) == expected


@pytest.mark.parametrize("reference", [
    "projects/Q/topics/t", "/projects/P/topics/t", "projects/P/topic/t", "projects/P/topics/t/", "projects/P/topics",
    "project/P/topics/t", "projects/P/topics/a@b", "",
])  # fmt: skip
def test_a7_a_topic_reference_must_name_the_project_of_the_path(reference: str) -> None:
    assert names.topic_reference("P", "projects/P/topics/metric_data") == "metric_data"
    with pytest.raises(InvalidInput, match="^Invalid Topic name$"):
        names.topic_reference("P", reference)


def test_the_identity_of_a_topic_survives_being_written() -> None:
    topic = names.new_topic_id()
    assert names.topic_id(names.topic_id_text(topic)) == topic


PREFIX = names.ack_prefix("P", "S")
NUMBERS = st.integers(0, 10**18 - 1)
HAND_OUTS = st.builds(HandOutId, st.integers(1, 10**9 - 1), NUMBERS, NUMBERS, NUMBERS, st.just("9f3c21"))


@given(st.lists(st.tuples(st.integers(0, 10**18 - 1), HAND_OUTS), min_size=1, max_size=20))
def test_ids_are_read_as_they_were_written(named: list[tuple[int, HandOutId]]) -> None:
    found = ack_ids_of(PREFIX, [f"{PREFIX}{offset}-{hand_out.text}" for offset, hand_out in named])
    read = [(offset, read_hand_out(text)) for text, offsets in found.items() for offset in offsets]
    assert sorted(read) == sorted(named)


FEW = st.integers(0, 9).map(names.Offset)


@given(st.dictionaries(st.text(), st.lists(FEW, min_size=1, max_size=12), max_size=8), st.integers(1, 9))
def test_slices_have_all_ids_in_their_order_and_none_is_in_two(ids: AckIds, most: int) -> None:
    def ids_and_offsets(some: AckIds) -> list[tuple[str, names.Offset]]:
        return [(text, offset) for text, offsets in some.items() for offset in offsets]

    slices = [list(dict.fromkeys(ids_and_offsets(each))) for each in slice_ids(ids, most)]

    assert [each for slice_ in slices for each in slice_] == list(dict.fromkeys(ids_and_offsets(ids)))
    assert all(len(ids_and_offsets(each)) <= most for each in slice_ids(ids, most))
    assert len(ids_and_offsets(ids)) // most <= len(slices) <= -(-len(ids_and_offsets(ids)) // most)


@given(st.dictionaries(st.sampled_from("abc"), st.lists(FEW, min_size=1, max_size=12)), st.data())
def test_ids_without_some_are_the_others_in_their_order(ids: AckIds, data: st.DataObject) -> None:
    every = [AckId(offset, text) for text, offsets in ids.items() for offset in offsets]
    some = data.draw(st.sets(st.sampled_from(every))) if every else set()

    kept = exclude_ids(ids, some)

    left = [AckId(offset, text) for text, offsets in kept.items() for offset in offsets]
    assert left == [each for each in every if each not in some]
    assert all(kept.values())


@pytest.mark.parametrize("bad", [
    "17-1.0.4.208.9f3c21", "projects/P/subscriptions/T:17-1.0.4.208.9f3c21", PREFIX, PREFIX + "17",
    PREFIX + "-1.0.4.208.9f3c21", PREFIX + "x-1.0.4.208.9f3c21", PREFIX + "+7-1.0.4.208.9f3c21",
    PREFIX + "١٧-1.0.4.208.9f3c21", PREFIX + "1" * 19 + "-1.0.4.208.9f3c21", PREFIX + "17-" + "1" * 401,
])  # fmt: skip
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
    longest = HandOutId(10**9 - 1, 10**18 - 1, 10**18 - 1, 10**18 - 1, identity_of(names.SubscriptionId("9f3c21aa-1")))
    assert len(names.ack_prefix("p" * 100, "s" * 100)) + 18 + len(longest.text) < 400
