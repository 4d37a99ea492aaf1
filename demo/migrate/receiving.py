"""The receiver of pushes, who notes what comes more than once and whether it comes with the header of old."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import msgspec

from ams.http.tls import self_signed
from demo.migrate.site import Pushed, Who
from demo.pushing import Receiver

HEADER = Who("receiver", "header").token
HASH = Who("receiver", "hash").token


class Counting(Receiver):
    """An endpoint that counts how often each text came."""

    def __init__(self, ca: str, chain: str, key: str) -> None:
        super().__init__(ca, chain, key)
        self.times: Counter[str] = Counter()
        self.verification_hash = HASH

    @property
    def pushed(self) -> Pushed:
        """Return how the old side knows it."""
        return Pushed(self.url, HASH, HEADER)

    def note(self, body: bytes) -> None:
        """Count what was delivered."""
        super().note(body)
        for each in msgspec.json.decode(body, type=dict[str, Any]).get("messages", ()):
            self.times[self.received[each["message"]["messageId"]].data.decode()] += 1


@contextmanager
def receiving() -> Iterator[Counting]:
    """Receive until the block ends."""
    with TemporaryDirectory(prefix="ams-migrate-") as folder, Counting(*self_signed(folder)) as receiver:
        Thread(target=receiver.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield receiver
        finally:
            receiver.shutdown()
