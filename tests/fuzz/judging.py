"""Rules for every answer: no 5xx, the envelope around every error, one JSON value at most."""

import json
from typing import Any, NamedTuple

import httptools

ALLOWED_STATUSES = {200, 301, 400, 401, 403, 404, 405, 406, 408, 409, 413}


class Answer(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: bytes


class AnswerReader:
    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self.answers: list[Answer] = []

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self.answers.append(Answer(self._parser.get_status_code(), self._headers, b"".join(self._body)))
        self._headers, self._body = {}, []


def find_fault(path: bytes, answer: Answer) -> str | None:
    if answer.status not in ALLOWED_STATUSES and not _may_fail(path, answer):
        return f"status {answer.status}"
    if answer.status == 301 or (answer.status == 200 and not answer.body):
        return None
    if b"json" not in answer.headers.get(b"content-type", b""):
        is_arrow = b"arrow" in answer.headers.get(b"content-type", b"")
        return None if is_arrow else "no JSON type"
    is_lines = answer.headers[b"content-type"] == b"application/x-ndjson"
    try:
        values = [json.loads(text) for text in (answer.body.splitlines() if is_lines else [answer.body])]
    except ValueError:
        return "no JSON"
    return None if answer.status == 200 else _envelope_fault(answer.status, values[-1])


def _may_fail(path: bytes, answer: Answer) -> bool:
    """Return whether the contract requires this 500: timeToOffset when the topic is gone (11.4)."""
    return b":timeToOffset" in path and answer.status == 500 and b'"Backend Error"' in answer.body


def _envelope_fault(status: int, value: Any) -> str | None:
    error = value.get("error") if isinstance(value, dict) else None
    if not isinstance(error, dict) or list(value) != ["error"]:
        return "no envelope"
    if set(error) != {"code", "message", "status"} or error["code"] != status or not error["message"]:
        return "a bad envelope"
    return None
