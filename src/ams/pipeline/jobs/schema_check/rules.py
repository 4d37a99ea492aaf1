"""What messages must be: a schema from files, or one of the service by its name."""

import os
from typing import Any

import msgspec

from ams.client import wire
from ams.core.errors import InvalidInput
from ams.pipeline.errors import WrongOption
from ams.pipeline.options import Given
from ams.pipeline.running import Source
from ams.pipeline.service import Service
from ams.validation import compile_stored

TYPES = ("json", "avro")


class Rules(msgspec.Struct, frozen=True):
    """A schema as the service stores it: parts as JSON text, None where there is none."""

    type: str
    payload: str | None
    attributes: str | None


def of_files(kind: str, payload: str, attributes: str) -> Rules:
    """Read a schema from the files that `ams schemas create` would take; raise `WrongOption`."""
    rules = Rules(kind, _read("file", payload), _read("attributes_file", attributes))
    try:
        compile_stored(rules.type, rules.payload, rules.attributes)
    except InvalidInput as error:
        raise WrongOption("file" if payload else "attributes_file", error.message) from None
    return rules


def of_service(source: Source, name: str) -> Rules:
    """Ask the service for a schema of the project; raise a `ClientError`."""
    access, project = Given(source).access(os.environ)
    if project is None:
        raise WrongOption("schema", "is one of a project, and none is named")
    with Service(access) as service:
        return rules_named(service, project, name)


def rules_named(service: Service, project: str, name: str) -> Rules:
    """Ask for a schema; raise a `ClientError`."""
    found = service.call(wire.get_schema(project, name))
    return Rules(found.type, _text(found.schema), _text(found.attributes))


def _read(option: str, path: str) -> str | None:
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            return _text(msgspec.json.decode(file.read(), type=dict[str, Any]))
    except OSError as error:
        raise WrongOption(option, f"{path}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise WrongOption(option, f"{path} is no JSON object: {error}") from None


def _text(part: dict[str, Any]) -> str | None:
    return msgspec.json.encode(part).decode() if part else None
