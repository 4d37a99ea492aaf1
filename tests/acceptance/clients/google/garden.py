"""The program of docs/how-to/google-clients.md for Python: `garden.py [SECONDS]` waits before it publishes."""

import os
import sys
import threading
import time
from typing import Any

from google.cloud import pubsub_v1
from google.oauth2.credentials import Credentials
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

COUNT = 20
TOPIC = "projects/greenhouse/topics/readings"
BEDS, LEDGER = "projects/greenhouse/subscriptions/beds", "projects/greenhouse/subscriptions/ledger"

pause = float(sys.argv[1]) if len(sys.argv) > 1 else 0  # seconds before anything is published
connection: dict[str, Any] = {}
if "PUBSUB_EMULATOR_HOST" not in os.environ:
    connection = {
        "credentials": Credentials(os.environ["PUBSUB_TOKEN"]),
        "client_options": {"api_endpoint": os.environ["PUBSUB_ENDPOINT"]},
    }
trace.set_tracer_provider(TracerProvider())
options = pubsub_v1.types.PublisherOptions(enable_message_ordering=True, enable_open_telemetry_tracing=True)
publisher = pubsub_v1.PublisherClient(publisher_options=options, **connection)
subscriber = pubsub_v1.SubscriberClient(**connection)
publisher.create_topic(name=TOPIC)
subscriber.create_subscription(request={"name": BEDS, "topic": TOPIC, "enable_message_ordering": True})
subscriber.create_subscription(request={"name": LEDGER, "topic": TOPIC, "enable_exactly_once_delivery": True})

order: dict[str, list[int]] = {f"bed-{n}": [] for n in range(4)}
again: list[int] = []
confirmed: list[str] = []
all_in_order, left = threading.Event(), threading.Semaphore(0)


def in_order(message: Any) -> None:
    n = int(message.data)
    if n == 6 and not again:
        again.append(n)
        message.nack()  # it comes again, and so does what follows it in its bed
        return
    assert message.attributes["sensor"] == f"sensor-{n % 4}"
    assert message.attributes["googclient_traceparent"]
    bed = message.ordering_key
    order[bed] = [each for each in order[bed] if each < n] + [n]
    message.ack()
    if sum(map(len, order.values())) == COUNT:
        all_in_order.set()


def once(message: Any) -> None:
    message.ack_with_response().result()  # it is there when the acknowledgement is kept for good
    confirmed.append(message.message_id)
    left.release()


streams = [subscriber.subscribe(BEDS, in_order), subscriber.subscribe(LEDGER, once)]
time.sleep(pause)
futures = [
    publisher.publish(TOPIC, str(n).encode(), ordering_key=f"bed-{n % 4}", sensor=f"sensor-{n % 4}")
    for n in range(COUNT)
]
published = [each.result() for each in futures]
all_in_order.wait()
for _ in range(COUNT):
    left.acquire()

for bed in sorted(order):
    print(bed, *order[bed])
for each in streams:
    each.cancel()
    each.result()
for name in (BEDS, LEDGER):
    subscriber.delete_subscription(subscription=name)
publisher.delete_topic(topic=TOPIC)
publisher.stop()
subscriber.close()
print(f"published {len(published)} confirmed {len(confirmed)} again {len(again)}")
