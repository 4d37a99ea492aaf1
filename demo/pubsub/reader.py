"""The official library of AMS, unmodified: `python -m demo.pubsub.reader HOST:PORT TOKEN-FILE BOOK`.

Its subscription is an ordered one: an acknowledgement stands for everything before it.
"""

import signal
import sys
from pathlib import Path

from argo_ams_library import ArgoMessagingService

from demo.pubsub.books import receive
from demo.pubsub.site import ARCHIVE, PROJECT

PULL = 500
"""Messages of a pull."""
CALL_SECONDS = 30


def main() -> int:
    """Read until SIGTERM."""
    endpoint, token, book = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ams = ArgoMessagingService(endpoint=endpoint, token=Path(token).read_text(), project=PROJECT)
    with Path(book).open("a", buffering=1) as file:
        while True:
            received = ams.pull_sub(ARCHIVE, PULL, timeout=CALL_SECONDS)
            for _, message in received:
                receive(file, message.get_data().decode())
            if received:
                ams.ack_sub(ARCHIVE, [received[-1][0]], timeout=CALL_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
