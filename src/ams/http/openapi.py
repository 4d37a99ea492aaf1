"""The description of the API as an OpenAPI 3.1 document, made of the route table and of the types the routes use.

What JSON Schema cannot say holds besides: member names are matched without regard to letter case, unknown ones are
ignored, and null is the same as absent (contract 1.2).
"""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec

import ams
from ams.core.names import MAX_NAME, RESOURCE_NAME
from ams.http.errors import STATUS
from ams.wire.actions import ACTIONS, Action, takes_google_names

PARAMETERS: dict[str, tuple[str, str]] = {
    "pageSize": ("integer", "Items of a page; absent, 0 or negative: everything."),
    "pageToken": ("string", "`nextPageToken` of the page before; absent: the first page."),
    "details": ("string", "`true` shows more."),
    "project": ("string", "Only members of this project."),
    "projects": ("string", "Names of projects, joined by commas; absent: all."),
    "status": ("string", "Only registrations that are `pending`, `accepted` or `declined`."),
    "activation_token": ("string", "Only the registration with this activation token."),
    "name": ("string", "Only registrations of this name."),
    "email": ("string", "Only registrations with this address."),
    "organization": ("string", "Only registrations of this organization."),
    "from": ("integer", "The first offset to read; absent: the oldest kept."),
    "to": ("integer", "The first offset not to read; absent: the end."),
    "max": ("integer", "At most so many messages; absent: 10000."),
    "subscription": ("string", "A subscription of the topic that the caller may consume; needed by consumers."),
    "topics": ("string", "Names of topics, joined by commas."),
    "subscriptions": ("string", "Names of subscriptions, joined by commas."),
    "span": ("string", "`hour` in intervals of a minute, or `day` in intervals of five; absent: `hour`."),
    "tail": ("string", "A topic whose new messages are shown."),
    "filter": ("string", "Which messages of the tail, by their attributes; absent: all."),
    "start_date": ("string", "First day, `YYYY-MM-DD`; absent: 1970-01-01."),
    "end_date": ("string", "Last day, `YYYY-MM-DD`, included; absent: today."),
    "since": ("string", "Only events from then on: a time of RFC 3339, or a date."),
    "until": ("string", "Only events before that."),
    "actor": ("string", "Only what this user did."),
    "action": ("string", "Only actions that begin so: `topics:`."),
    "address": ("string", "Only what came from this IP address."),
    "result": ("string", "Only what is `done`, was `refused`, or `failed`."),
    "time": ("string", "`YYYY-MM-DDTHH:MM:SS.mmmZ`."),
}
"""Query parameters: type and meaning."""

HEADERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Idempotency-Key": (
        "The same key with the same messages is stored once, and answered as the first time. Blanks may be inside.",
        {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"},
    ),
    "If-Match": (
        "The `ETag` of what was read: the change is made only of that, else it is refused with 412.",
        {"type": "string"},
    ),
}
"""Request headers: meaning and form."""

_STRUCTURED_TYPES = ("application/json", "application/x-ndjson")  # forms of answers with a schema
_VARIABLE = re.compile(r"{(\w+)}")
_NAME = {"type": "string", "pattern": "^[a-zA-Z0-9_-]+$", "maxLength": MAX_NAME}
_RESOURCE = _NAME | {"pattern": f"^({RESOURCE_NAME})$"}
_REFERENCES = "#/components/schemas/{name}"
_INFO = {
    "title": "ARGO Messaging Service",
    "version": ams.__version__,
    "description": __doc__,
    "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
}


class ErrorDetail(msgspec.Struct):
    """What went wrong; `code` is the HTTP status."""

    code: int
    message: str
    status: str


class Error(msgspec.Struct):
    """The envelope of every error (contract 1.1)."""

    error: ErrorDetail


def document() -> dict[str, Any]:
    """Return the document with all actions."""
    paths: dict[str, dict[str, Any]] = {}
    for action in ACTIONS.values():
        paths.setdefault(action.whole_path, {})[action.method.lower()] = _describe(action)
    return {
        "openapi": "3.1.0",
        "info": _INFO,
        "servers": [{"url": "/"}],
        "security": [{"header": []}, {"bearer": []}, {"query": []}],
        "paths": paths,
        "components": {
            "schemas": _components(),
            "responses": _ERRORS,
            "securitySchemes": {
                "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
                "bearer": {"type": "http", "scheme": "bearer"},
                "query": {"type": "apiKey", "in": "query", "name": "key"},
            },
        },
    }


