"""Errors of a message, in the words of contract 15.3."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from jsonschema_rs import ValidationError, ValidationErrorKind

Kind = ValidationErrorKind

ROOT = "(root)"
MOST = 20  # violations listed of one message
_LONGEST = 200  # characters of anything quoted from a schema or a message


class Violation(NamedTuple):
    """One thing that is wrong, and where."""

    field: str
    text: str


def violations_text(head: str, violations: Sequence[Violation]) -> str:
    """Write violations in the contract's frame, which is another for one than for several."""
    if len(violations) == 1:
        return f"{head},{violations[0].field}: {violations[0].text}"
    listed = "".join(f"{number}){field}: {text}." for number, (field, text) in enumerate(violations[:MOST], 1))
    return f"{head}.{listed}"


def violations_of(error: ValidationError) -> list[Violation]:
    """Return the errors of one place; only members that may not be there are several."""
    field = quoted(".".join(str(step) for step in error.instance_path)) or ROOT
    if isinstance(error.kind, Kind.AdditionalProperties):
        return [
            Violation(field, f"Additional property {quoted(name)} is not allowed") for name in error.kind.unexpected
        ]
    return [Violation(field, _text(error, field))]


def quoted(value: object) -> str:
    """Return something as it may stand in a text: JSON unless it is text already, and not endless."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def _text(error: ValidationError, field: str) -> str:
    kind: Any = error.kind
    if isinstance(kind, Kind.Type):
        types = kind.types[0] if len(kind.types) == 1 else f"[{','.join(kind.types)}]"
        return f"Invalid type. Expected: {types}, given: {_type_name(error.instance)}"
    if isinstance(kind, Kind.Enum):
        allowed = ", ".join(msgspec.json.encode(option).decode() for option in kind.options)
        return f"{field} must be one of the following: {quoted(allowed)}"
    if isinstance(kind, Kind.Constant):
        return f"{field} does not match: {quoted(msgspec.json.encode(kind.expected_value).decode())}"
    if isinstance(kind, Kind.PropertyNames):
        return f'Property name of "{quoted(kind.error.instance)}" does not match'
    write = _TEXTS.get(type(kind))
    return write(kind) if write else quoted(error.message)


def _type_name(value: object) -> str:
    """Return what JSON Schema calls the type of a value; a number without a fraction is an integer."""
    if isinstance(value, float) and not value.is_integer():
        return "number"
    return next(name for kind, name in _TYPE_NAMES if isinstance(value, kind))


_TYPE_NAMES: tuple[tuple[type, str], ...] = (
    (type(None), "null"), (bool, "boolean"), (int, "integer"), (float, "integer"), (str, "string"), (list, "array"),
    (dict, "object"), (object, "number"),
)  # fmt: skip

_TEXTS: Mapping[type, Callable[[Any], str]] = {
    Kind.Required: lambda kind: f"{quoted(kind.property)} is required",
    Kind.AdditionalItems: lambda kind: "No additional items allowed on array",
    Kind.AnyOf: lambda kind: "Must validate at least one schema (anyOf)",
    Kind.OneOfNotValid: lambda kind: "Must validate one and only one schema (oneOf)",
    Kind.OneOfMultipleValid: lambda kind: "Must validate one and only one schema (oneOf)",
    Kind.Not: lambda kind: "Must not validate the schema (not)",
    Kind.Contains: lambda kind: "At least one of the items must match",
    Kind.FalseSchema: lambda kind: "False always fails validation",
    Kind.Pattern: lambda kind: f"Does not match pattern '{quoted(kind.pattern)}'",
    Kind.Format: lambda kind: f"Does not match format '{quoted(kind.format)}'",
    Kind.MinLength: lambda kind: f"String length must be greater than or equal to {kind.limit}",
    Kind.MaxLength: lambda kind: f"String length must be less than or equal to {kind.limit}",
    Kind.Minimum: lambda kind: f"Must be greater than or equal to {quoted(kind.limit)}",
    Kind.Maximum: lambda kind: f"Must be less than or equal to {quoted(kind.limit)}",
    Kind.ExclusiveMinimum: lambda kind: f"Must be greater than {quoted(kind.limit)}",
    Kind.ExclusiveMaximum: lambda kind: f"Must be less than {quoted(kind.limit)}",
    Kind.MultipleOf: lambda kind: f"Must be a multiple of {quoted(kind.multiple_of)}",
    Kind.MinItems: lambda kind: f"Array must have at least {kind.limit} items",
    Kind.MaxItems: lambda kind: f"Array must have at most {kind.limit} items",
    Kind.UniqueItems: lambda kind: "array items must be unique",
    Kind.MinProperties: lambda kind: f"Must have at least {kind.limit} properties",
    Kind.MaxProperties: lambda kind: f"Must have at most {kind.limit} properties",
}
"""Texts of the reference's library; what is not here keeps the engine's own text."""
