"""Refusals: which answers accept a delivery, which refuse its messages, and how often each message was refused.

A message that is refused again and again would hold up all behind it (P11). Where there is a dead letter topic it goes
there, once it was alone in a body, so that it is known to be the one, and was refused as often as configured.
"""

from collections.abc import Sequence

from ams.core.push_config import MATTERMOST, PushConfig
from ams.push.upstream import Pulled

ACCEPTED = frozenset({102, 200, 201, 202, 204})
"""Statuses of endpoints that took the messages (push contract 15, P17)."""
ACCEPTED_BY_MATTERMOST = frozenset({200})
GONE = 410
"""The endpoint wants nothing any more."""
ASKS_FOR_TIME = frozenset({429, 503})
"""Statuses whose `Retry-After` is kept to."""
_NOT_OF_THE_MESSAGE = frozenset({408, 410, 425, 429, 502, 503, 504})
"""Statuses that tell of the endpoint, or of what stands before it, and nothing of what was sent."""


def accepted(config: PushConfig) -> frozenset[int]:
    """Return the statuses by which an endpoint says that it has the messages."""
    return ACCEPTED_BY_MATTERMOST if config.type == MATTERMOST else ACCEPTED


class Refusals:
    """Counts how often messages were refused, in memory: after a restart it begins anew."""

    def __init__(self, config: PushConfig) -> None:
        self._most = config.max_delivery_attempts if config.dead_letter_topic else 0
        self._counts: dict[int, int] = {}

    def refused(self, messages: Sequence[Pulled], status: int) -> int:
        """Note that a body was not accepted; return how often its message was if it shall be put aside now, else 0."""
        if not self._most or status in _NOT_OF_THE_MESSAGE:
            return 0
        self._forget_before(messages[0].offset)
        for each in messages:
            self._counts[each.offset] = self._counts.get(each.offset, 0) + 1
        count = self._counts[messages[0].offset]
        return count if len(messages) == 1 and count >= self._most else 0

    def dead_lettered(self) -> None:
        """Note that a message was put aside: it was to blame for the others in its bodies too."""
        self._counts.clear()

    def passed(self, last: Pulled) -> None:
        """Note that everything up to `last` is done with."""
        if self._counts:
            self._forget_before(last.offset + 1)

    def _forget_before(self, offset: int) -> None:
        for each in [each for each in self._counts if each < offset]:
            del self._counts[each]
