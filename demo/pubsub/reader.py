"""The official library of AMS, unmodified: `python -m demo.pubsub.reader HOST:PORT TOKEN-FILE BOOK`.

Its subscription is an ordered one: an acknowledgement stands for everything before it.
"""

from typing import TextIO

from argo_ams_library import ArgoMessagingService

from demo.library import CALL_SECONDS, go_on
from demo.pubsub.books import receive
from demo.pubsub.site import ARCHIVE, PROJECT

PULL = 500
"""Messages of a pull."""


def read(ams: ArgoMessagingService, book: TextIO) -> None:
    """Write down what comes by one pull, and acknowledge it."""
    received = ams.pull_sub(ARCHIVE, PULL, timeout=CALL_SECONDS)
    for _, message in received:
        receive(book, message.get_data().decode())
    if received:
        ams.ack_sub(ARCHIVE, [received[-1][0]], timeout=CALL_SECONDS)


if __name__ == "__main__":
    go_on(PROJECT, read)
