"""Google's Pub/Sub, by Google's client for Python: against a service over gRPC that stores nothing.

The client is a process of its own, `python -m bench.pubsub ACTION ADDRESS ...`, which prints figures in one line,
separated by blanks. So is the service that stores nothing, `python -m bench.pubsub bare`: it answers what clients send,
and streams messages that it makes up.
"""

import asyncio
import itertools
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from statistics import median
from typing import Any

import grpc
import uvloop
from google.cloud import pubsub_v1

from ams.pubsub import protos
from bench.processes import ROOT, Failed, Server, Service
from bench.report import Goal, Result, at_least, at_most, percentile, progress
from bench.run import Bench

SUBSCRIBERS = 4
STREAMS = 1000
IDLE_SECONDS = 30.0
"""Seconds in which each stream pings once, as clients do."""
MOST_A_SECOND = 15_000
"""Messages for subscribers per measured second."""
FLAGS = ("--pubsub-port", "0", "--pubsub-emulator")


SIZE = 1024
WARM_SECONDS = 1.0
TOPIC, SUBSCRIPTION = "projects/BENCH/topics/bench", "projects/BENCH/subscriptions/bench"
AT_ONCE = 100
KEY = "k"
OUTSTANDING = 1000
COLLECTED_SECONDS = 0.1
"""Batch size of Google's clients, and for how long they collect acknowledgements, except Python's."""


def pubsub(bench: Bench) -> Iterator[Result]:
    seconds = max(bench.plan.seconds, 3.0)
    with (
        bench.data_folder() as data,
        Server(["bench.pubsub", "bare"], data.with_name("bare.stderr")) as bare,
        bench.service(*FLAGS) as service,
    ):
        _ask("prepare", service.pubsub)
        yield _published(bench, service.pubsub, bare.url, seconds)
        _ask("fill", service.pubsub, str(int(bench.plan.pairs * (seconds + 3) * MOST_A_SECOND)))
        yield _streamed(bench, service.pubsub, bare.url, seconds)
    with bench.service(*FLAGS) as service:
        _ask("prepare", service.pubsub)
        _ask("fill", service.pubsub, str(int((seconds + 3) * MOST_A_SECOND)), KEY)
        yield _of_one_key(bench, service.pubsub, seconds)
    with bench.service(*FLAGS) as service:
        _ask("prepare", service.pubsub)
        yield from _latency(service.pubsub, bench.plan.latencies)
        yield _idle(service)


def _published(bench: Bench, address: str, bare: str, seconds: float) -> Result:
    pairs = bench.in_turn(
        "publish by Google's client, default batching",
        lambda: _rate("publish", address, seconds),
        lambda: _rate("publish", bare, seconds),
    )
    return _compared("pubsub-publish", {"bytes": 1024}, pairs, at_least(0.6))


def _streamed(bench: Bench, address: str, bare: str, seconds: float) -> Result:
    pairs = bench.in_turn(
        f"stream to {SUBSCRIBERS} subscribers",
        lambda: _rate("consume", address, seconds, SUBSCRIBERS),
        lambda: _rate("consume", bare, seconds, SUBSCRIBERS),
    )
    return _compared("pubsub-stream", {"subscribers": SUBSCRIBERS, "bytes": 1024}, pairs, at_least(0.5))


def _of_one_key(bench: Bench, address: str, seconds: float) -> Result:
    pairs = bench.in_turn(
        "stream messages of one ordering key to a subscriber that collects acknowledgements",
        lambda: float(_ask("consume-all", address, str(seconds), KEY)),
        lambda: float(_ask("consume-all", address, str(seconds), "")),
    )
    values = {
        "messages_s": median(keyed for keyed, _ in pairs),
        "unkeyed_messages_s": median(free for _, free in pairs),
    }
    ratio = median(keyed / free for keyed, free in pairs)
    return Result("pubsub-key", {"bytes": SIZE}, values, ratio, "messages/s without keys", at_least(0.33))


def _compared(case: str, params: dict[str, int | str], pairs: list[tuple[float, float]], goal: Goal) -> Result:
    values = {"messages_s": median(ours for ours, _ in pairs), "bare_messages_s": median(theirs for _, theirs in pairs)}
    ratio = median(ours / theirs for ours, theirs in pairs)
    return Result(case, params, values, ratio, "messages/s of a service that stores nothing", goal)


