"""Fetching messages when connections break and messages vanish, partitions, and topics read by Spark."""

import itertools
import json
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from ams.client import Message
from ams.client.errors import NotAllowed, NotAms, NotFound, Unreachable
from ams.core.clock import Milliseconds
from ams.core.messages import Stored, message
from ams.core.names import Offset
from ams.http import arrow
from ams.pipeline.columns import MESSAGES
from ams.pipeline.datasource import plain
from ams.pipeline.errors import DataLoss
from ams.pipeline.messages import MESSAGE
from ams.pipeline.options import Access, ResourceName
from ams.pipeline.range_reader import Fetch, LostMessages, OffsetRange, limit_ends, parts
from ams.pipeline.service_calls import Service
from tests.client.conftest import stub as stub
from tests.client.stub import CUT, Reply, Stub
from tests.pipeline.garden import Garden, make_messages

RANGES = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=5)


def offsets(ranges: list[tuple[int, int]]) -> tuple[list[ResourceName], dict[str, int], dict[str, int]]:
    topics = [ResourceName("p", f"t{number}") for number in range(len(ranges))]
    starts = {str(topic): start for topic, (start, _) in zip(topics, ranges, strict=True)}
    return topics, starts, {str(topic): sum(each) for topic, each in zip(topics, ranges, strict=True)}


@given(RANGES, st.none() | st.integers(1, 50))
def test_parts_are_the_ranges_each_offset_once(ranges: list[tuple[int, int]], least: int | None) -> None:
    topics, starts, ends = offsets(ranges)

    found = parts(starts, ends, topics, least, {})

    total = sum(size for _, size in ranges)
    assert len(found) >= min(least or 1, total)
    assert all(each.start < each.stop for each in found)
    for topic in topics:
        read = [offset for each in found if each.topic == topic for offset in range(each.start, each.stop)]
        assert read == list(range(starts[str(topic)], ends[str(topic)]))


@given(RANGES, st.none() | st.integers(1, 3000))
def test_a_batch_has_as_much_as_it_may_and_there_is(ranges: list[tuple[int, int]], most: int | None) -> None:
    _, starts, ends = offsets(ranges)

    found = limit_ends(starts, ends, most)

    total = sum(size for _, size in ranges)
    assert sum(found.values()) - sum(starts.values()) == (total if most is None else min(total, most))
    assert all(starts[topic] <= found[topic] <= ends[topic] for topic in ends)
    if most is not None:
        for topic, start in starts.items():
            assert found[topic] - start >= most * (ends[topic] - start) // max(total, most)


def stored_message(offset: int) -> Stored:
    return Stored(Offset(offset), Milliseconds(offset), message(f"{offset:04}", {"n": str(offset)}).fragment)


def headers(first: int, stop: int, end: int) -> dict[str, str]:
    return {
        "content-type": "application/vnd.apache.arrow.stream", "ams-first-offset": str(first),
        "ams-next-offset": str(stop), "ams-end-offset": str(end),
    }  # fmt: skip


def stream(*pieces: Sequence[int]) -> bytes:
    return write_stream(*(arrow.batch([stored_message(offset) for offset in piece]) for piece in pieces))


def write_stream(*batches: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema if batches else arrow.SCHEMA) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def answer(*pieces: Sequence[int], stop: int | None = None, end: int = 10, first: int | None = None) -> Reply:
    offsets = list(itertools.chain(*pieces))
    began = offsets[0] if first is None else first
    return Reply(200, stream(*pieces), headers(began, offsets[-1] + 1 if stop is None else stop, end))


def read_part(stub: Stub, stop: int = 10, *, fail: bool = True, seconds: float = 5.0) -> pa.Table:
    with Service(Access(endpoint=stub.url, token="t", ca=None, retry_seconds=seconds)) as service:
        batches = Fetch(
            service, OffsetRange(ResourceName("garden", "plants"), 0, stop), fail_on_data_loss=fail
        ).batches()
        return pa.Table.from_batches(batches, schema=MESSAGE)


def fetch(stub: Stub, *, fail: bool = True, seconds: float = 5.0) -> list[int]:
    return list(read_part(stub, fail=fail, seconds=seconds).column("offset").to_pylist())


