"""Google's client for Python consumes a stream: `python -m demo.pubsub.subscriber HOST:PORT BOOK`."""

import signal
import sys
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path

from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.subscriber.message import Message

from demo.pubsub.books import receive
from demo.pubsub.site import LEASE, PROJECT, STATIONS, is_broken


def main() -> int:
    """Handle what comes until SIGTERM."""
    endpoint, book = sys.argv[1:]
    subscriber = pubsub_v1.SubscriberClient(client_options={"api_endpoint": endpoint})
    with Path(book).open("a", buffering=1) as file:

        def handle(message: Message) -> None:
            text = message.data.decode()
            receive(file, text)
            if is_broken(text):
                message.nack()
            else:
                message.ack()

        stream = subscriber.subscribe(
            subscriber.subscription_path(PROJECT, STATIONS),
            handle,
            flow_control=pubsub_v1.types.FlowControl(max_duration_per_lease_extension=LEASE),
        )
        signal.signal(signal.SIGTERM, lambda *_: stream.cancel())
        with suppress(CancelledError):
            stream.result()
    return 0


if __name__ == "__main__":
    sys.exit(main())
