"""Deliveries of one target: which address, which headers, which body, in how much time."""

from collections.abc import Sequence
from typing import NamedTuple

from ams.push.bodies import Bodies
from ams.push.headers import DeliveryHeaders
from ams.push.sending import Headers
from ams.push.target import Target
from ams.push.upstream import Pulled

MOST_SECONDS = 30.0
"""For one delivery, as in the reference (push contract 10)."""
LEAST_SECONDS = 1.0
"""Below this nothing could be delivered at all, whatever the acknowledgement's deadline."""
_MARGIN_SECONDS, _MARGIN = 1.0, 0.2
"""Kept for the acknowledgement: so much, or this part of what there is when that is less."""


class Delivery(NamedTuple):
    """One request to an endpoint."""

    headers: Headers
    body: bytes
    undecodable: int
    """See `ams.push.bodies.Body`."""


class Deliveries:
    """Makes the deliveries of one target; raises `ValueError` when there is something wrong with it."""

    def __init__(self, target: Target) -> None:
        self._bodies = Bodies(target)
        self._headers = DeliveryHeaders(target)
        config = target.config
        self.url = config.mattermost_url if self._bodies.is_mattermost else config.endpoint
        self.most = 1 if self._bodies.is_mattermost else max(1, config.max_messages)
        """Messages of one delivery (P12)."""

    def delivery(self, messages: Sequence[Pulled], *, attempt: int, now: int) -> Delivery:
        """Return the delivery of these messages; `attempt` from 1, `now` in seconds since the epoch."""
        content, undecodable = self._bodies.body(messages)
        headers = self._headers.headers(messages[0], messages[-1], content, attempt=attempt, now=now)
        return Delivery(headers, content, undecodable)


def seconds(patience: float | None) -> float:
    """Return how long a delivery may take when its messages must be acknowledged within `patience` seconds (P15)."""
    if patience is None:
        return MOST_SECONDS
    return min(MOST_SECONDS, max(LEAST_SECONDS, patience - min(_MARGIN_SECONDS, patience * _MARGIN)))
