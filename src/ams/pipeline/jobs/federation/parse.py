"""Reading what a federation registry and its deployers say to each other, and keeping secrets out of what is kept.

- A *configuration* goes from the registry to the deployers: the service `id` shall be created, edited or deleted. It
  travels with the secrets of the services it configures.
- An *answer* comes back from a deployer: what became of it.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.fields import Record, free_text, json_object, needed, shown, text, whole

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


DEPLOYMENT_TYPES = ("create", "edit", "delete")
PROTOCOLS = ("oidc", "saml")
STATES = ("deployed", "error")
_ERROR_CHARACTERS = 500


def parse(data: bytes, attributes: Mapping[str, str]) -> Iterable[dict[str, Any]]:
    """Return the one configuration or answer that a message holds; no secret of it is kept."""
    record = json_object(data)
    if "deployment_type" in record:
        return [_configuration(record)]
    if "state" in record:
        return [_answer(record)]
    raise Broken("neither a configuration nor an answer")


def _configuration(record: Record) -> dict[str, Any]:
    kind = _one_of(record, "deployment_type", DEPLOYMENT_TYPES)
    deleting = kind == "delete"
    return {
        "kind": "configuration",
        "id": _id(record),
        "deployment_type": kind,
        "protocol": text(record, "protocol") if deleting else _one_of(record, "protocol", PROTOCOLS),
        "tenant": text(record, "tenant"),
        "environment": text(record, "integration_environment"),
        "service_name": text(record, "service_name"),
        "client": text(record, "client_id") or text(record, "entity_id"),
        "external_id": _external_id(record),
        "digest": _digest(record),
    }


def _answer(record: Record) -> dict[str, Any]:
    described = free_text(record, "error_description")
    return {
        "kind": "answer",
        "id": _id(record),
        "state": _one_of(record, "state", STATES),
        "status_code": whole(record, "status_code"),
        "deployer": text(record, "deployer_name") or "",
        "client": text(record, "client_id"),
        "external_id": _external_id(record),
        "error": described[:_ERROR_CHARACTERS] if described else None,
    }


def _id(record: Record) -> int:
    number = whole(record, "id")
    if number is None:
        raise Broken("id is missing")
    return number


def _external_id(record: Record) -> str | None:
    """Return the id that the identity server knows the service by: a number with some, a text with others."""
    value = record.get("external_id")
    return str(value) if type(value) is int else text(record, "external_id")


def _one_of(record: Record, name: str, words: tuple[str, ...]) -> str:
    word = needed(record, name)
    if word not in words:
        raise Broken(f"{name} is none of {', '.join(words)}: {shown(word)}")
    return word


def _digest(record: Record) -> str:
    """Tell configurations apart by all they say but their secrets, of which not even a digest is kept."""
    try:
        told = msgspec.json.encode(masked(record), order="sorted")
    except RecursionError:
        raise Broken("nested too deeply") from None
    return hashlib.sha256(told).hexdigest()[:32]
