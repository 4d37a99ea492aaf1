import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import InvalidInput
from ams.core.names import (
    ack_offset,
    ack_offsets,
    ack_prefix,
    checked_name,
    is_name,
    new_topic_id,
    topic_id,
    topic_id_text,
    topic_reference,
)

NAMES = st.from_regex(r"\A[a-zA-Z0-9_-]{1,255}\Z")


@given(NAMES)
def test_letters_digits_dashes_and_underscores_make_a_name(text: str) -> None:
    assert checked_name("topic", text) == text


@pytest.mark.parametrize("text", ["", "a b", "a/b", "a.b", "ä", "a\n", "a:publish", "x" * 256, "\u0661"])
def test_anything_else_is_refused_naming_the_variable(text: str) -> None:
    assert not is_name(text)
    with pytest.raises(InvalidInput, match="^Invalid topic name$"):
        checked_name("topic", text)


@given(NAMES, NAMES, st.integers(0, 2**63 - 1))
def test_an_ack_id_gives_back_its_number(project: str, subscription: str, number: int) -> None:
    prefix = ack_prefix(project, subscription)

    assert ack_offset(prefix, f"{prefix}{number}") == number


@pytest.mark.parametrize(
    "ack_id",
    ["", "projects/P/subscriptions/S:", "projects/P/subscriptions/S:x", "projects/P/subscriptions/other:1",
     "/projects/P/subscriptions/S:1", "projects/P/subscriptions/S:1.0", "projects/P/subscriptions/S:1 ",
     "projects/P/subscriptions/S:9223372036854775808", "projects/P/subscriptions/S:\u0661",
     "projects/P/subscriptions/S:--1",
     "projects/P/subscriptions/S:1_0", "projects/p/subscriptions/S:1"],
)  # fmt: skip
def test_11_1_an_ack_id_of_another_shape_is_refused(ack_id: str) -> None:
    prefix = ack_prefix("P", "S")

    with pytest.raises(InvalidInput, match="^Invalid ack id$"):
        ack_offset(prefix, ack_id)
    for place in (0, 4, 9):
        among = [f"{prefix}{number}" for number in range(9)]
        with pytest.raises(InvalidInput, match="^Invalid ack id$"):
            ack_offsets(prefix, [*among[:place], ack_id, *among[place:]])


NUMBERS = st.integers(-(2**63), 2**63 - 1).map(str) | st.integers(0, 99).map(lambda number: f"0{number}")


@given(st.lists(NUMBERS | st.sampled_from(["", "+5", "\u0661", "1_0", "9" * 19, "x"]), max_size=12), st.booleans())
def test_many_ack_ids_are_read_as_each_of_them_is(numbers: list[str], one_of_another: bool) -> None:
    prefix = ack_prefix("P", "S")
    ids = [f"{prefix}{number}" for number in numbers]
    if one_of_another:
        ids.append(f"{ack_prefix('P', 'R')}7")
    try:
        expected = [ack_offset(prefix, each) for each in ids]
    except InvalidInput:
        with pytest.raises(InvalidInput, match="^Invalid ack id$"):
            ack_offsets(prefix, ids)
    else:
        assert ack_offsets(prefix, ids) == expected


@pytest.mark.parametrize(
    "reference",
    ["projects/Q/topics/t", "/projects/P/topics/t", "projects/P/topic/t", "projects/P/topics/t/", "projects/P/topics",
     "project/P/topics/t", "projects/P/topics/a.b", ""],
)  # fmt: skip
def test_a7_a_topic_reference_must_name_the_project_of_the_path(reference: str) -> None:
    with pytest.raises(InvalidInput, match="^Invalid Topic name$"):
        topic_reference("P", reference)


def test_a_topic_reference_gives_the_topic() -> None:
    assert topic_reference("P", "projects/P/topics/metric_data") == "metric_data"


def test_the_identity_of_a_topic_survives_being_written() -> None:
    topic = new_topic_id()

    assert topic_id(topic_id_text(topic)) == topic
