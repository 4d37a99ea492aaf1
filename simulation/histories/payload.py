"""Messages that tell who they are: from its name follows everything a message holds, so one look finds any change."""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

from simulation.histories.attempts import Held, Leased

SIZES = (0, 40, 200, 1024, 4096)  # bytes of filling; most messages are small, so that a campaign has many
_WEIGHTS = (20, 50, 20, 8, 2)

KEYS = 40
POISONED = 150


def message(name: str) -> dict[str, Any]:
    """Return the message of this name as a publisher sends it."""
    return {"attributes": {"name": name}, "data": _data(name)}


def keyed_message(name: str) -> dict[str, Any]:
    return {**message(name), "orderingKey": ordering_key(name)}


def ordering_key(name: str) -> str:
    """Return the ordering key that the message of this name has where messages have one."""
    return f"key-{_number(name) % KEYS}"


def is_poisoned(name: str) -> bool:
    """Whether handlers fail with the message of this name, however often."""
    return _number(name) // KEYS % POISONED == 0


def name_of(attributes: Mapping[str, str], data: str) -> str:
    """Recognise a message; an altered one gets a name that nobody published."""
    name = attributes.get("name", "(nameless)")
    return name if data == _data(name) else f"{name} (altered)"


def held(received: Mapping[str, Any]) -> Held:
    """Read one of a pull's `receivedMessages`."""
    body = received["message"]
    name = name_of(body.get("attributes", {}), body["data"])
    if received["ackId"].rpartition(":")[2] != body["messageId"]:
        name += f" (altered: acknowledged as {received['ackId']})"
    return Held(int(body["messageId"]), name)


def leased_message(message_id: str, attributes: Mapping[str, str], data: str, ack_id: str) -> Leased:
    """Read a message that was leased, by HTTP or by a stream."""
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
