"""Records of the reference in Kafka, good and bad, as messages."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.messages import Stored, message
from ams.migrate.records import Record, message_of, stored
from ams.storage.export_format import Message, decoded, encoded

WRITTEN = 1_700_000_000_000


def record(**said: Any) -> bytes:
    own = {"messageId": "7", "data": "aGVsbG8=", "publishTime": "2024-03-05T10:20:30.123456789Z"}
    return json.dumps({**own, **said}, indent=4).encode()


def read(value: bytes | None, earliest: int = 0) -> Message:
    found = message_of(5, value, WRITTEN, earliest)
    assert found is not None
    return found


USUAL = Message(offset=5, time=1709634030123, data="aGVsbG8=", attributes={})
LANG = {"attributes": {"lang": "en"}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (record(**LANG), LANG),
        (record(attributes=[{"key": "lang", "value": "en"}]), LANG),
        (json.dumps(record(**LANG).decode()).encode(), LANG),
        (record(data="no base64!"), {"data": "no base64!"}),
        (record(data=""), {"data": ""}),
        (record(data="äöü"), {"data": "äöü"}),
        (record(publishTime="2024-03-05T10:20:30Z"), {"time": 1709634030000}),
        (record(publishTime="2024-03-05T10:20:30.5Z"), {"time": 1709634030500}),
        (record(publishTime="2024-03-05T10:20:30.999999999Z"), {"time": 1709634030999}),
        (record(publishTime="2024-03-05T10:20:30"), {"time": 1709634030000}),
        *((record(publishTime=said), {"time": WRITTEN}) for said in ("yesterday", None, 7)),
    ],
)
def test_a_record_is_read_with_kafkas_offset_and_a_time_in_milliseconds(value: bytes, expected: dict[str, Any]) -> None:
    assert read(value) == msgspec.structs.replace(USUAL, **expected)


def test_times_never_go_back() -> None:
    assert read(record(), earliest=1709634099999).time == 1709634099999


@pytest.mark.parametrize(
    "value",
    [None, b"", b"{", b"[]", b"7", b'"x"', b"\xff", record(data=7), record(attributes={"a": 1}), record(attributes="a"),
     record(attributes=[{"key": "a"}])],
)  # fmt: skip
def test_what_cannot_be_read_is_a_hole(value: bytes | None) -> None:
    assert message_of(5, value, WRITTEN, 0) is None


@given(st.binary(), st.integers(-5, 2**50), st.integers(0, 2**50))
def test_whatever_a_record_holds_it_is_a_hole_or_a_line_of_an_export(value: bytes, written: int, earliest: int) -> None:
    found = message_of(5, value, written, earliest)
    assert found is None or decoded(encoded(found)) == found


texts = st.text(st.characters(exclude_categories=("Cs",)))


@given(st.dictionaries(texts, texts), texts)
def test_attributes_and_data_go_over_whole(attributes: dict[str, str], data: str) -> None:
    found = read(record(attributes=attributes, data=data))
    assert (found.attributes, found.data) == (attributes, data)


TIMES = st.sampled_from(
    ["2024-03-05T10:20:30.123456789Z", "2024-03-05T10:20:30.5Z", "2024-03-05T10:20:31.001Z", "2024-03-05T10:20:31", "",
     "2024-03-05T10:20:31.1+02:00", "0001-01-01T00:00:00.000Z", "2024-13-05T10:20:31.001Z", None]
)  # fmt: skip
ODD_DATA = st.sampled_from(["aGVsbG8=", "", "no base64!", "aGVsbG8", 7, [1234], None, {"a": "b"}])
RECORDS = st.lists(
    st.builds(
        lambda data, time, attributes: record(data=data, publishTime=time, attributes=attributes),
        st.one_of(st.just("aGVsbG8="), ODD_DATA), TIMES,
        st.sampled_from([None, {}, {"lang": "en"}, {"a": 1}, {"a": "\u00e9\n"}]),
    ),
    max_size=6,
)  # fmt: skip


@given(RECORDS, st.integers(0, 2**42))
def test_many_records_at_once_are_what_each_is_alone(values: list[bytes], earliest: int) -> None:
    expected, time = [], earliest
    for number, value in enumerate(values):
        found = message_of(number, value, WRITTEN, time)
        if found is not None:
            time = found.time
            expected.append(Stored(number, time, message(found.data, found.attributes).fragment))

    records = [Record(number, value, WRITTEN) for number, value in enumerate(values)]
    assert list(stored(records, earliest)) == expected