def _latency(address: str, times: int) -> Iterator[Result]:
    progress("  from publish to callback, idle")
    found = sorted(map(float, _ask("latency", address, str(times)).split()))
    p50, p99 = percentile(found, 50), percentile(found, 99)
    values = {"p50_ms": p50, "p99_ms": p99}
    yield Result("pubsub-latency-p50", {"times": times}, values, p50 / 10, "10 ms", at_most(1))
    yield Result("pubsub-latency-p99", {"times": times}, values, p99 / 50, "50 ms", at_most(1))


def _idle(service: Service) -> Result:
    progress(f"  {STREAMS} idle streams")
    share = asyncio.run(_idle_share(service))
    return Result("pubsub-idle", {"streams": STREAMS}, {"core": share}, share / 0.05, "5 % of a core", at_most(1))


async def _idle_share(service: Service) -> float:
    """Return the share of a core that a service takes with idle streams that ping as clients do."""
    channel = grpc.aio.insecure_channel(service.pubsub)
    calls = []
    for _ in range(STREAMS):
        call = channel.stream_stream(
            "/google.pubsub.v1.Subscriber/StreamingPull",
            lambda request: request.SerializeToString(),
            protos.StreamingPullResponse.FromString,
        )()
        await call.write(protos.StreamingPullRequest(subscription=SUBSCRIPTION, stream_ack_deadline_seconds=60))
        await call.read()
        calls.append(call)
    began, before = time.perf_counter(), service.processor_seconds()
    for call in calls:
        await call.write(protos.StreamingPullRequest())
        await asyncio.sleep(IDLE_SECONDS / STREAMS)
    share = (service.processor_seconds() - before) / (time.perf_counter() - began)
    for call in calls:
        call.cancel()
    await channel.close()
    return share


def _rate(what: str, address: str, seconds: float, clients: int = 1) -> float:
    running = [_client(what, address, str(seconds)) for _ in range(clients)]
    return sum(float(_said(each)) for each in running)


def _ask(*args: str) -> str:
    return _said(_client(*args))


