"""Google's Pub/Sub that stores nothing: it answers what clients send, and streams messages that it makes up."""

import asyncio
import itertools
from collections import Counter
from typing import Any

import grpc

from ams.pubsub import protos

SIZE = 1024
AT_ONCE = 100
_numbers = itertools.count()
_streams = itertools.count()
_acknowledged: Counter[int] = Counter()
_freed: dict[int, asyncio.Event] = {}


async def publish(request: Any, context: Any) -> Any:
    """Answer a publish."""
    return protos.PublishResponse(message_ids=[str(next(_numbers)) for _ in request.messages])


async def acknowledge(request: Any, context: Any) -> Any:
    """Give streams room."""
    for stream, count in Counter([each.partition("-")[0] for each in request.ack_ids]).items():
        _acknowledged[int(stream)] += count
        _freed[int(stream)].set()
    return protos.Empty()


async def extend(request: Any, context: Any) -> Any:
    """Answer an extension."""
    return protos.Empty()


async def stream(requests: Any, context: Any) -> None:
    """Send messages as long as the client has room."""
    number, first = next(_streams), await context.read()
    freed = _freed[number] = asyncio.Event()
    sent, data = 0, b"x" * SIZE
    time = protos.Timestamp(seconds=1_700_000_000)
    while True:
        if sent - _acknowledged[number] >= first.max_outstanding_messages:
            freed.clear()
            await freed.wait()
            continue
        response = protos.StreamingPullResponse()
        response.subscription_properties.SetInParent()
        for each in range(sent, sent + AT_ONCE):
            message = protos.PubsubMessage(data=data, message_id=str(each), publish_time=time)
            response.received_messages.append(protos.ReceivedMessage(ack_id=f"{number}-{each}", message=message))
        await context.write(response)
        sent += AT_ONCE


def _unary(act: Any, request: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(act, request.FromString, lambda answer: answer.SerializeToString())


async def main() -> None:
    """Serve until it is stopped."""
    server = grpc.aio.server(options=(("grpc.max_receive_message_length", 20 * 2**20),))
    publisher = {"Publish": _unary(publish, protos.PublishRequest)}
    subscriber = {
        "Acknowledge": _unary(acknowledge, protos.AcknowledgeRequest),
        "ModifyAckDeadline": _unary(extend, protos.ModifyAckDeadlineRequest),
        "StreamingPull": grpc.stream_stream_rpc_method_handler(
            stream, protos.StreamingPullRequest.FromString, lambda answer: answer.SerializeToString()
        ),
    }
    for service, handlers in (("Publisher", publisher), ("Subscriber", subscriber)):
        name = f"google.pubsub.v1.{service}"
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"ready 127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
