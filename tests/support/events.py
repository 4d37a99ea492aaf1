"""Server-sent events, read as WHATWG HTML 9.2.6 says, apart from the code that writes them."""

import re
from collections.abc import Iterator

Event = tuple[str, str]
"""Its name and its data."""


def read_events(stream: bytes) -> list[Event]:
    """Read a whole stream; what stands behind the last blank line is no event."""
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