def _client(*args: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "bench.pubsub", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def _said(client: "subprocess.Popen[str]") -> str:
    out, errors = client.communicate(timeout=300)
    if client.returncode:
        raise Failed(f"Google's client ended with {client.returncode}: {errors.strip().splitlines()[-1:]}")
    return out


def prepare() -> None:
    pubsub_v1.PublisherClient().create_topic(request={"name": TOPIC})
    pubsub_v1.SubscriberClient().create_subscription(request={"name": SUBSCRIPTION, "topic": TOPIC})


def publish(seconds: str) -> None:
    """Publish for so long by default batching; print messages a second, from the first answer to the last."""
    client, data = pubsub_v1.PublisherClient(), b"x" * SIZE
    client.publish(TOPIC, data).result()
    room = threading.Semaphore(5000)
    began, count, last = time.perf_counter(), 0, None
    while time.perf_counter() - began < float(seconds):
        room.acquire()
        last = client.publish(TOPIC, data)
        last.add_done_callback(lambda _: room.release())
        count += 1
    assert last is not None
    last.result()
    print(count / (time.perf_counter() - began))


def fill(count: str, key: str = "") -> None:
    options = pubsub_v1.types.PublisherOptions(enable_message_ordering=True)
    client, data = pubsub_v1.PublisherClient(publisher_options=options), b"x" * SIZE
    for future in [client.publish(TOPIC, data, ordering_key=key) for _ in range(int(count))]:
        future.result()


def consume_all(seconds: str, key: str) -> None:
    """Consume all published messages by a new subscription, with a key in order; print messages a second.

    As Google's clients for Go, Java and Node do: 1,000 messages at a time, acknowledgements collected for 100 ms. The
    one for Python makes a call for each message of a key.
    """
    name = f"{SUBSCRIPTION}-{time.monotonic_ns()}"
    client = pubsub_v1.SubscriberClient()
    client.create_subscription(request={"name": name, "topic": TOPIC, "enable_message_ordering": bool(key)})
    client.seek(request={"subscription": name, "time": datetime.fromtimestamp(0, UTC)})
    print(asyncio.run(_consumed(name, float(seconds))))


async def _consumed(name: str, seconds: float) -> float:
    count, ids = 0, list[str]()
    async with grpc.aio.insecure_channel(os.environ["PUBSUB_EMULATOR_HOST"]) as channel:
        service = "/google.pubsub.v1.Subscriber"
        stream = channel.stream_stream(
            f"{service}/StreamingPull", lambda each: each.SerializeToString(), protos.StreamingPullResponse.FromString
        )()
        acknowledge = channel.unary_unary(
            f"{service}/Acknowledge", lambda each: each.SerializeToString(), protos.Empty.FromString
        )

        async def read() -> None:
            nonlocal count
            async for response in stream:
                ids.extend([each.ack_id for each in response.received_messages])
                count += len(response.received_messages)

        async def say() -> None:
            while True:
                await asyncio.sleep(COLLECTED_SECONDS)
                said, ids[:] = ids[:], []
                if said:
                    await acknowledge(protos.AcknowledgeRequest(subscription=name, ack_ids=said))

        await stream.write(
            protos.StreamingPullRequest(
                subscription=name, stream_ack_deadline_seconds=60, max_outstanding_messages=OUTSTANDING
            )
        )
        tasks = [asyncio.ensure_future(each) for each in (read(), say())]
        await asyncio.sleep(WARM_SECONDS)
        before, began = count, time.perf_counter()
        await asyncio.sleep(seconds)
        rate = (count - before) / (time.perf_counter() - began)
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        stream.cancel()
    return rate


def consume(seconds: str) -> None:
    """Acknowledge messages for so long, after a warm-up; print messages a second."""
    count = 0

    def take(message: Any) -> None:
        nonlocal count
        count += 1
        message.ack()

    future = pubsub_v1.SubscriberClient().subscribe(SUBSCRIPTION, take)
    time.sleep(WARM_SECONDS)
    before, began = count, time.perf_counter()
    time.sleep(float(seconds))
    print((count - before) / (time.perf_counter() - began))
    future.cancel()
    os._exit(0)  # unfinished work does not matter any more


def latency(times: str) -> None:
    """Print milliseconds from a publish, which is sent at once, to its callback."""
    came = threading.Event()

    def take(message: Any) -> None:
        message.ack()
        came.set()

    batch = pubsub_v1.types.BatchSettings(max_messages=1)
    publisher = pubsub_v1.PublisherClient(batch_settings=batch)
    pubsub_v1.SubscriberClient().subscribe(SUBSCRIPTION, take)
    time.sleep(WARM_SECONDS)
    found = []
    for _ in range(int(times)):
        came.clear()
        began = time.perf_counter()
        publisher.publish(TOPIC, b"x")
        came.wait(10)
        found.append((time.perf_counter() - began) * 1000)
        time.sleep(0.02)
    print(*found)
    sys.stdout.flush()
    os._exit(0)


_numbers = itertools.count()
_streams = itertools.count()
_acknowledged: Counter[int] = Counter()
_freed: dict[int, asyncio.Event] = {}


async def _publish(request: Any, context: Any) -> Any:
    return protos.PublishResponse(message_ids=[str(next(_numbers)) for _ in request.messages])


async def _acknowledge(request: Any, context: Any) -> Any:
    for stream, count in Counter([each.partition("-")[0] for each in request.ack_ids]).items():
        _acknowledged[int(stream)] += count
        _freed[int(stream)].set()
    return protos.Empty()


async def _extend(request: Any, context: Any) -> Any:
    return protos.Empty()


async def _stream(requests: Any, context: Any) -> None:
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


async def serve_bare() -> None:
    server = grpc.aio.server(options=(("grpc.max_receive_message_length", 20 * 2**20),))
    publisher = {"Publish": _unary(_publish, protos.PublishRequest)}
    subscriber = {
        "Acknowledge": _unary(_acknowledge, protos.AcknowledgeRequest),
        "ModifyAckDeadline": _unary(_extend, protos.ModifyAckDeadlineRequest),
        "StreamingPull": grpc.stream_stream_rpc_method_handler(
            _stream, protos.StreamingPullRequest.FromString, lambda answer: answer.SerializeToString()
        ),
    }
    for service, handlers in (("Publisher", publisher), ("Subscriber", subscriber)):
        name = f"google.pubsub.v1.{service}"
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"ready 127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


def main() -> None:
    """Be the service that stores nothing, or a client that does one of these."""
    what, *rest = sys.argv[1:]
    if what == "bare":
        uvloop.run(serve_bare())
        return
    os.environ["PUBSUB_EMULATOR_HOST"] = rest[0]
    actions: dict[str, Callable[..., None]] = {
        "prepare": prepare, "publish": publish, "fill": fill, "consume": consume, "consume-all": consume_all,
        "latency": latency,
    }  # fmt: skip
    actions[what](*rest[1:])


if __name__ == "__main__":
    main()
