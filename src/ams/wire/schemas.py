"""Schemas: what messages must be (contract 15), and dry runs of them."""

from typing import Any

import msgspec

from ams.wire.base import CamelObject, Object, Request


class SchemaBody(Request, frozen=True):
    """What is said of a schema; `name`, in an update only, is the new one as a reference."""

    name: str | None = None
    type: str | None = None
    schema: dict[str, Any] | None = None
    attributes: dict[str, Any] | None = None


class DryRunBody(Request, frozen=True):
    """Which topic's newest messages to try, and how many."""

    topic: str | None = None
    messages: int | None = None


class CandidateBody(Request, frozen=True):
    """What a schema is asked about: a message, base64 `data` alone for avro, or any JSON document for json."""

    data: str | None = None
    attributes: dict[str, str] | None = None


class Schema(Object, frozen=True):
    """A schema (contract 15)."""

    uuid: str
    name: str
    """Its resource name, `projects/P/schemas/X`."""
    type: str
    """`json` or `avro`."""
    schema: dict[str, Any]
    """What payloads must be; empty in a schema of attributes alone."""
    attributes: dict[str, Any] = msgspec.field(default_factory=dict)
    """What attributes must be; empty: anything."""


class Schemas(Object, frozen=True):
    """All schemas of a project, oldest first."""

    schemas: list[Schema]


class Revision(Object, frozen=True):
    """What a schema said from some moment on."""

    revision: str
    """Its id, 8 hex digits: the one after `@` that Google's clients see."""
    created_on: str
    type: str
    schema: dict[str, Any]
    attributes: dict[str, Any] = msgspec.field(default_factory=dict)


class Revisions(Object, frozen=True):
    """All revisions of a schema, the newest first."""

    revisions: list[Revision]


class Validated(Object, frozen=True):
    """That a message is what its schema says."""

    message: str


class RefusedMessage(CamelObject, frozen=True):
    """A stored message that the schema would not allow."""

    message_id: str
    reason: str


class DryRun(Object, frozen=True):
    """What a schema says of messages that are there already."""

    checked: int
    refused: int
    reasons: list[RefusedMessage]
    """Of the oldest it would refuse."""
