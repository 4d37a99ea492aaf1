"""Streams whose requests and responses a test controls, and calls with plain messages."""

import queue
from typing import Any

import grpc
from google.iam.v1 import iam_policy_pb2, policy_pb2
from google.protobuf import empty_pb2
from google.pubsub_v1 import types

SECONDS = 90
STREAMING_PULL = "/google.pubsub.v1.Subscriber/StreamingPull"
Request: Any = types.StreamingPullRequest.pb()
Response: Any = types.StreamingPullResponse.pb()
Metadata = tuple[tuple[str, str], ...]


class Stream:
    def __init__(self, channel: grpc.Channel, *, seconds: float = SECONDS, metadata: Metadata = ()) -> None:
        """Open it, with a deadline in seconds."""
        self.ended_with = 0
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        begin = channel.stream_stream(STREAMING_PULL, _bytes, Response.FromString)
        self.call: Any = begin(iter(self._requests.get, None), seconds, metadata)

    def send(self, request: bytes | None = None, **fields: object) -> None:
        self._requests.put(Request(**fields) if request is None else request)

    def close(self) -> None:
        self._requests.put(None)

    def next(self) -> Any:
        return next(self.call)

    def messages(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            found += self.next().received_messages
        return found

    def end(self) -> tuple[grpc.StatusCode, str]:
        """Read to the end; return its code and text, and keep the number of messages before it (`ended_with`)."""
        try:
            for each in self.call:
                self.ended_with += len(each.received_messages)
        except grpc.RpcError:
            pass
        finally:
            self._requests.put(None)
        return self.call.code(), self.call.details()


def open_stream(channel: grpc.Channel, subscription: str, *, metadata: Metadata = (), **fields: object) -> Stream:
    stream = Stream(channel, metadata=metadata)
    stream.send(**{"subscription": subscription, "stream_ack_deadline_seconds": 10, **fields})
    stream.next()
    return stream


def ask(channel: grpc.Channel, method: str, request: object, *, metadata: Metadata = ()) -> bytes:
    call: Any = channel.unary_unary(method, _bytes)
    answer: bytes = call(request, timeout=SECONDS, metadata=metadata)
    return answer


def get_refusal(channel: grpc.Channel, method: str, request: object, *, metadata: Metadata = ()) -> tuple[str, str]:
    try:
        ask(channel, method, request, metadata=metadata)
    except grpc.RpcError as error:
        found: Any = error
        return found.code().name, found.details()
    return "OK", ""


def _bytes(message: Any) -> bytes:
    found: bytes = message if isinstance(message, bytes) else message.SerializeToString()
    return found


Policy: Any = policy_pb2.Policy
Empty: Any = empty_pb2.Empty
iam: Any = iam_policy_pb2
