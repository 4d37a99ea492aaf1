"""Reads a database of the reference's certificate service, as `mongoexport` writes it (authn contract 12).

A file holds documents of one collection or of several, a line each or as one array; what a document is shows in its
fields.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ams.client.wire import authn
from ams.core.errors import BadDocument

MAX_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class OldServiceType:
    """A document of `service_types`."""

    place: str
    uuid: str
    name: str
    hosts: tuple[str, ...]
    auth_types: tuple[str, ...]
    auth_method: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OldAuthMethod:
    """A document of `auth_methods`."""

    place: str
    service_uuid: str
    host: str
    port: int
    access_key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OldBinding:
    """A document of `bindings`; `unique_key` is `uniquekey` there, by which logins go (authn contract 12)."""

    place: str
    name: str
    service_uuid: str
    host: str
    auth_identifier: str
    auth_type: str
    unique_key: str
    asked_for: str = ""
    """Another user id that somebody asked for by an update, which never came into effect (15, A1)."""


@dataclass(slots=True)
class OldDatabase:
    """What the files hold."""

    service_types: list[OldServiceType] = field(default_factory=list)
    auth_methods: list[OldAuthMethod] = field(default_factory=list)
    bindings: list[OldBinding] = field(default_factory=list)
    passed_over: int = 0
    """Documents of `bindings_missing_ip_san`, which no route ever read (15, A13)."""


def read_reference(paths: Iterable[str]) -> OldDatabase:
    """Read files; raise `BadDocument`, with file and document, for what is no such database."""
    found = OldDatabase()
    for path in paths:
        for place, document in _documents(path):
            _add(found, place, document)
    return found


def mended(name: str) -> str:
    """Return a name made one that something new may have (15, A7)."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)


def _documents(path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read(MAX_BYTES)
    except OSError as error:
        raise BadDocument(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise BadDocument(f"{path} is not text in UTF-8") from None
    decoder, index, number = json.JSONDecoder(), 0, 0
    while (index := _next(text, index)) < len(text):
        try:
            value, index = decoder.raw_decode(text, index)
        except (ValueError, RecursionError):
            raise BadDocument(
                f"{path}:{text.count(chr(10), 0, index) + 1}: not JSON as mongoexport writes it"
            ) from None
        for document in value if isinstance(value, list) else [value]:
            number += 1
            if not isinstance(document, dict):
                raise BadDocument(f"{path}#{number} is no document")
            yield f"{path}#{number}", document


def _next(text: str, index: int) -> int:
    while index < len(text) and text[index] in " \t\r\n,":
        index += 1
    return index


def _add(found: OldDatabase, place: str, document: Mapping[str, Any]) -> None:
    if "binding_uuid" in document:
        found.passed_over += 1
    elif "auth_identifier" in document:
        found.bindings.append(_binding(place, document))
    elif "hosts" in document:
        found.service_types.append(_service_type(place, document))
    elif "port" in document:
        found.auth_methods.append(_auth_method(place, document))
    else:
        raise BadDocument(f"{place} is of none of the collections service_types, auth_methods and bindings")


def _service_type(place: str, document: Mapping[str, Any]) -> OldServiceType:
    return OldServiceType(
        place=place,
        uuid=_text(place, document, "uuid"),
        name=_text(place, document, "name"),
        hosts=_texts(place, document, "hosts"),
        auth_types=_texts(place, document, "auth_types"),
        auth_method=_text(place, document, "auth_method"),
        type=_text(place, document, "type"),
    )


def _auth_method(place: str, document: Mapping[str, Any]) -> OldAuthMethod:
    headers = document.get("headers") or {}
    if not isinstance(headers, dict) or not all(isinstance(each, str) for each in headers.values()):
        raise BadDocument(f"{place}: headers are names with texts")
    return OldAuthMethod(
        place=place,
        service_uuid=_text(place, document, "service_uuid"),
        host=_text(place, document, "host"),
        port=_number(place, document["port"]),
        access_key=_text(place, document, "access_key") if document.get("access_key") else "",
        headers=headers,
    )


def _binding(place: str, document: Mapping[str, Any]) -> OldBinding:
    effective, asked_for = document.get("uniquekey"), document.get("unique_key")
    if not isinstance(effective, str):
        raise BadDocument(f"{place}: no text uniquekey")
    return OldBinding(
        place=place,
        name=_text(place, document, "name"),
        service_uuid=_text(place, document, "service_uuid"),
        host=_text(place, document, "host"),
        auth_identifier=_text(place, document, "auth_identifier"),
        auth_type=_text(place, document, "auth_type") if document.get("auth_type") else authn.X509,
        unique_key=effective,
        asked_for=asked_for if isinstance(asked_for, str) and asked_for != effective else "",
    )


def _text(place: str, document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str):
        # The value is not shown: it may be a secret.
        raise BadDocument(f"{place}: no text {name}")
    return value


def _texts(place: str, document: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = document.get(name)
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise BadDocument(f"{place}: {name} is no list of texts")
    return tuple(value)


def _number(place: str, value: object) -> int:
    """Return a number, which extended JSON may write as an object around a text."""
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)).startswith("$number"):
        value = next(iter(value.values()))
    text = str(value).removesuffix(".0")
    if not re.fullmatch(r"-?[0-9]{1,19}", text):
        raise BadDocument(f"{place}: port is no number")
    return int(text)
