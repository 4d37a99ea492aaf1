"""Reading JSON payloads field by field."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.fields import a_list, free_text, json_object, moment, needed, objects, text, total, whole


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the message is empty"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"a": NaN}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "the message is not an object"),
        (b"null", "the message is not an object"),
    ],
)
def test_what_is_no_object_is_broken(data: bytes, reason: str) -> None:
    with pytest.raises(Broken, match=f"^{reason}$"):
        json_object(data)


def test_absent_null_and_empty_texts_are_none() -> None:
    assert [text(record, "a") for record in ({}, {"a": None}, {"a": ""}, {"a": "x"})] == [None, None, None, "x"]
    with pytest.raises(Broken, match="a is missing"):
        needed({"a": ""}, "a")


@pytest.mark.parametrize(
    ("value", "reason"), [(1, "a is not text"), (["x"], "a is not text"), ("x\0", "a holds a NUL character")]
)
def test_other_things_are_no_text(value: Any, reason: str) -> None:
    with pytest.raises(Broken, match=reason):
        text({"a": value}, "a")


def test_text_for_people_may_hold_anything() -> None:
    assert free_text({"a": "x\0y"}, "a") == "x\ufffdy"


@pytest.mark.parametrize(
    ("value", "number"), [(7, 7), ("7", 7), (" -7 ", -7), (7.0, 7), (None, None), ("", None), ("NULL", None)]
)
def test_whole_numbers(value: Any, number: int | None) -> None:
    assert whole({"a": value}, "a") == number


@pytest.mark.parametrize("value", [True, 1.5, "1.5", "seven", "1e3", 2**63, "9" * 30, "²", [], {}])
def test_what_is_no_whole_number_is_broken(value: Any) -> None:
    with pytest.raises(Broken, match="a is not a whole number"):
        whole({"a": value}, "a")


@pytest.mark.parametrize(
    "value", ["2024-03-05T10:20:30Z", "2024-03-05T12:20:30+02:00", "2024-03-05 10:20:30", "2024-03-05T10:20:30.000"]
)
def test_times_are_utc(value: str) -> None:
    assert moment({"at": value}, "at") == datetime(2024, 3, 5, 10, 20, 30, tzinfo=UTC)


@pytest.mark.parametrize("value", ["yesterday", "2024-13-05T00:00:00Z", "2024-03-05", "0001-01-01T00:00:00+14:00"])
def test_what_is_no_time_is_broken(value: str) -> None:
    with pytest.raises(Broken, match="^at is .*time"):
        moment({"at": value}, "at")


def test_lists_and_their_objects_are_named_in_reasons() -> None:
    assert a_list({"a": None}, "a") == []
    with pytest.raises(Broken, match="a is not a list"):
        a_list({"a": "x"}, "a")
    with pytest.raises(Broken, match=r"a\[1\] is not an object"):
        objects({"a": [{}, 1]}, "a")


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
    )
)
def test_reasons_are_short_whatever_the_value_is(value: Any) -> None:
    for read in (text, whole, moment, a_list, objects):
        try:
            read({"a": value}, "a")
        except Broken as error:
            assert len(str(error)) < 100


def test_a_payload_is_read_as_json_is() -> None:
    assert json_object(json.dumps({"a": "é\u2028"}).encode()) == {"a": "é\u2028"}


def test_reasons_show_nothing_of_what_stands_inside_of_a_value() -> None:
    with pytest.raises(Broken, match="^a is not a whole number: an object$"):
        whole({"a": {"client_secret": "x"}}, "a")
    with pytest.raises(Broken, match="^a is not a whole number: a list$"):
        whole({"a": ["x"]}, "a")


def test_numbers_add_up_to_what_a_column_holds() -> None:
    assert total([1, None, 2], "a") == 3
    assert total([None], "a") is None
    with pytest.raises(Broken, match="^a adds up to more than can be$"):
        total([2**63 - 1, 1], "a")