def list_queries(stub: Stub) -> list[str]:
    return [path.partition("?")[2] for _, path, _, _ in stub.requests]


ALL_OFFSETS = list(range(10))


def test_an_answer_in_parts_is_asked_for_until_the_range_is_read(stub: Stub) -> None:
    stub.script = [answer([0, 1], [2, 3]), answer(range(4, 10))]
    assert fetch(stub) == ALL_OFFSETS
    assert list_queries(stub) == ["from=0&to=10&max=10", "from=4&to=10&max=6"]


def test_after_a_cut_reading_goes_on_behind_the_last_whole_batch(stub: Stub) -> None:
    whole = answer(range(3), range(3, 10))
    away = Reply(503, b"", {"retry-after": "0"})
    stub.script = [CUT, whole._replace(body=whole.body[:-300]), away, answer(range(3, 10))]

    assert (fetch(stub), list_queries(stub)[-1]) == (ALL_OFFSETS, "from=3&to=10&max=7")


def test_an_end_without_its_marker_is_a_cut(stub: Stub) -> None:
    whole = answer(range(3), stop=10)
    stub.script = [whole._replace(body=whole.body[:-8]), answer(range(3, 10))]
    assert fetch(stub) == ALL_OFFSETS


def test_lines_are_read_where_there_is_no_arrow(stub: Stub) -> None:
    line = b'{"offset":%d,"messageId":"%d","publishTime":"2024-03-05T10:20:30.12Z","data":"eA=="}'
    lines = [line % (each, each) for each in ALL_OFFSETS]
    plain = headers(0, 10, 10) | {"content-type": "application/x-ndjson"}
    cut = b"\n".join(lines[:4])[:-5]
    stub.script = [Reply(200, cut, plain), Reply(200, b"\n".join(lines[3:]) + b"\n", plain | {"ams-first-offset": "3"})]

    assert (fetch(stub), list_queries(stub)[-1]) == (ALL_OFFSETS, "from=3&to=10&max=7")


def test_ordering_keys_are_read_in_both_forms(stub: Stub) -> None:
    keyed = pa.ipc.open_stream(stream([0, 1])).read_next_batch()
    keyed = keyed.set_column(4, arrow.SCHEMA.field("ordering_key"), pa.array(["bed 4", None]))
    line = b'{"offset":%d,"messageId":"0","publishTime":"2024-03-05T10:20:30.12Z",%b"data":"eA=="}\n'
    lines = line % (0, b'"orderingKey":"bed 4",') + line % (1, b"")
    stub.script = [
        Reply(200, write_stream(keyed), headers(0, 2, 2)),
        Reply(200, lines, headers(0, 2, 2) | {"content-type": "application/x-ndjson"}),
    ]

    assert [read_part(stub, stop=2).column("ordering_key").to_pylist() for _ in range(2)] == [["bed 4", None]] * 2


def test_a_service_that_stays_away_is_one_error(stub: Stub) -> None:
    stub.script = [CUT] * 50
    with pytest.raises(Unreachable, match=f"cannot reach {stub.url}"):
        fetch(stub, seconds=0.3)


@pytest.mark.parametrize(("status", "kind"), [(403, NotAllowed), (404, NotFound)])
def test_a_refusal_is_not_asked_again(stub: Stub, status: int, kind: type[Exception]) -> None:
    stub.script = [Reply(status, b'{"error":{"code":%d,"message":"no","status":""}}' % status)]
    with pytest.raises(kind):
        fetch(stub)
    assert len(stub.requests) == 1


def test_something_that_is_no_ams_is_told(stub: Stub) -> None:
    with pytest.raises(NotAms, match="does not answer as AMS"):
        fetch(stub)


def bounds(oldest: int) -> Reply:
    return Reply(200, b"", headers(oldest, oldest, 10))


