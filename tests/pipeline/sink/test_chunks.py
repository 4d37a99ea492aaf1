"""Which messages travel together."""

from hypothesis import given
from hypothesis import strategies as st

from ams.pipeline.sink.chunks import Chunk, Chunker, Encoded, Lane, Limits

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


@given(ROWS, LIMITS)
def test_the_same_rows_make_the_same_requests(rows: list[tuple[str, int]], limits: Limits) -> None:
    again = [(chunk.lane, chunk.number, chunk.body()) for chunk in _chunks(rows, limits)]

    assert [(chunk.lane, chunk.number, chunk.body()) for chunk in _chunks(rows, limits)] == again


def test_a_body_is_one_list_of_messages() -> None:
    chunker = Chunker(Limits(messages=2))

    [full] = [
        chunk
        for each in (b'{"data":"MQ=="}', b'{"data":"Mg=="}')
        for chunk in chunker.add(Lane("t", "0"), Encoded(each, ""))
    ]

    assert full.body() == b'{"messages":[{"data":"MQ=="},{"data":"Mg=="}]}'
