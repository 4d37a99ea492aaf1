"""Server-sent events, parsed by WHATWG HTML 9.2.6, independent of the code that writes them."""

import json
import re
from collections.abc import Iterator
from typing import Any, Protocol

Event = tuple[str, str]  # its name and its data


def read_events(stream: bytes) -> list[Event]:
    """Read a whole stream; text after the last blank line is not an event."""
    return list(_events(stream.decode()))


def _events(text: str) -> Iterator[Event]:
    name, data = "", list[str]()
    for line in re.split(r"\r\n|\n|\r", text):
        field, _, value = line.partition(":")
        if not line:
            if data:
                yield name or "message", "\n".join(data)
            name, data = "", []
        elif field == "event":
            name = value.removeprefix(" ")
        elif field == "data":
            data.append(value.removeprefix(" "))


class Lines(Protocol):
    def readline(self) -> bytes:
        """Return the next line with its end; nothing at the end of the answer."""
        ...


def next_event(answer: Lines, wanted: str = "") -> tuple[str, Any]:
    """Return the next event of an open answer, with its data parsed as JSON; the next one of a name, if given."""
    while True:
        block = b""
        while (line := answer.readline()) != b"\n":
            assert line, "the stream is over"
            block += line
        for name, data in read_events(block + b"\n"):
            if wanted in ("", name):
                return name, json.loads(data)
