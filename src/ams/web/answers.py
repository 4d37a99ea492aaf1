"""Answers as bytes: status lines, heads, and the answer that closes a connection."""

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import NamedTuple

Header = tuple[bytes, bytes]

_STATUS_LINES = {each.value: b"HTTP/1.1 %d %b\r\n" % (each.value, each.phrase.encode()) for each in HTTPStatus}
JSON_TYPE = "application/json; charset=utf-8"
JSON: Header = (b"content-type", JSON_TYPE.encode())
CLOSE_HEADER: Header = (b"connection", b"close")


class Refusal(NamedTuple):
    """An error on the wire."""

    code: int  # HTTP status
    body: bytes  # JSON
    headers: Sequence[Header] = ()  # other than content type and length
    message: str = ""


def answer_head(status: int, fields: Iterable[Header]) -> bytes:
    """Return the head of an answer, with its empty line. An unknown status has no reason phrase."""
    parts = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
    for name, value in fields:
        parts += (name, b": ", value, b"\r\n")
    parts.append(b"\r\n")
    return b"".join(parts)


def closing_answer(refusal: Refusal, *, is_to_head: bool = False) -> bytes:
    """Return an answer that closes the connection; without a body for HEAD."""
    fields = [JSON, (b"content-length", b"%d" % len(refusal.body)), CLOSE_HEADER, *refusal.headers]
    return answer_head(refusal.code, fields) + (b"" if is_to_head else refusal.body)
