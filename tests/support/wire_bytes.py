"""gRPC messages encoded and decoded by hand, from field numbers alone, independent of generated code."""

from collections.abc import Sequence

import grpc

Value = int | str | bytes | Sequence["tuple[int, Value]"]
Fields = Sequence[tuple[int, Value]]


def encode_fields(*fields: tuple[int, Value]) -> bytes:
    """Encode fields: integers as varints, all others with their length before them."""
    return b"".join(_field(number, value) for number, value in fields)


def _field(number: int, value: Value) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value & (2**64 - 1))
    content = value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else encode_fields(*value)
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    out = b""
    while number >= 128:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def decode_fields(message: bytes) -> dict[int, int | bytes]:
    """Decode the fields of a message; those with a length stay bytes."""
    found: dict[int, int | bytes] = {}
    rest = message
    while rest:
        key, rest = _number(rest)
        value, rest = _number(rest)
        if key & 7 == 0:
            found[key >> 3] = value
        else:
            assert key & 7 == 2
            found[key >> 3], rest = rest[:value], rest[value:]
    return found


def _number(rest: bytes) -> tuple[int, bytes]:
    number = shift = 0
    while True:
        byte, rest = rest[0], rest[1:]
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, rest


async def call(channel: grpc.aio.Channel, path: str, request: bytes = b"", seconds: float = 5) -> tuple[str, str]:
    """Call a method with these bytes; return the code's name, and the text of the answer's field 1 or of the error."""
    try:
        answer = await channel.unary_unary(path)(request, timeout=seconds)
    except grpc.aio.AioRpcError as error:
        return error.code().name, error.details() or ""
    text = decode_fields(answer).get(1, b"")
    return "OK", text.decode() if isinstance(text, bytes) else str(text)
