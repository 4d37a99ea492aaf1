"""Showing: paths and reasons as they may be in a log. Who mistakes a path puts a key or a token into it."""

import re

_SECRET = re.compile(r"[0-9a-f]{40,}", re.IGNORECASE)
"""What may be a key or a token, in a text where none belongs."""
_LONGEST = 1_000
"""Characters."""


def shown(text: str) -> str:
    """Return a text without what may be a key or a token, and not longer than anybody reads."""
    return _SECRET.sub("***", text)[:_LONGEST]
