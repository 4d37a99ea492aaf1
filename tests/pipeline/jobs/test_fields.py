from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.pipeline.errors import Broken
from ams.pipeline.jobs import JOBS, fields, load
from ams.pipeline.jobs.base import describe_options


@pytest.mark.parametrize("name", JOBS)
def test_a_job_is_listed_under_its_name_in_a_line_without_a_full_stop(name: str) -> None:
    job = load(name)

    assert job.name == name
    assert job.summary[0].isupper()
    assert not job.summary.endswith(".")
    # Batch sizes may change from run to run.
    assert {each["name"] for each in describe_options(job.options)} & {"batch_messages"} <= job.harmless


@pytest.mark.parametrize(("data", "reason"), [
    (b"", "the message is empty"), (b"{", "not JSON"), (b"\xff\xfe", "not JSON"), (b'{"a": NaN}', "not JSON"),
    (b"[" * 100_000, "not JSON"), (b"[1]", "the message is not an object"),
    (b"null", "the message is not an object"),
])  # fmt: skip
def test_what_is_no_object_is_broken(data: bytes, reason: str) -> None:
    with pytest.raises(Broken, match=f"^{reason}$"):
        fields.json_object(data)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_texts_of_editors_are_read_by_their_mark(encoding: str) -> None:
    assert fields.json_object('{"a": "é\u2028"}'.encode(encoding)) == {"a": "é\u2028"}


@pytest.mark.parametrize(("data", "reason"), [
    (b"\xff\xfe\x00", "UTF-16"), (b"\xfe\xff\xd8\x00", "UTF-16"), (b"\xff\xfe\x00\x00\x00\x00\x11\x00", "UTF-32"),
])  # fmt: skip
def test_a_text_that_is_not_what_its_mark_says_is_broken(data: bytes, reason: str) -> None:
    with pytest.raises(Broken, match=f"is not {reason}, as its byte order mark says"):
        fields.in_utf8(data)


@pytest.mark.parametrize(("written", "second"), [
    ("2024-03-05T24:00:00Z", "2024-03-06T00:00:00Z"), ("2024-12-31T24:00", "2025-01-01T00:00:00Z"),
    ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00Z"), ("2016-12-31T23:59:60.5+01:00", "2016-12-31T23:00:00.5Z"),
    ("2024-03-05 10:20:30", "2024-03-05T10:20:30Z"),
])  # fmt: skip
def test_times_of_iso_8601_may_end_a_day_or_have_a_leap_second(written: str, second: str) -> None:
    assert fields.utc(written) == datetime.fromisoformat(second)


@pytest.mark.parametrize(
    "written", ["2024-03-05T24:00:01Z", "2024-03-05T25:00:00Z", "2024-03-05T10:20:61Z", "24:00:00"]
)
def test_other_times_beyond_a_day_are_none(written: str) -> None:
    with pytest.raises(ValueError):
        fields.utc(written)


def test_absent_null_and_empty_texts_are_none() -> None:
    assert [fields.text(record, "a") for record in ({}, {"a": None}, {"a": ""}, {"a": "x"})] == [None, None, None, "x"]
    assert (fields.free_text({"a": "x\0y"}, "a"), fields.a_list({"a": None}, "a")) == ("x\ufffdy", [])


@pytest.mark.parametrize(("read", "value", "reason"), [
    (fields.needed, "", "a is missing"),
    (fields.text, 1, "a is not text"),
    (fields.text, ["x"], "a is not text"),
    (fields.text, "x\0", "a holds a NUL character"),
    (fields.a_list, "x", "a is not a list"),
    (fields.objects, [{}, 1], "a[1] is not an object"),
    (fields.whole, {"client_secret": "x"}, "a is not a whole number: an object"),
    (fields.whole, ["x"], "a is not a whole number: a list"),
    *(
        (fields.whole, each, "a is not a whole number")
        for each in (True, 1.5, "1.5", "seven", "1e3", 2**63, "9" * 30, "²")
    ),
    *((fields.moment, each, "a is not a time") for each in ("yesterday", "2024-13-05T00:00:00Z")),
    (fields.moment, "2024-03-05", "a is a day and not a time"),
    (fields.moment, "0001-01-01T00:00:00+14:00", "a is"),
])  # fmt: skip
def test_what_a_field_cannot_be_is_broken(read: Callable[[Any, str], object], value: Any, reason: str) -> None:
    with pytest.raises(Broken) as broken:
        read({"a": value}, "a")
    assert str(broken.value).startswith(reason)
    assert "client_secret" not in str(broken.value)


@pytest.mark.parametrize(
    ("value", "number"), [(7, 7), ("7", 7), (" -7 ", -7), (7.0, 7), (None, None), ("", None), ("NULL", None)]
)
def test_whole_numbers(value: Any, number: int | None) -> None:
    assert fields.whole({"a": value}, "a") == number


@pytest.mark.parametrize(
    "value", ["2024-03-05T10:20:30Z", "2024-03-05T12:20:30+02:00", "2024-03-05 10:20:30", "2024-03-05T10:20:30.000"]
)
def test_times_are_utc(value: str) -> None:
    assert fields.moment({"at": value}, "at") == datetime(2024, 3, 5, 10, 20, 30, tzinfo=UTC)


@given(st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)
))  # fmt: skip
def test_reasons_are_short_whatever_the_value_is(value: Any) -> None:
    for read in (fields.text, fields.whole, fields.moment, fields.a_list, fields.objects):
        try:
            read({"a": value}, "a")
        except Broken as error:
            assert len(str(error)) < 100


def test_numbers_add_up_to_what_a_column_holds() -> None:
    assert fields.total([1, None, 2], "a") == 3
    assert fields.total([None], "a") is None
    with pytest.raises(Broken, match="^a adds up to more than can be$"):
        fields.total([2**63 - 1, 1], "a")
