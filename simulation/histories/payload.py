"""Messages whose content follows from their name, so that any change is found."""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

from simulation.histories.attempts import Held, Leased

SIZES = (0, 40, 200, 1024, 4096)  # bytes of padding; mostly small, so that a campaign has many messages
_WEIGHTS = (20, 50, 20, 8, 2)

KEYS = 40
POISONED = 150


def message(name: str) -> dict[str, Any]:
    """Return the message of this name as a publisher sends it."""
    return {"attributes": {"name": name}, "data": _data(name)}


def keyed_message(name: str) -> dict[str, Any]:
    return {**message(name), "orderingKey": ordering_key(name)}


def ordering_key(name: str) -> str:
    """Return the ordering key of the message of this name."""
    return f"key-{_number(name) % KEYS}"


def is_poisoned(name: str) -> bool:
    """Return whether handlers always fail with the message of this name."""
    return _number(name) // KEYS % POISONED == 0


def name_of(attributes: Mapping[str, str], data: str) -> str:
    """Return a message's name; an altered message gets a name that nobody published."""
    name = attributes.get("name", "(nameless)")
    return name if data == _data(name) else f"{name} (altered)"


def read_lease(received: Mapping[str, Any]) -> Held:
    """Read one of a pull's `receivedMessages`."""
    body = received["message"]
    name = name_of(body.get("attributes", {}), body["data"])
    if received["ackId"].rpartition(":")[2] != body["messageId"]:
        name += f" (altered: acknowledged as {received['ackId']})"
    return Held(int(body["messageId"]), name)


def leased_message(message_id: str, attributes: Mapping[str, str], data: str, ack_id: str) -> Leased:
    """Parse a delivered message, from HTTP or a stream."""
    name = name_of(attributes, data)
    offset, dash, _ = ack_id.rpartition(":")[2].partition("-")
    if offset != message_id or not dash:
        name += f" (altered: acknowledged as {ack_id})"
    return Leased(int(message_id), name, ack_id)


def _number(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest())


def _data(name: str) -> str:
    digest = hashlib.blake2b(name.encode(), digest_size=32).digest()
    filling = (digest.hex() * 64)[: _size(digest)]
    return base64.b64encode(f"{name}#{filling}".encode()).decode()


def _size(digest: bytes) -> int:
    place = digest[0] * sum(_WEIGHTS) // 256
    for size, weight in zip(SIZES, _WEIGHTS, strict=True):
        place -= weight
        if place < 0:
            return size
    raise AssertionError("the weights cover every place")
