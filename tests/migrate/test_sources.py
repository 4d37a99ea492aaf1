"""Records of the reference in Kafka, good and bad, as messages; and readers in processes."""

import json
import os
import signal
import subprocess
import sys
import time
from array import array
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import Unavailable
from ams.core.messages import Fragment, Stored, message
from ams.core.runs import Columns
from ams.migrate import sources
from ams.migrate.sources import DecodedPart, Readers, Record, message_of, part_of, to_stored_messages
from ams.storage.export_format import Message, decode_line, encode_line
from tests.support.waiting import wait_until

WRITTEN = 1_700_000_000_000


def record(**said: Any) -> bytes:
    own = {"messageId": "7", "data": "aGVsbG8=", "publishTime": "2024-03-05T10:20:30.123456789Z"}
    return json.dumps({**own, **said}, indent=4).encode()


def read_message(value: bytes | None, earliest: int = 0) -> Message:
    found = message_of(5, value, WRITTEN, earliest)
    assert found is not None
    return found


USUAL = Message(offset=5, time=1709634030123, data="aGVsbG8=", attributes={})
LANG = {"attributes": {"lang": "en"}}


@pytest.mark.parametrize(("value", "expected"), [
    (record(**LANG), LANG), (record(attributes=[{"key": "lang", "value": "en"}]), LANG),
    (json.dumps(record(**LANG).decode()).encode(), LANG), (record(data="no base64!"), {"data": "no base64!"}),
    (record(data="äöü"), {"data": "äöü"}), (record(publishTime="2024-03-05T10:20:30.5Z"), {"time": 1709634030500}),
    (record(publishTime="2024-03-05T10:20:30.999999999Z"), {"time": 1709634030999}),
    (record(publishTime="2024-03-05T10:20:30"), {"time": 1709634030000}),
    *((record(publishTime=said), {"time": WRITTEN}) for said in ("yesterday", None, 7)),
])  # fmt: skip
def test_a_record_is_read_with_kafkas_offset_and_a_time_in_milliseconds(value: bytes, expected: dict[str, Any]) -> None:
    assert read_message(value) == msgspec.structs.replace(USUAL, **expected)
    assert read_message(record(), earliest=1709634099999).time == 1709634099999  # times never go back


@pytest.mark.parametrize("value", [
    None, b"", b"{", b"[]", b"7", b'"x"', b"\xff", record(data=7), record(attributes={"a": 1}), record(attributes="a"),
    record(attributes=[{"key": "a"}]),
])  # fmt: skip
def test_what_cannot_be_read_is_a_hole(value: bytes | None) -> None:
    assert message_of(5, value, WRITTEN, 0) is None


@given(st.binary(), st.integers(-5, 2**50), st.integers(0, 2**50))
def test_whatever_a_record_holds_it_is_a_hole_or_a_line_of_an_export(value: bytes, written: int, earliest: int) -> None:
    found = message_of(5, value, written, earliest)
    assert found is None or decode_line(encode_line(found)) == found


texts = st.text(st.characters(exclude_categories=("Cs",)))


@given(st.dictionaries(texts, texts), texts)
def test_attributes_and_data_go_over_whole(attributes: dict[str, str], data: str) -> None:
    found = read_message(record(attributes=attributes, data=data))
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
    assert list(to_stored_messages(records, earliest)) == expected


END = 1000


def time_of(offset: int) -> int:
    return offset * 10 - (500 if offset % 97 == 3 else 0)


def read_part(at_once: int, start: int, end: int) -> DecodedPart:
    """Return a part that ends early after so many messages; every seventh is unreadable."""
    stop = min(start + at_once, end)
    offsets = [offset for offset in range(start, stop) if offset % 7]
    time, times = 0, array("q")
    for offset in offsets:
        time = max(time, time_of(offset))
        times.append(time)
    return DecodedPart(Columns(array("q", offsets), times, [Fragment(b'"data":"%d"' % each) for each in offsets]), stop)


def kill_reader(start: int, end: int) -> DecodedPart:
    os._exit(9)


def expected_messages(earliest: int) -> list[Stored]:
    found, time = [], earliest
    for offset in range(END):
        if offset % 7:
            time = max(time, time_of(offset))
            found.append(Stored(offset, time, b'"data":"%d"' % offset))
    return found


@pytest.mark.parametrize(("part", "at_once"), [(END * 2, END), (300, 70), (97, 1000), (1, 1)])
async def test_parts_make_what_one_reader_reads(part: int, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "PART_MESSAGES", part)
    with closing(Readers()) as readers:
        batches = [each async for each in readers.batches(partial(read_part, at_once), 0, END, earliest=77)]
    assert [each for batch in batches for each in batch] == expected_messages(77)


async def test_a_part_ends_early_when_it_holds_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "PART_BYTES", 30)

    async def batches():
        for first in range(0, 10, 2):
            yield [Stored(each, each, b"0123456789") for each in (first, first + 1)]

    ended = await part_of(batches(), 10)
    assert ([each.offset for each in ended.messages], ended.following) == ([0, 1, 2, 3], 4)
    monkeypatch.setattr(sources, "PART_BYTES", 3000)
    assert (await part_of(batches(), 12)).following == 12


async def test_a_process_that_is_killed_is_told() -> None:
    with closing(Readers()) as readers, pytest.raises(Unavailable, match="a process that reads messages ended"):
        _ = [each async for each in readers.batches(kill_reader, 0, END, earliest=0)]


READING = """
import asyncio
from functools import partial
from ams.migrate.sources import Readers
from tests.migrate.test_sources import hold_reader

async def read():
    async for _ in Readers().batches(hold_reader, 0, 10, earliest=0):
        pass

if __name__ == "__main__":
    asyncio.run(read())
"""


def hold_reader(start: int, end: int) -> DecodedPart:
    print(os.getpid(), flush=True)
    time.sleep(60)
    raise AssertionError


def test_processes_end_with_the_one_that_was_killed(tmp_path: Path) -> None:
    program = tmp_path / "reading.py"
    program.write_text(READING)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, text=True, env=environment
    ) as running:
        assert running.stdout is not None
        reader = int(running.stdout.readline())
        running.send_signal(signal.SIGKILL)
        running.wait()

    wait_until(lambda: not Path(f"/proc/{reader}").exists())
