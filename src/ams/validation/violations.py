"""Error texts of a message, as contract 15.3 words them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from jsonschema_rs import ValidationError, ValidationErrorKind

Kind = ValidationErrorKind

ROOT = "(root)"
MAX_VIOLATIONS = 20  # violations listed for one message
_MAX_QUOTED_CHARACTERS = 200  # characters of any quotation from a schema or a message


class Violation(NamedTuple):
    """One fault and its place."""

    field: str
    text: str


def violations_text(head: str, violations: Sequence[Violation]) -> str:
    """Return the error text of a message; the contract has one form for one violation and another for several."""
    if len(violations) == 1:
        return f"{head},{violations[0].field}: {violations[0].text}"
    items = "".join(f"{number}){field}: {text}." for number, (field, text) in enumerate(violations[:MAX_VIOLATIONS], 1))
    return f"{head}.{items}"


def violations_of(error: ValidationError) -> list[Violation]:
    """Return the violations of one place: one, or one for each forbidden member."""
    field = quote(".".join(str(step) for step in error.instance_path)) or ROOT
    if isinstance(error.kind, Kind.AdditionalProperties):
        return [Violation(field, f"Additional property {quote(name)} is not allowed") for name in error.kind.unexpected]
    return [Violation(field, _text(error, field))]


def quote(value: object) -> str:
    """Return a value as text, shortened; as JSON unless it is text already."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_QUOTED_CHARACTERS else text[:_MAX_QUOTED_CHARACTERS] + "..."


def _text(error: ValidationError, field: str) -> str:
    kind: Any = error.kind
    if isinstance(kind, Kind.Type):
        types = kind.types[0] if len(kind.types) == 1 else f"[{','.join(kind.types)}]"
        return f"Invalid type. Expected: {types}, given: {_type_name(error.instance)}"
    if isinstance(kind, Kind.Enum):
        allowed = ", ".join(msgspec.json.encode(option).decode() for option in kind.options)
        return f"{field} must be one of the following: {quote(allowed)}"
    if isinstance(kind, Kind.Constant):
        return f"{field} does not match: {quote(msgspec.json.encode(kind.expected_value).decode())}"
    if isinstance(kind, Kind.PropertyNames):
        return f'Property name of "{quote(kind.error.instance)}" does not match'
    write = _TEXTS.get(type(kind))
    return write(kind) if write else quote(error.message)


def _type_name(value: object) -> str:
    if isinstance(value, float) and not value.is_integer():
        return "number"
    return next(name for kind, name in _TYPE_NAMES if isinstance(value, kind))


_TYPE_NAMES: tuple[tuple[type, str], ...] = (
    (type(None), "null"), (bool, "boolean"), (int, "integer"), (float, "integer"), (str, "string"), (list, "array"),
    (dict, "object"), (object, "number"),
)  # fmt: skip

_TEXTS: Mapping[type, Callable[[Any], str]] = {
    Kind.Required: lambda kind: f"{quote(kind.property)} is required",
    Kind.AdditionalItems: lambda kind: "No additional items allowed on array",
    Kind.AnyOf: lambda kind: "Must validate at least one schema (anyOf)",
    Kind.OneOfNotValid: lambda kind: "Must validate one and only one schema (oneOf)",
    Kind.OneOfMultipleValid: lambda kind: "Must validate one and only one schema (oneOf)",
    Kind.Not: lambda kind: "Must not validate the schema (not)",
    Kind.Contains: lambda kind: "At least one of the items must match",
    Kind.FalseSchema: lambda kind: "False always fails validation",
    Kind.Pattern: lambda kind: f"Does not match pattern '{quote(kind.pattern)}'",
    Kind.Format: lambda kind: f"Does not match format '{quote(kind.format)}'",
    Kind.MinLength: lambda kind: f"String length must be greater than or equal to {kind.limit}",
    Kind.MaxLength: lambda kind: f"String length must be less than or equal to {kind.limit}",
    Kind.Minimum: lambda kind: f"Must be greater than or equal to {quote(kind.limit)}",
    Kind.Maximum: lambda kind: f"Must be less than or equal to {quote(kind.limit)}",
    Kind.ExclusiveMinimum: lambda kind: f"Must be greater than {quote(kind.limit)}",
    Kind.ExclusiveMaximum: lambda kind: f"Must be less than {quote(kind.limit)}",
    Kind.MultipleOf: lambda kind: f"Must be a multiple of {quote(kind.multiple_of)}",
    Kind.MinItems: lambda kind: f"Array must have at least {kind.limit} items",
    Kind.MaxItems: lambda kind: f"Array must have at most {kind.limit} items",
    Kind.UniqueItems: lambda kind: "array items must be unique",
    Kind.MinProperties: lambda kind: f"Must have at least {kind.limit} properties",
    Kind.MaxProperties: lambda kind: f"Must have at most {kind.limit} properties",
}
"""Texts of the reference's library; for other kinds the engine's text is used."""
