"""Google's client for Python publishes, with ordering keys: `python -m demo.pubsub.publisher HOST:PORT COUNT BOOK`."""

import sys
from pathlib import Path

from google.cloud import pubsub_v1

from demo.books import note
from demo.pubsub.site import PROJECT, TOPIC, readings

SECONDS = 120
"""For one message to be answered."""


def main() -> int:
    """Publish everything; write down what was answered."""
    endpoint, count, book = sys.argv[1:]
    publisher = pubsub_v1.PublisherClient(
        publisher_options=pubsub_v1.types.PublisherOptions(enable_message_ordering=True),
        client_options={"api_endpoint": endpoint},
    )
    topic = publisher.topic_path(PROJECT, TOPIC)
    sent = [(text, publisher.publish(topic, text.encode(), ordering_key=key)) for key, text in readings(int(count))]
    with Path(book).open("a", buffering=1) as file:
        for text, answer in sent:
            answer.result(SECONDS)
            note(file, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
