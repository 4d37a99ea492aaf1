"""Requests side by side."""

import threading
import time

import pytest

from ams.pipeline.sink.chunks import Chunk, Lane
from ams.pipeline.sink.sending import Sender


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
