import base64
import struct

import pytest
from aiokafka.record._crc32c import crc as crc32c
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from ams.core.errors import Damaged
from ams.core.messages import message, parse
from ams.core.names import new_topic_id
from ams.core.runs import Runs
from ams.storage.log.kafka.keyed_appends import KEY
from ams.storage.log.kafka.partition import Partition
from ams.storage.log.kafka.records import batches, encode, fragment_of, pieces

PARTITION = Partition(new_topic_id(), "ams.x")

names = st.text(max_size=12) | st.sampled_from(
    ["ams:", "ams::", "ams:text", "ams:key", "ams:orderingKey", "ams:::x", "ams", ""]
)
attributes = st.dictionaries(names, st.text(max_size=12), max_size=5)
canonical = st.binary(max_size=60).map(lambda raw: base64.b64encode(raw).decode())
keys = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
data = canonical | st.text(max_size=40) | st.sampled_from(["QR==", "QUJ=", "QUJD\r\nQUJD", "=", "QQ", "\udc80"])


def batch_of(records, kind=0, times=False):
    """Return a batch as a producer sends it; records are (key, value, headers)."""
    builder = DefaultRecordBatchBuilder(2, kind, 0, -1, -1, -1, 1 << 20)
    for number, (key, value, headers) in enumerate(records):
        builder.append(number, times[number] if times else 1000, key, value, headers)
    return bytearray(builder.build())


def sign_batch(batch):
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


def decode_runs(data, start=0, partition=PARTITION):
    found = [pieces(partition, batch, start, 3) for batch in batches(bytes(data))]
    return [each for batch in found for piece in batch for each in Runs(piece)]


@given(data, attributes, keys)
def test_a_fragment_comes_back_byte_for_byte(data, attributes, key) -> None:
    sent = message(data, attributes, key)
    value, headers = encode(sent)
    assert fragment_of(value, headers) == sent.fragment


def test_an_ordering_key_is_a_header_of_ours() -> None:
    assert encode(message("aGk=", {"ams:orderingKey": "other"}, "bed 4")) == (
        b"hi", [("ams::orderingKey", b"other"), ("ams:orderingKey", b"bed 4")],
    )  # fmt: skip
    assert encode(message("aGk=", {"ams:orderingKey": "other"})) == (b"hi", [("ams::orderingKey", b"other")])
    assert fragment_of(b"hi", [("ams:orderingKey", b"bed\xff")]) == message("aGk=", {}, "bed\ufffd").fragment
    for none in (b"", None):
        assert fragment_of(b"hi", [("ams:orderingKey", none)]) == b'"data":"aGk="'


@given(data | st.text("ABQRwg/+=", max_size=9))
def test_data_that_is_the_one_way_to_write_its_bytes_goes_as_these_and_all_else_as_text(data) -> None:
    try:
        raw = base64.b64decode(data, validate=True)
        is_one = base64.b64encode(raw).decode() == data
    except ValueError:
        is_one = False
    expected = (raw, []) if is_one else (data.encode("utf-8", "surrogatepass"), [("ams:text", b"")])
    assert encode(message(data)) == expected


@given(st.lists(st.builds(message, canonical, attributes, keys), min_size=1, max_size=5))
def test_a_batch_comes_back_whole_and_in_order(messages) -> None:
    batch = batch_of([(None, *encode(each)) for each in messages])
    assert [each.fragment for each in decode_runs(batch)] == [each.fragment for each in messages]


@given(canonical, attributes.filter(lambda given: not any(name.startswith("ams:") for name in given)))
def test_others_see_the_decoded_data_and_the_attributes_as_they_are(data, attributes) -> None:
    value, headers = encode(message(data, attributes))
    assert value == base64.b64decode(data)
    assert headers == [(name, text.encode()) for name, text in attributes.items()]


@given(st.none() | st.binary(max_size=20), st.lists(st.tuples(names, st.none() | st.binary(max_size=20)), max_size=5))
def test_whatever_others_write_is_shown_as_a_message_that_can_be_read(value, headers) -> None:
    parse(fragment_of(value, headers))


def test_foreign_records_are_shown_as_they_can_be() -> None:
    assert fragment_of(None, []) == b'"data":""'
    assert fragment_of(b"\xff\x00", [("a", None), ("b", b"\xff")]) == message("/wA=", {"a": "", "b": "�"}).fragment
    assert fragment_of(b"", [("a", b"1"), ("b", b"2"), ("a", b"3")]) == message("", {"a": "3", "b": "2"}).fragment
    assert fragment_of(b"\xff", [("ams:text", b"")]) == message("�").fragment


def test_our_own_headers_are_no_attributes() -> None:
    assert fragment_of(b"", [(KEY, b"k"), ("ams:later", b"x"), ("ams:", b"y")]) == b'"data":""'


def test_a_batch_that_begins_before_the_start_is_cut() -> None:
    batch = batch_of([(None, b"%d" % number, []) for number in range(10)])
    assert [each.offset for each in decode_runs(batch, start=107, partition=PARTITION._replace(first=100))] == [
        107, 108, 109,
    ]  # fmt: skip


def test_what_is_cut_off_at_the_end_is_left_out() -> None:
    batch = batch_of([(None, b"1", [])])
    assert (len(decode_runs(batch + batch[:-1])), decode_runs(batch[:40])) == (1, [])


def test_times_that_cannot_be_written_are_brought_into_range() -> None:
    batch = batch_of([(None, b"", [])] * 3, times=[5, -1, 1 << 60])
    assert [each.time for each in decode_runs(batch)] == [5, 0, 253_402_300_799_999]


def test_damaged_bytes_are_never_served() -> None:
    batch = batch_of([(None, b"payload", [])])
    batch[-3] ^= 1
    with pytest.raises(Damaged):
        decode_runs(batch)


def test_a_batch_that_cannot_be_read_is_skipped_and_logged() -> None:
    unreadable = batch_of([(None, b"1", [("abcdef", b"")])])
    unreadable[unreadable.index(b"abcdef")] = 0xFF
    unpackable = batch_of([(None, b"1", [])])
    unpackable[22] |= 7  # a compression that there is not
    good = batch_of([(None, b"2", [])])
    with capture_logs() as logged:
        found = decode_runs(sign_batch(unreadable) + sign_batch(unpackable) + bytes(good))
    assert [each.fragment for each in found] == [b'"data":"Mg=="']
    assert [each["event"] for each in logged] == ["log.skipped", "log.skipped"]


@pytest.mark.parametrize("kind", [0, 1])
def test_compressed_batches_are_read(kind) -> None:
    assert len(decode_runs(batch_of([(b"key", b"x" * 1000, [])] * 20, kind=kind))) == 20
