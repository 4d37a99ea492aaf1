"""Rows become messages, messages become requests, and checkpoints that are too old are refused."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T

from ams.pipeline.errors import StaleCheckpoint, WrongOption, WrongRow
from ams.pipeline.sink.requests import Chunk, Chunker, EncodedMessage, Lane, Limits, Rows, Sender, layout
from ams.pipeline.sink.writer import local_folder, refuse_stale
from tests.support.waiting import PATIENCE_SECONDS

TYPES: dict[str, T.DataType] = {
    "binary": T.BinaryType(), "string": T.StringType(), "int": T.IntegerType(), "bigint": T.LongType(),
    "timestamp": T.TimestampType(), "map<string,string>": T.MapType(T.StringType(), T.StringType()),
    "map<string,int>": T.MapType(T.StringType(), T.IntegerType()),
}  # fmt: skip
MAP = pa.map_(pa.string(), pa.string())


def _messages(
    columns: dict[str, Any], topic: str | None = "rain", order_by: tuple[str, ...] = ()
) -> list[tuple[str, Any]]:
    arrays = {name: pa.array(values, MAP if name == "attributes" else None) for name, values in columns.items()}
    batch = pa.RecordBatch.from_pydict(arrays)
    kinds = {"data": "binary", "attributes": "map<string,string>", "lane": "int", "offset": "bigint"}
    schema = _schema(", ".join(f"{name} {kinds.get(name, 'string')}" for name in columns))
    rows = Rows(layout(schema, topic, order_by), partition=3)
    return [("/".join(lane), json.loads(message.body)) for lane, message in rows.messages(batch)]


def _schema(text: str) -> T.StructType:
    """Return the schema of `name type, name type`; Spark's own parser needs Java."""
    pairs = (each.split(" ") for each in text.split(", "))
    return T.StructType([T.StructField(name, TYPES[kind]) for name, kind in pairs])


@pytest.mark.parametrize(("columns", "topic", "expected"), [
    ({"data": [b"\x00\xff"], "attributes": [[("a", "ä\n")]]}, "rain", {"data": "AP8=", "attributes": {"a": "ä\n"}}),
    ({"data": [b""], "attributes": [[("b", "1"), ("c", "2")]]}, "rain", {"attributes": {"b": "1", "c": "2"}}),
    ({"data": [b"x"], "attributes": [None]}, "rain", {"data": "eA=="}),
    ({"data": ["ä"]}, "rain", {"data": "w6Q="}),
    ({"data": [b"1"], "topic": ["other"]}, "rain", {"data": "MQ=="}),
])  # fmt: skip
def test_a_row_travels_as_the_service_wants_it(columns: dict[str, Any], topic: str, expected: dict[str, Any]) -> None:
    assert _messages(columns, topic) == [(f"{topic}/p3", expected)]


def test_a_row_may_say_its_topic_and_its_lane() -> None:
    found = _messages({"data": [b"1", b"2"], "topic": ["a", "b"], "lane": [0, 7]}, topic=None)
    assert [where for where, _ in found] == ["a/l0", "b/l7"]


def test_an_ordering_key_travels_where_there_is_one() -> None:
    found = _messages({"data": [b"1", b"2", b"3"], "ordering_key": ["bed 4", None, ""]})

    assert [message for _, message in found] == [
        {"data": "MQ==", "orderingKey": "bed 4"}, {"data": "Mg=="}, {"data": "Mw=="},
    ]  # fmt: skip
    with pytest.raises(WrongRow, match="^row 0 of partition 3 has an ordering key of more than 1024 bytes$"):
        _messages({"data": [b"1"], "ordering_key": ["é" * 513]})


