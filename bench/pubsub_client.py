"""Google's client for Python, in a process of its own: `python -m bench.pubsub_client ACTION ADDRESS ...`.

It prints one line of figures, separated by blanks.
"""

import os
import sys
import threading
import time
from typing import Any

SIZE = 1024
WARM_SECONDS = 1.0
TOPIC, SUBSCRIPTION = "projects/BENCH/topics/bench", "projects/BENCH/subscriptions/bench"


def prepare() -> None:
    """Make a topic and a subscription."""
    from google.cloud import pubsub_v1

    pubsub_v1.PublisherClient().create_topic(request={"name": TOPIC})
    pubsub_v1.SubscriberClient().create_subscription(request={"name": SUBSCRIPTION, "topic": TOPIC})


def publish(seconds: float) -> None:
    """Publish for so long by default batching; print messages a second, from the first answer to the last."""
    from google.cloud import pubsub_v1

    client, data = pubsub_v1.PublisherClient(), b"x" * SIZE
    client.publish(TOPIC, data).result()
    room = threading.Semaphore(5000)
    began, count, last = time.perf_counter(), 0, None
    while time.perf_counter() - began < seconds:
        room.acquire()
        last = client.publish(TOPIC, data)
        last.add_done_callback(lambda _: room.release())
        count += 1
    assert last is not None
    last.result()
    print(count / (time.perf_counter() - began))


def fill(count: int) -> None:
    """Publish so many messages."""
    from google.cloud import pubsub_v1

    client, data = pubsub_v1.PublisherClient(), b"x" * SIZE
    for future in [client.publish(TOPIC, data) for _ in range(count)]:
        future.result()


def consume(seconds: float) -> None:
    """Acknowledge what comes for so long, after a while; print messages a second."""
    from google.cloud import pubsub_v1

    count = 0

    def take(message: Any) -> None:
        nonlocal count
        count += 1
        message.ack()

    future = pubsub_v1.SubscriberClient().subscribe(SUBSCRIPTION, take)
    time.sleep(WARM_SECONDS)
    before, began = count, time.perf_counter()
    time.sleep(seconds)
    print((count - before) / (time.perf_counter() - began))
    future.cancel()
    os._exit(0)  # what is under way does not matter any more


def latency(times: int) -> None:
    """Print milliseconds from a publish, which is sent at once, to its callback."""
    from google.cloud import pubsub_v1

    came = threading.Event()

    def take(message: Any) -> None:
        message.ack()
        came.set()

    batch = pubsub_v1.types.BatchSettings(max_messages=1)
    publisher = pubsub_v1.PublisherClient(batch_settings=batch)
    pubsub_v1.SubscriberClient().subscribe(SUBSCRIPTION, take)
    time.sleep(WARM_SECONDS)
    found = []
    for _ in range(times):
        came.clear()
        began = time.perf_counter()
        publisher.publish(TOPIC, b"x")
        came.wait(10)
        found.append((time.perf_counter() - began) * 1000)
        time.sleep(0.02)
    print(*found)
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    """Do one of these."""
    what, address, *rest = sys.argv[1:]
    os.environ["PUBSUB_EMULATOR_HOST"] = address
    {
        "prepare": lambda: prepare(),
        "publish": lambda: publish(float(rest[0])),
        "fill": lambda: fill(int(rest[0])),
        "consume": lambda: consume(float(rest[0])),
        "latency": lambda: latency(int(rest[0])),
    }[what]()


if __name__ == "__main__":
    main()
