"""Which messages travel together, and requests side by side."""

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.pipeline.sink.requests import Chunk, Chunker, Encoded, Lane, Limits, Sender

ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 60)), max_size=60)
LIMITS = st.builds(Limits, messages=st.integers(1, 5), bytes=st.integers(20, 120), open_bytes=st.integers(20, 200))


def _chunks(rows: list[tuple[str, int]], limits: Limits) -> list[Chunk]:
    chunker = Chunker(limits)
    chunks = [
        chunk
        for row, (topic, size) in enumerate(rows)
        for chunk in chunker.add(Lane(topic, "0"), Encoded(b"x" * size, str(row)))
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


def test_a_body_is_one_list_of_messages() -> None:
    chunker = Chunker(Limits(messages=2))

    [full] = [
        chunk
        for each in (b'{"data":"MQ=="}', b'{"data":"Mg=="}')
        for chunk in chunker.add(Lane("t", "0"), Encoded(each, ""))
    ]

    assert full.body() == b'{"messages":[{"data":"MQ=="},{"data":"Mg=="}]}'


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
    meeting = threading.Barrier(2, timeout=10)

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
