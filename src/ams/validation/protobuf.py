"""Payloads in Protocol Buffers: one binary message, or one in their JSON encoding.

A schema is an object. `definition` is the text that people write, `descriptor` the compiler's output
(`ams.validation.protobuf_compiler`), a `FileDescriptorProto` as base64. Nothing here compiles, so a schema is enough to
read its messages.

Protobuf's own parser reads payloads. It takes memory for each nested message, up to 64 KiB for two bytes. The memory is
estimated first (`ams.validation.cost`), and messages over the budget go to a worker with limited memory.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    json_format,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from ams.core.errors import InvalidInput
from ams.validation.cost import Budget, OverBudget
from ams.validation.violations import quote
from ams.wire.projects import DEFINITION, DESCRIPTOR

FILE = "schema.proto"
MAX_DESCRIPTOR_BYTES = 2**19  # bytes
KNOWN_FILES: Mapping[str, bytes] = {
    each.DESCRIPTOR.name: each.DESCRIPTOR.serialized_pb
    for each in (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
}
"""Importable files and their descriptors."""

_MAX_NAME_CHARACTERS = 2**22  # characters of all full names: nested long names multiply
_PART_BYTES = 300  # memory of a field, a type or a value, without its name
_FIELD_BYTES = 16  # memory of a field in a parsed message
_BYTES_PER_UNIT = 64  # bytes of such memory for one unit of work
_MESSAGE_UNITS = 4  # units for a nested message
_VALUE_UNITS = 300  # units for a value in JSON
_FEW_TAGS = 16
_MAX_SHOWN_UNITS = 5_000_000  # units to show a message: 300 MB of memory at worst
_MESSAGES = (descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE, descriptor_pb2.FieldDescriptorProto.TYPE_GROUP)
_REQUIRED = descriptor_pb2.FieldDescriptorProto.LABEL_REQUIRED


class ProtobufSchema:
    """One compiled schema."""

    def __init__(self, descriptor: bytes, *, is_json: bool = False) -> None:
        """Take a descriptor (`descriptor_of`). Payloads are JSON if `is_json`, else binary. Raises `InvalidInput`."""
        if len(descriptor) > MAX_DESCRIPTOR_BYTES:
            raise InvalidInput(f"Schema is too large: at most {MAX_DESCRIPTOR_BYTES} bytes when compiled")
        try:
            file = descriptor_pb2.FileDescriptorProto.FromString(descriptor)
        except DecodeError:
            raise InvalidInput("schema is not valid: its descriptor is damaged") from None
        self._is_json, self._has_required = is_json, False
        self._tags: set[bytes] = set()  # first bytes of fields that are messages
        self._wide = 0  # units of work for the widest message without nested ones
        self.memory = self._measure(file) + 2 * len(descriptor)
        self._type = _message_type(descriptor, file.dependency)

    def check(self, index: int, data: bytes, budget: Budget) -> None:
        """Raise `InvalidInput` unless `data` is exactly one message of the schema, `OverBudget` over the budget."""
        try:
            message = self._from_json(data, budget) if self._is_json else self._from_binary(data, budget)
        except ValueError as error:
            raise InvalidInput(f"Message {index} is not valid.{quote(str(error))}") from None
        if self._has_required and not message.IsInitialized():
            raise InvalidInput(f"Message {index} is not valid.a required field is missing")

    def as_dict(self, data: bytes, *, whole: bool = False) -> dict[str, Any]:
        """Return a binary message in its JSON encoding.

        With `whole`, names are those of the definition and absent fields have their defaults. Raises `ValueError` if
        `data` is not a message, or is too large to show.
        """
        try:
            found: dict[str, Any] = json_format.MessageToDict(
                self._from_binary(data, Budget(_MAX_SHOWN_UNITS)),
                preserving_proto_field_name=whole,
                always_print_fields_with_no_presence=whole,
            )
        except OverBudget:
            raise ValueError("the data is too large to be shown") from None
        except (json_format.Error, TypeError):  # an Any of an unknown type, or a time outside the calendar
            raise ValueError("the data has a value that cannot be written as JSON") from None
        return found

    def _measure(self, file: descriptor_pb2.FileDescriptorProto) -> int:
        """Return the memory of the schema in bytes, and note what its messages need."""
        names = parts = 0
        for path, message in _messages(file.message_type, len(file.package)):
            inner = [*message.field, *message.extension, *(each for enum in message.enum_type for each in enum.value)]
            parts += 1 + len(inner) + len(message.enum_type) + len(message.oneof_decl)
            names += path + sum(path + len(each.name) for each in inner)
            if names > _MAX_NAME_CHARACTERS:
                raise InvalidInput("Schema is too large: the full names of its fields are too long")
            self._wide = max(self._wide, _FIELD_BYTES * (1 + len(message.field)) // _BYTES_PER_UNIT)
            for field in [*message.field, *message.extension]:
                self._has_required |= field.label == _REQUIRED
                if field.type in _MESSAGES:
                    tag = field.number << 3 | (2 if field.type == _MESSAGES[0] else 3)
                    self._tags.add(bytes([tag & 0x7F | (0x80 if tag > 0x7F else 0)]))
        return parts * _PART_BYTES + 2 * names

    def _from_binary(self, data: bytes, budget: Budget) -> Message:
        most = len(data) // 2  # upper limit of nested messages
        if len(self._tags) <= _FEW_TAGS:
            most = min(most, sum(data.count(tag) for tag in self._tags))
        budget.spend(most + (most + 1) * (_MESSAGE_UNITS + self._wide) + len(data) // 2)
        try:
            return self._type.FromString(data)
        except DecodeError:
            name = self._type.DESCRIPTOR.full_name
            raise ValueError(f"the data is not a message {name} in the binary encoding") from None

    def _from_json(self, data: bytes, budget: Budget) -> Message:
        values = 1 + data.count(b",") + data.count(b"{") + data.count(b"[")
        budget.spend(values * _VALUE_UNITS + len(data) // 4)
        if not data.lstrip(b" \t\r\n").startswith(b"{"):  # protobuf would accept an empty list as an empty message
            raise ValueError("the data is not a JSON object")
        message = self._type()
        try:
            json_format.Parse(data.decode(), message)
        except UnicodeDecodeError:
            raise ValueError("the data is not UTF-8") from None
        except RecursionError:
            raise ValueError("nested too deeply") from None
        except Exception as error:  # ParseError, and others for unexpected values
            raise ValueError(str(error)) from None
        return message


class _Stored(msgspec.Struct):
    definition: str
    descriptor: msgspec.Raw = msgspec.Raw()  # parsed only if needed: it is the larger part


def definition_of(payload: str) -> str:
    """Return the definition of a stored schema. Raises `InvalidInput` if it has none."""
    return _parse_stored(payload).definition


def is_compiled(payload: str) -> bool:
    """Return whether a schema has its descriptor. Raises as `definition_of`."""
    return bool(bytes(_parse_stored(payload).descriptor))


def _parse_stored(payload: str) -> _Stored:
    try:
        return _decode(payload)
    except ValueError:
        raise InvalidInput(f"A schema of type protobuf is an object with a text: {DEFINITION}") from None


_decode = msgspec.json.Decoder(_Stored).decode


def descriptor_of(schema: Mapping[str, Any]) -> bytes:
    """Return the descriptor of a compiled schema. Raises `InvalidInput` if it has none."""
    try:
        return base64.b64decode(schema[DESCRIPTOR], validate=True)
    except (KeyError, TypeError, ValueError):
        raise InvalidInput("The schema has no descriptor: it was not compiled") from None


def with_descriptor(definition: str, descriptor: bytes) -> str:
    """Return a compiled schema as it is stored."""
    made = {DEFINITION: definition, DESCRIPTOR: base64.b64encode(descriptor).decode()}
    return msgspec.json.encode(made).decode()


def _message_type(serialized: bytes, imports: Sequence[str]) -> type[Message]:
    pool = DescriptorPool()
    try:
        for name in dict.fromkeys(imports):
            pool.AddSerializedFile(KNOWN_FILES[name])
        pool.AddSerializedFile(serialized)
        [root] = pool.FindFileByName(FILE).message_types_by_name.values()
    except TypeError as error:
        text = str(error).removeprefix("Couldn't build proto file into descriptor pool: ")
        raise InvalidInput(quote(f"schema is not valid: {text}")) from None
    except (KeyError, ValueError):
        raise InvalidInput("schema is not valid: not one message on top, or an import of others") from None
    return GetMessageClass(root)


def _messages(messages: Any, path: int) -> Iterator[tuple[int, Any]]:
    for each in messages:
        length = path + 1 + len(each.name)
        yield length, each
        yield from _messages(each.nested_type, length)
