"""By which id each message was given back as failed at last: exactly-once delivery.

Clients repeat a call of which they do not know whether it was done, or that failed for other ids. A nack that was done
and comes again is told to be done then, as a repeated acknowledgement is, although its id counts no more. It changes
nothing: the failure is counted once.
"""

from collections import OrderedDict
from collections.abc import Iterable

from ams.core.ack_ids import AckId
from ams.core.names import Offset

MOST_NOTED = 100_000
"""Messages, those that were given back last: repeated nacks come soon."""


class Nacks:
    """The ids by which messages of one subscription were given back, in one run."""

    def __init__(self) -> None:
        self._noted: OrderedDict[Offset, str] = OrderedDict()

    def note(self, offsets: Iterable[Offset], text: str) -> None:
        """Note by which hand-out messages are given back."""
        for offset in offsets:
            self._noted[offset] = text
            self._noted.move_to_end(offset)
        while len(self._noted) > MOST_NOTED:
            self._noted.popitem(last=False)

    def forget(self, offsets: Iterable[Offset]) -> None:
        """Forget messages that are not given back after all."""
        for offset in offsets:
            self._noted.pop(offset, None)

    def has(self, ack_id: AckId) -> bool:
        """Whether the newest nack of a message, as far as is known, was by this id."""
        return self._noted.get(ack_id.offset) == ack_id.hand_out
