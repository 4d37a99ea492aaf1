"""Keeping secrets out of what is kept: configurations travel with the secrets of the services they configure."""

from typing import Any

import msgspec

MASK = "***"
_WORDS = ("secret", "password", "private_key")
_WHOLE = frozenset({"jwks", "access_token", "registration_access_token"})
"""Fields without such a word that may hold a key; lifetimes of tokens are none."""


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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _cut(data)
    if not isinstance(value, dict | list):
        return _cut(data)
    safe = masked(value)
    return data if safe == value else msgspec.json.encode(safe)


def _cut(data: bytes) -> bytes:
    small = data.lower()
    places = [place for word in _WORDS if (place := small.find(word.encode())) >= 0]
    return data[: min(places)] if places else data
