"""By which id messages were finished, where no other id may say so after it: exactly-once delivery.

There an acknowledgement by an older id is refused although the message is done: else two consumers would each believe
that theirs counted. Mostly nothing has to be remembered for this: a message that was given by one id in this run was
finished by that one. Only what has failed before, or was finished by an id of before the restart, is noted. Of what was
finished before this run nothing is known: whoever names it is believed for as long as leases of then may last.
"""

from collections.abc import Iterable

from ams.core.ack_ids import AckId, HandOutId
from ams.core.clock import Milliseconds
from ams.core.names import Offset
from ams.storage.cursors.acks import Progress

MOST_NOTED = 100_000
"""Messages, of which the newer half at least is known: repeated acknowledgements come soon."""


class Finishers:
    """The ids by which messages of one subscription were finished, in one run."""

    def __init__(self, before: Progress, grace_until: Milliseconds) -> None:
        """`before` is what was done before the run; leases of then last until `grace_until` at most."""
        self._before = before
        self._grace_until = grace_until
        self._newer: dict[Offset, str] = {}
        self._older: dict[Offset, str] = {}
        self._older_until = 0
        """Number of the newest hand-out when the last of the older ones was noted."""
        self._unknown_until = 0
        """Likewise of those that are forgotten: what is not noted of hand-outs up to it is not known."""

    def note(self, offsets: Iterable[Offset], text: str, number: int) -> None:
        """Note by which hand-out messages were finished, empty: by none; `number` is that of the newest there is."""
        self._newer.update(dict.fromkeys(offsets, text))
        if len(self._newer) >= MOST_NOTED // 2:
            self._unknown_until, self._older_until = self._older_until, number
            self._older, self._newer = self._newer, {}

    def forget(self, offsets: Iterable[Offset]) -> None:
        """Forget messages that are not finished after all."""
        for offset in offsets:
            self._newer.pop(offset, None)
            self._older.pop(offset, None)

    def forget_all(self, number: int) -> None:
        """Know nothing of hand-outs up to a number."""
        self._newer, self._older = {}, {}
        self._unknown_until = self._older_until = number

    def is_by(self, ack_id: AckId, given: HandOutId, now: Milliseconds) -> bool:
        """Whether a message that is done, or is being stored as done, was finished by this id, as far as is known."""
        offset, text = ack_id
        if offset < self._before.floor or offset in self._before.done:
            return now <= self._grace_until
        noted = self._newer.get(offset, self._older.get(offset))
        if noted is not None:
            return noted == text
        return given.run == self._before.run and given.attempt == 1 and given.number > self._unknown_until