@pytest.mark.parametrize(("columns", "said"), [
    ({"data": [b"1", None]}, "row 1 of partition 3 has neither data nor attributes"),
    ({"data": [b"1"], "attributes": [[("a", None)]]}, "has an attribute without a value"),
    ({"data": [b"1"], "topic": [None]}, "None is no name of a topic"),
    ({"data": [b"1"], "topic": ["a/b"]}, "'a/b' is no name of a topic"),
    ({"data": [b"1"], "topic": ["a"], "lane": [None]}, "has no lane"),
])  # fmt: skip
def test_a_row_that_is_no_message_is_named(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(WrongRow, match=said):
        _messages(columns, topic=None if "topic" in columns else "rain")


def test_rows_out_of_their_order_are_refused() -> None:
    inside = {"data": [b"1", b"2", b"3"], "topic": ["a", "b", "a"], "offset": [5, 1, 5]}
    assert len(_messages(inside, topic=None, order_by=("offset",))) == 3
    with pytest.raises(WrongRow, match="row 2 of partition 3 comes after a larger one of topic a"):
        _messages(inside | {"offset": [5, 1, 4]}, topic=None, order_by=("offset",))


@pytest.mark.parametrize(("schema", "topic", "said"), [
    ("attributes map<string,string>", "t", "option columns: there is no column data"),
    ("data int", "t", "data is int; it must be binary or string"),
    (
        "data string, attributes map<string,int>",
        "t",
        "attributes is map<string,int>; it must be map<string,string>",
    ),
    ("data string, attribute map<string,string>", "t", "attribute is no part of a message"),
    ("data string", None, "option topic: is missing; give it, or a column topic"),
    ("data string, topic int", None, "topic is int; it must be string"),
    ("data string, lane string", "t", "lane is string; it must be a whole number"),
])  # fmt: skip
def test_a_frame_that_cannot_be_published_is_refused(schema: str, topic: str | None, said: str) -> None:
    with pytest.raises(WrongOption, match=said):
        layout(_schema(schema), topic)


def test_columns_of_what_was_read_are_passed_over() -> None:
    read = "project string, topic string, offset bigint, message_id string, publish_time timestamp, data binary"
    layout(_schema(read), "t")


@pytest.mark.parametrize(("column", "said"), [
    ("time", "there is no column time"), ("attributes", "attributes is map<string,string>, which has no order"),
])  # fmt: skip
def test_rows_are_only_ordered_by_columns_that_have_an_order(column: str, said: str) -> None:
    with pytest.raises(WrongOption, match=f"orderBy: {said}"):
        layout(_schema("data string, attributes map<string,string>"), "t", (column,))


ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 60)), max_size=60)
LIMITS = st.builds(Limits, messages=st.integers(1, 5), bytes=st.integers(20, 120), open_bytes=st.integers(20, 200))


def _chunks(rows: list[tuple[str, int]], limits: Limits) -> list[Chunk]:
    chunker = Chunker(limits)
    chunks = [
        chunk
        for row, (topic, size) in enumerate(rows)
        for chunk in chunker.add(Lane(topic, "0"), EncodedMessage(b"x" * size, str(row)))
    ]
    return chunks + list(chunker.rest())


@given(ROWS, LIMITS)
def test_every_message_travels_once_and_in_order_in_its_lane(rows: list[tuple[str, int]], limits: Limits) -> None:
    chunks = _chunks(rows, limits)

    for topic in "abc":
        mine = [chunk for chunk in chunks if chunk.lane.topic == topic]
        assert [chunk.number for chunk in mine] == list(range(len(mine)))
        sent = [int(message.where) for chunk in mine for message in chunk.messages]
        assert sent == [row for row, (name, _) in enumerate(rows) if name == topic]


@given(ROWS, LIMITS)
def test_no_request_is_over_its_limits_but_one_of_a_single_message(rows: list[tuple[str, int]], limits: Limits) -> None:
    for chunk in _chunks(rows, limits):
        assert 1 <= len(chunk.messages) <= limits.messages
        assert len(chunk.body()) <= chunk.size
        assert chunk.size <= limits.bytes or len(chunk.messages) == 1


