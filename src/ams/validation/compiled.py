"""One revision of a schema, ready to be asked about messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from ams.core.errors import InvalidInput
from ams.core.messages import Message, decoded_data
from ams.validation.attributes import AttributeRules
from ams.validation.avro import AvroSchema
from ams.validation.budget import EACH, Budget
from ams.validation.json_schema import JsonSchema
from ams.validation.limits import check_size

JSON, AVRO = "json", "avro"
_ALPHABET = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


class Payload(Protocol):
    """A compiled schema of payloads."""

    def check(self, index: int, data: bytes, budget: Budget) -> None:
        """Raise `InvalidInput` with the text of contract 15.3 for message number `index`, `TooMuch` over the budget."""
        ...


@dataclass(frozen=True, slots=True)
class Compiled:
    """What messages must be; a part that is None allows anything."""

    payload: Payload | None
    attributes: AttributeRules | None
    memory: int = 0
    """Bytes it takes at most."""

    def check(self, index: int, message: Message, budget: Budget) -> None:
        """Raise `InvalidInput` that names message number `index` and what is wrong with it.

        This and the others raise `TooMuch` when there is more to do than the budget allows.
        """
        self.check_data(index, message.data, budget)
        if self.attributes:
            self.attributes.check(index, message.attributes, budget)

    def check_data(self, index: int, data: str, budget: Budget) -> None:
        """Check base64 text alone; raise `InvalidInput`."""
        budget.spend(EACH + len(data) // 32)
        self.check_payload(index, decoded(index, data), budget)

    def check_payload(self, index: int, payload: bytes, budget: Budget) -> None:
        """Check decoded data alone; raise `InvalidInput`."""
        if self.payload:
            self.payload.check(index, payload, budget)


def compile_schema(kind: str, schema: dict[str, Any] | None, attributes: Mapping[str, Any] | None) -> Compiled:
    """Compile a revision; `kind` is json or avro, a part that is None is not checked. May take a second: in a thread.

    Raises `InvalidInput` that says what is wrong with the schema.
    """
    memory = check_size([schema, attributes])
    payload: Payload | None = None
    if schema is not None:
        payload = AvroSchema(schema) if kind == AVRO else JsonSchema(schema)
    return Compiled(payload, AttributeRules(attributes) if attributes is not None else None, memory)


def compile_stored(kind: str, schema: str | None, attributes: str | None) -> Compiled:
    """Compile a revision of which the parts are JSON texts; raise as `compile_schema`, and `msgspec.DecodeError`."""
    return compile_schema(kind, parsed(schema), parsed(attributes))


def parsed(text: str | None) -> Any:
    """Return stored JSON as a value."""
    return None if text is None else msgspec.json.decode(text)


def decoded(index: int, data: str) -> bytes:
    """Decode the data of message number `index`; raise `InvalidInput` with the text of contract 15.3."""
    try:
        return decoded_data(data)
    except ValueError:
        place = next((at for at, each in enumerate(data) if each not in _ALPHABET and each not in "\r\n="), len(data))
        text = f"Message {index} is not in valid base64 enocding,illegal base64 data at input byte {place}"
        raise InvalidInput(text) from None