def _describe(action: Action) -> dict[str, Any]:
    is_change = action.versioned and action.method != "GET"
    names = (*action.parameters, "If-Match") if is_change else action.parameters
    variables = _VARIABLE.findall(action.path)
    forms = {each: _RESOURCE if takes_google_names(action.name, each) else _NAME for each in variables}
    words = [part.split(":")[0] for part in action.path.split("/") if part[:1] not in ("", "{")]
    described: dict[str, Any] = {
        "operationId": f"{action.method} {action.path}" if action.is_open else action.name,
        "summary": action.text,
        "tags": words[-1:],  # the resource: the last word that is neither a variable nor a verb
        "parameters": [
            *({"name": each, "in": "path", "required": True, "schema": forms[each]} for each in variables),
            *map(_parameter, names),
        ],
        "responses": {"200": _success(action)} | {code: {"$ref": f"#/components/responses/{code}"} for code in _ERRORS},
    }
    if action.request is not None:
        described["requestBody"] = {"content": {"application/json": {"schema": _reference(action.request)}}}
    if action.is_open:
        described["security"] = [{}, {"header": []}, {"bearer": []}, {"query": []}]
    return described


def _parameter(name: str) -> dict[str, Any]:
    if name in HEADERS:
        meaning, schema = HEADERS[name]
        return {"name": name, "in": "header", "description": meaning, "schema": schema}
    kind, meaning = PARAMETERS[name]
    return {"name": name, "in": "query", "description": meaning, "schema": {"type": kind}}


def _success(action: Action) -> dict[str, Any]:
    if action.answer is None:
        return {"description": "Done; the body is empty."}
    schema = {"schema": _reference(action.answer)}
    content = {form: schema if form in _STRUCTURED_TYPES else {} for form in action.forms}
    described: dict[str, Any] = {"description": "Done.", "content": content}
    if action.versioned and action.method == "GET":
        described["headers"] = {"ETag": {"description": "The version, for `If-Match`.", "schema": {"type": "string"}}}
    return described


def _reference(kind: type) -> dict[str, str]:
    return {"$ref": _REFERENCES.format(name=kind.__name__)}


_ERRORS = {
    str(code): {"description": HTTPStatus(code).phrase, "content": {"application/json": {"schema": _reference(Error)}}}
    for code in sorted({status.code for status in STATUS.values()})
}


def _components() -> dict[str, Any]:
    """Return the schemas of all bodies. No two have the same name: they would be written with their modules."""
    requests = {each.request for each in ACTIONS.values() if each.request is not None}
    answers = {each.answer for each in ACTIONS.values() if each.answer is not None} | {Error}
    components = _schemas(requests | answers)
    for component in components.values():
        component.pop("additionalProperties", None)  # unknown members are ignored
    for name in _schemas(answers):
        _describe_as_answer(components[name])
    return components


def _schemas(kinds: Iterable[type]) -> dict[str, dict[str, Any]]:
    ordered = sorted(kinds, key=lambda kind: kind.__name__)
    return msgspec.json.schema_components(ordered, ref_template=_REFERENCES)[1]


def _describe_as_answer(component: dict[str, Any]) -> None:
    """Mark the fields that are always present, none of them null: None is omitted (`ams.wire.base`)."""
    required = set(component["required"])
    for name, field in component["properties"].items():
        if field.pop("required", False):  # ALWAYS
            required.add(name)
            field.pop("default", None)
        if {"type": "null"} in field.get("anyOf", ()):
            del field["default"]
            [field_type] = [each for each in field.pop("anyOf") if each != {"type": "null"}]
            field |= field_type
    component["required"] = [name for name in component["properties"] if name in required]


def encode_description() -> bytes:
    """Return the document as it is served and stored in `docs/reference/openapi.json`."""
    return msgspec.json.format(msgspec.json.encode(document()), indent=2) + b"\n"
