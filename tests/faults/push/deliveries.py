"""What came to a receiver, read as deliveries: which messages, when, to which subscription's endpoint."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tests.faults.attempts import Held
from tests.faults.payload import message as message
from tests.faults.payload import name_of
from tests.support.receiving.requests import Received

POISON = "poison"
"""Messages whose name begins so are refused by `/refuse/poison` (`tests.support.receiving`)."""


class Delivery(NamedTuple):
    subscription: str
    items: tuple[Held, ...]
    came: float
    """Seconds since the epoch."""

    @property
    def first(self) -> int:
        return self.items[0].id

    @property
    def last(self) -> int:
        return self.items[-1].id

    @property
    def refused(self) -> bool:
        """Whether the endpoint takes nothing that has poison in it."""
        return any(item.name.startswith(POISON) for item in self.items)


def read(requests: Iterable[Received]) -> list[Delivery]:
    return [delivery(request.body, request.time) for request in sorted(requests, key=lambda each: each.time)]


def delivery(body: str, came: float) -> Delivery:
    document = json.loads(body)
    held: Sequence[dict[str, Any]] = document.get("messages", [document])
    items = tuple(
        Held(int(each["message"]["messageId"]), name_of(each["message"].get("attributes", {}), each["message"]["data"]))
        for each in held
    )
    [subscription] = {each["subscription"] for each in held}
    return Delivery(subscription.rpartition("/")[2], items, came)
