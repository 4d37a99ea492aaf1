"""A request with very much in it is refused before it is parsed, and none that is served is."""

from typing import Any
from unittest.mock import patch

import grpc
import pytest
from google.iam.v1 import iam_policy_pb2
from google.pubsub_v1 import types
from hypothesis import example, given
from hypothesis import strategies as st

from ams.core.errors import AmsError, InvalidInput
from ams.pubsub import wire
from ams.pubsub.calls import read
from ams.pubsub.messages import published
from tests.pubsub.conftest import World

pb: Any = types
Publish: Any = pb.PublishRequest.pb()
Message: Any = pb.PubsubMessage.pb()
KINDS = [Publish, pb.UpdateTopicRequest.pb(), pb.AcknowledgeRequest.pb(), iam_policy_pb2.SetIamPolicyRequest]
EMPTY_MESSAGE, EMPTY_ATTRIBUTE = b"\x12\x00", b"\x12\x00"
LARGEST = Publish(
    topic="T",
    messages=[
        Message(data=b"x", attributes={f"{i}": "" for i in range(100)}, ordering_key="k", message_id="1",
                publish_time={"seconds": 1, "nanos": 1})
    ] * 1000,
)  # fmt: skip
texts = st.text(max_size=5)
publishes = st.builds(
    lambda messages, topic: Publish(topic=topic, messages=messages),
    st.lists(
        st.builds(
            lambda data, attributes, key: Message(data=data, attributes=attributes, ordering_key=key),
            st.binary(max_size=200), st.dictionaries(texts, texts, max_size=5), texts
        ),
        max_size=20
    ),
    texts,
)  # fmt: skip


def looked_at(kind: Any, said: bytes) -> None:
    """Look at a request, however small it is."""
    with patch.object(wire, "SMALL", -1):
        wire.check(kind.DESCRIPTOR, said)


@given(publishes)
@example(LARGEST)
def test_no_publish_that_is_served_is_refused(request: Any) -> None:
    looked_at(Publish, request.SerializeToString())


@given(st.sampled_from(KINDS), st.one_of(st.binary(max_size=60), publishes.map(lambda each: each.SerializeToString())),
       st.integers(0, 100), st.integers(0, 255))  # fmt: skip
def test_what_is_no_message_is_refused_as_such_or_left_to_the_parser(kind: Any, said: bytes, at: int, to: int) -> None:
    changed = bytearray(said)
    if at < len(said):
        changed[at] = to
    try:
        looked_at(kind, bytes(changed))
    except InvalidInput:
        return


@pytest.mark.parametrize("count", [101, 117, 100_000])
def test_what_is_over_the_limits_of_a_publish_is_refused_before_it_is_parsed_or_after(count: int) -> None:
    many = Publish(messages=[Message(data=b"x" * 200)] * (900 + count))
    attributes = Publish(messages=[Message(attributes={f"{i}": "" for i in range(count)})])
    for each in (many, attributes):
        with pytest.raises(AmsError):
            published(read(Publish, each.SerializeToString()))


@pytest.mark.parametrize(
    ("kind", "said", "why"),
    [(Publish, EMPTY_MESSAGE * 1017, "message_count"),
     (Publish, b"\x12\x80\x80\x01" + EMPTY_ATTRIBUTE * 2**13, "too many attributes"),
     (Publish, b"\x0a\x00" * 2000, "message_count"),
     (KINDS[1], b"\x12\x00" * 10_001, "too much in it"),
     (KINDS[3], b"\x12\x80\x80\x08" + b"\x22\x00" * 2**16, "too much in it"),
     (KINDS[2], b"\x12\x00" * 262_145, "too large"),
     (Publish, b"\x0b" * 10, "no valid message"),  # a group
     (Publish, b"\x12\x05a", "no valid message"),
     (Publish, b"\x12" + b"\x80" * 20, "no valid message"),
    ],
)  # fmt: skip
def test_much_in_a_request_is_refused_before_it_is_parsed(kind: Any, said: bytes, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        looked_at(kind, said)


def test_a_small_request_and_one_of_ids_is_not_looked_at() -> None:
    wire.check(Publish.DESCRIPTOR, EMPTY_MESSAGE * (wire.SMALL // 2))
    wire.check(KINDS[2].DESCRIPTOR, b"\x12\x00" * (wire.MOST_FLAT // 2))


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_a_client_is_told_so(world: World, compression: Any) -> None:
    publish = world.channel.unary_unary("/google.pubsub.v1.Publisher/Publish")
    with pytest.raises(grpc.RpcError) as refused:
        publish(EMPTY_MESSAGE * 2_500_000, timeout=20, compression=compression)
    error: Any = refused.value
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == "The value for message_count is too large. The maximum value is 1000."
