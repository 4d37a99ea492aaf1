"""Keeping secrets out of what is kept: configurations travel with the secrets of the services they configure."""

import re
from typing import Any

import msgspec

MASK = "***"
_WORDS = ("secret", "password", "private_key")
_WHOLE = frozenset({"jwks", "access_token", "registration_access_token"})
"""Fields without such a word that may hold a key; lifetimes of tokens are none."""
_ANY = re.compile("|".join("\0*".join(word) for word in (*_WORDS, *sorted(_WHOLE))).encode(), re.IGNORECASE)
"""Any of these, also in an encoding of two or four bytes a letter."""


def masked(value: Any) -> Any:
    """Return a JSON value with every field that may hold a secret replaced by `MASK`, at any depth."""
    if isinstance(value, list):
        return [masked(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: MASK if inner and is_secret(name) else masked(inner) for name, inner in value.items()}


def is_secret(name: str) -> bool:
    """Whether a field's name says that it may hold a secret."""
    name = name.lower()
    return name in _WHOLE or any(word in name for word in _WORDS)


def redacted(data: bytes) -> bytes:
    """Return a payload that can be kept: JSON is masked, of anything else all is cut from the first such word on."""
    try:
        value = msgspec.json.decode(data)
        safe = masked(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _cut(data)
    if not isinstance(value, dict | list):
        return _cut(data)
    # Of a field that stands there twice the first one is not among what was decoded.
    harmless = safe == value and not _ANY.search(data) and b"\\" not in data
    return data if harmless else msgspec.json.encode(safe)


def _cut(data: bytes) -> bytes:
    found = _ANY.search(data)
    return data[: found.start()] if found else data
