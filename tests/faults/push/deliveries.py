"""What came to a receiver, read as deliveries: which messages, when, to which subscription's endpoint."""

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tests.support.receiving.requests import Received

POISON = "poison"
"""Messages whose name begins so are refused by `/refuse/poison` (`tests.support.receiving`)."""


class Item(NamedTuple):
    """A message in a delivery: its id, and a name that tells its content from all others."""

    id: int
    name: str


class Delivery(NamedTuple):
    """One request to an endpoint."""

    subscription: str
    items: tuple[Item, ...]
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


def message(name: str) -> dict[str, Any]:
    """Return the message of this name as a publisher sends it; all of it follows from the name."""
    return {"attributes": {"name": name}, "data": _data(name)}


def _data(name: str) -> str:
    return base64.b64encode(f"{name}#{hashlib.blake2b(name.encode()).hexdigest()}".encode()).decode()


def name_of(held: dict[str, Any]) -> str:
    """Recognise a message; an altered one gets a name that nobody published."""
    name = str(held.get("attributes", {}).get("name", "(nameless)"))
    return name if held["data"] == _data(name) else f"{name} (altered)"


def read(requests: Iterable[Received]) -> list[Delivery]:
    """Read requests as deliveries, in the order in which they came."""
    return [delivery(request.body, request.time) for request in sorted(requests, key=lambda each: each.time)]


def delivery(body: str, came: float) -> Delivery:
    """Read one delivery, of one message or of several."""
    document = json.loads(body)
    held: Sequence[dict[str, Any]] = document.get("messages", [document])
    items = tuple(Item(int(each["message"]["messageId"]), name_of(each["message"])) for each in held)
    [subscription] = {each["subscription"] for each in held}
    return Delivery(subscription.rpartition("/")[2], items, came)