def _chunk(topic: str, number: int) -> Chunk:
    return Chunk(Lane(topic, "0"), number)


def test_the_requests_of_a_topic_are_sent_one_after_another_in_order() -> None:
    sent: dict[str, list[int]] = {topic: [] for topic in "abcdefgh"}
    under_way: set[str] = set()

    def send(chunk: Chunk) -> None:
        assert chunk.lane.topic not in under_way
        under_way.add(chunk.lane.topic)
        time.sleep(0.001)
        under_way.remove(chunk.lane.topic)
        sent[chunk.lane.topic].append(chunk.number)

    with Sender(send) as sender:
        for number in range(10):
            for topic in sent:
                sender.put(_chunk(topic, number))

    assert sent == {topic: list(range(10)) for topic in "abcdefgh"}


def test_topics_do_not_wait_for_each_other() -> None:
    meeting = threading.Barrier(2, timeout=PATIENCE_SECONDS)
    with Sender(lambda _: meeting.wait() and None) as sender:
        sender.put(_chunk("a", 0))
        sender.put(_chunk("b", 0))


def test_nothing_is_sent_after_a_failure_and_the_failure_is_told() -> None:
    sent: list[int] = []

    def send(chunk: Chunk) -> None:
        if chunk.number == 1:
            raise OSError("no")
        sent.append(chunk.number)

    with pytest.raises(OSError, match="no"):
        _send_all(Sender(send))

    assert sent == [0]


def test_a_with_that_is_left_by_an_error_ends_with_it() -> None:
    with pytest.raises(KeyError):
        _send_all(Sender(lambda _: None), KeyError())


def _send_all(sender: Sender, error: Exception | None = None) -> None:
    with sender:
        for number in range(100):
            sender.put(_chunk("a", number))
        if error:
            raise error


DAY = 86400.0
BEGIN_SECONDS = 1_700_000_000.0


def _checkpoint(folder: Path, offsets: int, commits: int) -> Path:
    """A checkpoint with so many batches begun and finished; the last was begun at `BEGIN_SECONDS`."""
    for name, count in (("offsets", offsets), ("commits", commits)):
        (folder / name).mkdir()
        for number in range(count):
            time = int(1000 * (BEGIN_SECONDS - DAY * (count - 1 - number)))
            (folder / name / str(number)).write_text(f"v1\n{json.dumps({'batchTimestampMs': time, 'conf': {}})}\n{{}}")
            (folder / name / f".{number}.crc").touch()
            (folder / name / f"{number + 9}.tmp").touch()
    return folder


def test_a_batch_that_was_begun_long_ago_and_never_finished_is_refused(tmp_path: Path) -> None:
    checkpoint = _checkpoint(tmp_path, offsets=12, commits=11)

    refuse_stale(checkpoint, DAY, now=BEGIN_SECONDS + DAY)
    said = r"batch 11 of .* was begun 1 day, 0:00:01 ago and never finished; .*\(keyWindow is 1 day"
    with pytest.raises(StaleCheckpoint, match=said):
        refuse_stale(checkpoint, DAY, now=BEGIN_SECONDS + DAY + 1)


def test_finished_batches_may_be_of_any_age(tmp_path: Path) -> None:
    refuse_stale(_checkpoint(tmp_path, offsets=3, commits=3), DAY, now=BEGIN_SECONDS + 1000 * DAY)
    refuse_stale(tmp_path / "none", DAY)


@pytest.mark.parametrize(("checkpoint", "folder"), [
    ("/a/b", "/a/b"), ("file:/a/b%20c", "/a/b c"), ("file:///a", "/a"), ("hdfs://n/a", None), (None, None),
])  # fmt: skip
def test_a_checkpoint_on_this_machine_is_known_by_its_scheme(checkpoint: str | None, folder: str | None) -> None:
    assert local_folder(checkpoint) == (folder and Path(folder))