@pytest.mark.parametrize(("script", "lost"), [
    ([answer(range(4, 10))], "messages 0 to 3 of topic garden/plants"),
    ([answer(range(3)), answer(range(6, 10)), bounds(6)], "messages 3 to 5"),
    ([answer(range(3), range(6, 10), first=0), bounds(6)], "messages from 3 on"),
    ([answer(range(3), first=0, stop=10), bounds(9)], "messages from 3 on"),
    ([answer(range(3), end=3), Reply(200, stream(), headers(3, 3, 3))], "messages 3 to 9"),
    ([Reply(400, b'{"error":{"code":400,"message":"Offset out of bounds","status":""}}')], "messages 0 to 9"),
    ([Reply(200, stream(), headers(12, 12, 20))], "messages 0 to 9"),
])  # fmt: skip
def test_what_is_kept_no_longer_fails_the_reading_or_is_warned_of(stub: Stub, script: list[Reply], lost: str) -> None:
    stub.script = list(script)
    with pytest.raises(DataLoss, match=f"{lost}.* are kept no longer; with failOnDataLoss=false"):
        fetch(stub)

    stub.script = list(script)
    with pytest.warns(LostMessages, match=lost):
        found = fetch(stub, fail=False)
    assert found == sorted(set(found))


def test_ids_that_never_were_messages_are_no_loss(stub: Stub) -> None:
    stub.script = [answer([0, 1, 5], [6, 9]), bounds(0)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fetch(stub) == [0, 1, 5, 6, 9]


def test_a_topic_is_a_table_of_its_messages(spark: SparkSession, garden: Garden) -> None:
    odd = Message(bytes(range(256)), {"naïve": "☃", "": "", "ams:x": "y"}, 'bed "4"')
    garden.topic("plants", [odd, Message(attributes={"n": "1"}), *make_messages(1)])

    found = spark.read.format("ams").options(**garden.options, topic="plants", minPartitions="2").load()

    assert found.schema == MESSAGES
    assert garden.served.token not in found._jdf.queryExecution().toString()
    rows = found.orderBy("offset").collect()
    assert [row.offset for row in rows] == [0, 1, 2]
    assert [row.message_id for row in rows] == ["0", "1", "2"]
    assert [row.ordering_key for row in rows] == ['bed "4"', None, None]
    assert {(row.project, row.topic) for row in rows} == {(garden.name, "plants")}
    assert [(bytes(row.data), row.attributes) for row in rows] == [
        (odd.data, dict(odd.attributes)), (b"", {"n": "1"}), (b"0", {}),
    ]  # fmt: skip


@pytest.mark.long
def test_a_batch_is_of_the_messages_between_two_times(spark: SparkSession, garden: Garden) -> None:
    garden.topic("plants", make_messages(40), make_messages(40, 40), make_messages(40, 80))
    times = [datetime.fromtimestamp(garden.served.clock.now / 1000 - ago, UTC).isoformat() for ago in (2, 1)]

    reader = spark.read.format("ams").options(**garden.options, topic="plants")
    found = reader.options(startingTimestamp=times[0], endingTimestamp=times[1]).load()

    assert sorted(row.offset for row in found.collect()) == [*range(40, 80)]
    assert reader.options(startingTimestamp=times[1], endingTimestamp=times[0]).load().count() == 0


def test_a_stream_resumes_and_the_cursor_follows(spark: SparkSession, garden: Garden, tmp_path: Path) -> None:
    garden.topic("plants")
    garden.subscription("spark", "plants")
    garden.publish("plants", make_messages(25))
    seen: list[tuple[int, int, int]] = []

    def note(batch: DataFrame, batch_id: int) -> None:
        seen.append((batch_id, batch.count(), garden.cursor("spark")))

    def catch_up() -> dict[str, Any]:
        options = {"subscription": "spark", "maxOffsetsPerTrigger": "10"}
        stream = spark.readStream.format("ams").options(**garden.options, **options).load()
        writer = stream.writeStream.foreachBatch(note).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        progress = query.lastProgress
        assert progress is not None
        return dict(progress["sources"][0])

    progress = catch_up()
    assert seen == [(0, 10, 0), (1, 10, 10), (2, 5, 20)]
    assert garden.cursor("spark") == 25
    here = f"{garden.name}/plants"
    assert plain(json.loads(progress["endOffset"])) == json.loads(progress["latestOffset"]) == {here: 25}

    garden.publish("plants", make_messages(3, 25))
    catch_up()
    assert seen[3:] == [(3, 3, 25)]
    assert garden.cursor("spark") == 28
