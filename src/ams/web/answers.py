"""Answers as bytes: status lines, heads, and the answer after which a connection is closed."""

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Protocol

Header = tuple[bytes, bytes]

_STATUS_LINES = {each.value: b"HTTP/1.1 %d %b\r\n" % (each.value, each.phrase.encode()) for each in HTTPStatus}
JSON_TYPE = "application/json; charset=utf-8"
JSON: Header = (b"content-type", JSON_TYPE.encode())
CLOSE: Header = (b"connection", b"close")


class Refusal(Protocol):
    """An error as it goes out; its body is JSON."""

    @property
    def code(self) -> int:
        """The HTTP status."""

    @property
    def body(self) -> bytes:
        """The envelope of the error."""

    @property
    def headers(self) -> Sequence[Header]:
        """Header fields beside type and length."""


def answer_head(status: int, fields: Iterable[Header]) -> bytes:
    """Write the head of an answer, with the empty line behind it; a status without a name has none."""
    parts = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
    for name, value in fields:
        parts += (name, b": ", value, b"\r\n")
    parts.append(b"\r\n")
    return b"".join(parts)


def closing_answer(refusal: Refusal, *, is_to_head: bool = False) -> bytes:
    """Write an answer after which the connection is closed; an answer to HEAD has no body."""
    fields = [JSON, (b"content-length", b"%d" % len(refusal.body)), CLOSE, *refusal.headers]
    return answer_head(refusal.code, fields) + (b"" if is_to_head else refusal.body)
