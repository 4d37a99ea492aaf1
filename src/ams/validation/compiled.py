"""One revision of a schema, ready to check the payloads and attributes of messages.

The `attributes` part of a schema is our extension of the contract:

    {"required": ["site"], "values": {"type": ["raw", "clean"]}, "patterns": {"site": "^[A-Z]+$"}, "closed": true}

`required`: required names. `values`: the allowed values of an attribute. `patterns`: a regular expression that must
match somewhere in the value. `closed`: all other names are refused.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema_rs
import msgspec

from ams.core.errors import InvalidInput, refuse_if
from ams.core.messages import Batch, Message, decoded_data
from ams.validation import cost
from ams.validation.avro import AvroSchema, json_schema
from ams.validation.json_schema import JsonSchema
from ams.validation.protobuf import ProtobufSchema, descriptor_of
from ams.validation.violations import Violation, quote, violations_text

JSON, AVRO, PROTOBUF = "json", "avro", "protobuf"
Candidate = Message | str | bytes  # a message, its data (base64) alone, or its payload (decoded data) alone
_ALPHABET = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
MAX_SCHEMA_BYTES = 256 * 1024  # size of a schema as JSON
MAX_PATTERNS = 30  # regular expressions: each may take 64 KiB compiled, and several times that in use
_PATTERN_BYTES = {cost.LIGHT_WORK: 2**14, cost.HEAVY_WORK: 2**18}  # memory of a pattern in use, by its work
_GROWTH_FACTOR = 40  # bytes of memory for each byte of a schema's JSON: the worst case, in use


class _Part(msgspec.Struct, forbid_unknown_fields=True):
    required: list[str] = []
    values: dict[str, list[str]] = {}
    patterns: dict[str, str] = {}
    closed: bool = False


class AttributeRules:
    """One compiled `attributes` part."""

    def __init__(self, part: Mapping[str, Any]) -> None:
        """Parse and compile the part. Raises `InvalidInput` with the fault."""
        try:
            self._part = msgspec.convert(part, _Part)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"Schema attributes are not valid: {error}") from None
        self._values = {name: frozenset(allowed) for name, allowed in self._part.values.items()}
        self._patterns = {name: _matcher(name, pattern) for name, pattern in self._part.patterns.items()}
        self._work = {name: cost.pattern_work(pattern) for name, pattern in self._part.patterns.items()}
        self._known = frozenset([*self._part.required, *self._part.values, *self._part.patterns])

    def check(self, index: int, attributes: Mapping[str, str], budget: cost.Budget) -> None:
        """Raise `InvalidInput` unless the attributes match all rules, `TooMuch` over the budget."""
        texts = ((work, len(attributes.get(name, ""))) for name, work in self._work.items())
        read = sum(size * (work if size <= cost.LARGE_BYTES else cost.HEAVY_WORK) for work, size in texts)
        budget.spend(len(self._known) + read)
        if violations := list(self._violations(attributes)):
            raise InvalidInput(violations_text(f"Message {index} attributes are not valid", violations))

    def _violations(self, attributes: Mapping[str, str]) -> Iterator[Violation]:
        for name in self._part.required:
            if name not in attributes:
                yield Violation(quote(name), "is required")
        for name, allowed in self._values.items():
            if name in attributes and attributes[name] not in allowed:
                listed = ", ".join(f'"{value}"' for value in self._part.values[name])
                yield Violation(quote(name), f"must be one of the following: {quote(listed)}")
        for name, pattern in self._patterns.items():
            if name in attributes and not pattern.is_valid(attributes[name]):
                yield Violation(quote(name), f"Does not match pattern '{quote(self._part.patterns[name])}'")
        if self._part.closed:
            for name in attributes:
                if name not in self._known:
                    yield Violation(quote(name), "is not allowed")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled revision with an upper limit of its memory in bytes. A part that is None allows anything."""

    payload: AvroSchema | JsonSchema | ProtobufSchema | None
    attributes: AttributeRules | None
    memory: int = 0

    def count_valid(self, batch: Batch, watch: cost.WorkTimer) -> int:
        """Return how many leading messages are certainly valid, as far as quick checks can tell."""
        if self.attributes is not None or not isinstance(self.payload, JsonSchema):
            return 0
        return self.payload.count_valid(batch.payloads(), watch)

    def check(self, index: int, candidate: Candidate, budget: cost.Budget) -> None:
        """Check candidate number `index`. Raises `InvalidInput` with its faults, `OverBudget`."""
        if isinstance(candidate, Message):
            self.check(index, candidate.data, budget)
            if self.attributes:
                self.attributes.check(index, candidate.attributes, budget)
        elif isinstance(candidate, str):
            budget.spend(cost.MESSAGE_UNITS + len(candidate) // 32)
            self.check(index, decode_data(index, candidate), budget)
        elif self.payload:
            self.payload.check(index, candidate, budget)


def compile_schema(
    kind: str, schema: dict[str, Any] | None, attributes: Mapping[str, Any] | None, encoding: str = ""
) -> Compiled:
    """Compile a revision. May take a second: call it in a thread. Raises `InvalidInput`.

    Payloads of Avro and Protocol Buffers are in their JSON encoding if `encoding` is `JSON`, else binary.
    """
    if schema is not None and kind == PROTOBUF:
        made = ProtobufSchema(descriptor_of(schema), is_json=encoding == "JSON")
        return Compiled(made, _rules(attributes), check_size(attributes) + made.memory)
    memory = check_size([schema, attributes])
    if schema is not None and kind == AVRO and encoding == "JSON":
        kind, schema = JSON, json_schema(schema)
        memory += _GROWTH_FACTOR * len(msgspec.json.encode(schema)) + _PATTERN_BYTES[cost.HEAVY_WORK]
    payload: AvroSchema | JsonSchema | None = None
    if schema is not None:
        payload = AvroSchema(schema) if kind == AVRO else JsonSchema(schema)
    return Compiled(payload, _rules(attributes), memory)


def _rules(attributes: Mapping[str, Any] | None) -> AttributeRules | None:
    return AttributeRules(attributes) if attributes is not None else None


def compile_stored(kind: str, schema: str | None, attributes: str | None, encoding: str = "") -> Compiled:
    """Compile a revision from its JSON texts. Raises as `compile_schema`, and `msgspec.DecodeError`."""
    payload, rules = (None if text is None else msgspec.json.decode(text) for text in (schema, attributes))
    return compile_schema(kind, payload, rules, encoding)


def decode_data(index: int, data: str) -> bytes:
    """Decode the data of message number `index`. Raises `InvalidInput` with the text of contract 15.3."""
    try:
        return decoded_data(data)
    except ValueError:
        place = next((at for at, each in enumerate(data) if each not in _ALPHABET and each not in "\r\n="), len(data))
        text = f"Message {index} is not in valid base64 enocding,illegal base64 data at input byte {place}"
        raise InvalidInput(text) from None


def _matcher(name: str, pattern: str) -> jsonschema_rs.Validator:
    try:
        return cost.matcher(pattern)
    except jsonschema_rs.ValidationError:
        text = f"Schema attributes are not valid: pattern of {quote(name)} is no regular expression, or too large"
        raise InvalidInput(text) from None


def check_size(schema: object) -> int:
    """Return the most memory of a schema in bytes. Raises `InvalidInput` for too many levels, bytes or patterns."""
    found: list[object] = []
    left: list[tuple[str, Any, int]] = [("", schema, 0)]  # name (empty in lists), value, and depth of its container
    while left:
        key, value, depth = left.pop()
        refuse_if(depth > cost.MAX_DEPTH, f"Schema is nested too deeply: at most {cost.MAX_DEPTH} levels")
        found += _patterns(key, value)
        if isinstance(value, dict):
            left += [(name, each, depth + 1) for name, each in value.items()]
        elif isinstance(value, list):
            left += [("", each, depth + 1) for each in value]
    size = len(msgspec.json.encode(schema))
    refuse_if(size > MAX_SCHEMA_BYTES, f"Schema is too large: at most {MAX_SCHEMA_BYTES} bytes of JSON")
    refuse_if(len(found) > MAX_PATTERNS, f"Schema has too many patterns: at most {MAX_PATTERNS}")
    return size * _GROWTH_FACTOR + sum(_PATTERN_BYTES[cost.pattern_work(each)] for each in found)


def _patterns(key: str, value: Any) -> list[object]:
    """Return the regular expressions of a member: values in attributes, keys in `patternProperties`."""
    if key == "pattern":
        return [value]
    if not isinstance(value, dict):
        return []
    return list(value.values()) if key == "patterns" else list(value) if key == "patternProperties" else []
