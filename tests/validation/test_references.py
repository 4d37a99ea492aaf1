"""References: what is followed is followed as the engine does, and all else is refused."""

import socket
from typing import Any

import jsonschema_rs
import pytest

from ams.core.errors import InvalidInput
from ams.validation.cost import Budget
from ams.validation.json_schema import JsonSchema
from ams.validation.references import NOWHERE, References

DOUBLINGS = 60
"""A schema that looks 2^60 times would keep the service busy for longer than anybody lives."""


def doubling(name: str = "z{}", path: str = "#/definitions/z{}") -> dict[str, Any]:
    chain = {name.format(n): {"allOf": [{"$ref": path.format(n + 1)}] * 2} for n in range(DOUBLINGS)}
    return {**chain, name.format(DOUBLINGS): {"minProperties": 0}}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://schemas.example/a.json#/b"},
        {"$ref": "file:///etc/hostname"},
        {"$id": "http://schemas.example/", "properties": {"a": {"$ref": "b.json"}}},
        {"$schema": "http://json-schema.org/draft-04/schema#", "$ref": "http://schemas.example/a.json"},
        {"allOf": [{"$ref": "http://a.example/x"}]},
        {"$ref": "#name"},
        {"$ref": "?"},
        {"$ref": 1},
        {"$ref": "x#/definitions/a"},
        {"properties": {"a": {"$ref": ""}}},
    ],
)
def test_a_reference_that_is_no_path_is_refused_without_a_connection(
    schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *place: pytest.fail(f"asked for {place}"))

    with pytest.raises(InvalidInput, match='^[$]ref must lead within the schema, as "#/definitions/site" does: '):
        JsonSchema(schema)


@pytest.mark.parametrize("key", ["$id", "id", "$schema"])
@pytest.mark.parametrize("place", ["properties", "definitions", "anything"])
def test_a_part_may_have_no_name_of_its_own(key: str, place: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        JsonSchema({place: {"a": {key: "http://a.example/x"}}})

    assert refused.value.message == f"{key} is allowed at the root of a schema only: http://a.example/x"


@pytest.mark.parametrize("key", ["$id", "id"])
@pytest.mark.parametrize("name", ["http://[", "http://a:99999999/", "http://:1/", "a b", "\n", 1, None])
def test_a_root_has_a_good_name_or_none(key: str, name: object) -> None:
    with pytest.raises(InvalidInput, match=r"^[$]?id must be a URI: "):
        JsonSchema({key: name})


@pytest.mark.parametrize("name", ["http://a.example/s", "urn:uuid:1", "#", "//", "site.json", "http://[::1]:80/é"])
def test_a_name_of_the_root_changes_nothing(name: str) -> None:
    schema = JsonSchema({"$id": name, "items": {"$ref": "#/definitions/n"}, "definitions": {"n": {"type": "null"}}})

    schema.check(0, b"[null]", Budget())
    with pytest.raises(InvalidInput):
        schema.check(0, b"[1]", Budget())


def test_what_is_only_compared_and_what_users_name_so_is_no_name() -> None:
    data = {"$id": "http://[", "$ref": "http://a.example/"}

    JsonSchema({"enum": [data], "const": data, "default": data, "examples": [data]})
    JsonSchema({"properties": {"id": {"type": "string"}, "$id": {}, "default": {"type": "string"}}})


@pytest.mark.parametrize("path", ["#/enum/0", "#/properties/a/default", "#/definitions"])
def test_a_reference_leads_to_a_schema(path: str) -> None:
    schema = {
        "enum": [{"$ref": "http://a.example/"}],
        "properties": {"a": {"default": {}}},
        "items": {"$ref": path},
        "definitions": {"enum": {}},
    }

    with pytest.raises(InvalidInput, match="^[$]ref must lead to a schema: "):
        JsonSchema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"$ref": "#/definitions/z0"}], "definitions": doubling()},
        {
            "allOf": [{"$ref": "http://a.example/x"}],
            "definitions": {"z0": {}, "A": {"$id": "http://a.example/x", "definitions": doubling()}},
        },
        {
            "allOf": [{"$ref": "#/definitions/z%2F0"}],
            "definitions": {**doubling("z/{}", "#/definitions/z%2F{}"), "z": {str(n): {} for n in range(61)}},
        },
        {"allOf": [{"$ref": "http://a.example/0"}], "default": [{"$id": "http://a.example/0"}]},
    ],
    ids=["plain", "name", "escaped slash", "decoy"],
)
def test_work_cannot_be_hidden(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="too often|allowed at the root|must lead within"):
        JsonSchema(schema)


@pytest.mark.parametrize("step", ["a%2Fb", "a~1b", "a%7E1b", "%61~1b", "~0", "~01", "%7E0", "a%252Fb", "é", "%C3%A9"])
def test_a_path_is_read_as_the_engine_reads_it(step: str) -> None:
    named = {name: {"const": name} for name in ("a/b", "a", "~", "~1", "a%2Fb", "a~1b", "é", "%61/b")}
    reference = f"#/definitions/{step}"
    target = References({"definitions": named}).target(reference)
    try:
        engine = jsonschema_rs.Draft7Validator({"$ref": reference, "definitions": named})
    except jsonschema_rs.ValidationError:
        return  # no reference for the engine: refused when a schema is made

    assert target is not NOWHERE
    assert [name for name in named if engine.is_valid(name)] == [target["const"]]
