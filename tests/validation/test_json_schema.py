"""Schemas of JSON payloads and of attributes: texts of contract 15.3, references and bounds."""

import json
import socket
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import InvalidInput
from ams.core.messages import message
from ams.validation.compiled import AttributeRules, compile_schema, decode_data
from ams.validation.cost import INLINE_UNITS, LARGE_BYTES, Budget, OverBudget, WorkTimer
from ams.validation.json_schema import JsonSchema
from ams.validation.references import NO_TARGET, References

SELF_REFERENCE = {"$ref": "#"}
DRAFTS = [f"http://json-schema.org/draft-0{number}/schema#" for number in (4, 6, 7)]
CONDITIONAL = {"if": {"type": "number"}, "then": {"maximum": 2}}
NESTED_SCHEMA = {"properties": {"a": {"items": {"properties": {"b": {"type": "string"}}}}}}


def error_text(schema: dict[str, Any], document: object) -> str:
    """Return the error of a document, without the envelope; empty when it is valid."""
    try:
        JsonSchema(schema).check(0, json.dumps(document).encode(), Budget())
    except InvalidInput as error:
        return error.message.removeprefix("Message 0 data is not valid").removeprefix(",")
    return ""


def nest_lists(depth: int, innermost: object) -> object:
    value = innermost
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(("schema", "document", "told"), [
    ({"type": ["string", "null"]}, 1.5, "(root): Invalid type. Expected: [null,string], given: number"),
    ({"type": "string"}, True, "(root): Invalid type. Expected: string, given: boolean"),
    ({"type": "string"}, None, "(root): Invalid type. Expected: string, given: null"),
    ({"type": "string"}, [], "(root): Invalid type. Expected: string, given: array"),
    ({"type": "string"}, {}, "(root): Invalid type. Expected: string, given: object"),
    ({"const": {"a": 1}}, 1, '(root): (root) does not match: {"a":1}'),
    ({"enum": [1, None]}, 2, "(root): (root) must be one of the following: 1, null"),
    ({"anyOf": [{"type": "string"}]}, 1, "(root): Must validate at least one schema (anyOf)"),
    ({"oneOf": [{"type": "string"}]}, 1, "(root): Must validate one and only one schema (oneOf)"),
    ({"oneOf": [{}, {}]}, 1, "(root): Must validate one and only one schema (oneOf)"),
    ({"not": {}}, 1, "(root): Must not validate the schema (not)"),
    ({"contains": {"type": "null"}}, [1], "(root): At least one of the items must match"),
    ({"properties": {"a": False}}, {"a": 1}, "a: False always fails validation"),
    ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, '(root): Property name of "ab" does not match'),
    ({"items": [{}], "additionalItems": False}, [1, 2], "(root): No additional items allowed on array"),
    ({"maxLength": 1}, "ab", "(root): String length must be less than or equal to 1"),
    ({"maximum": 1.5}, 2, "(root): Must be less than or equal to 1.5"),
    ({"exclusiveMinimum": 1}, 1, "(root): Must be greater than 1"),
    ({"multipleOf": 3}, 4, "(root): Must be a multiple of 3"),
    ({"maxItems": 1}, [1, 2], "(root): Array must have at most 1 items"),
    ({"uniqueItems": True}, [1, 1], "(root): array items must be unique"),
    ({"minProperties": 1}, {}, "(root): Must have at least 1 properties"),
    ({"maxProperties": 0}, {"a": 1}, "(root): Must have at most 0 properties"),
    ({"format": "date-time"}, "yesterday", "(root): Does not match format 'date-time'"),
    ({"required": ["name"]}, {}, "(root): name is required"),
    ({"type": "object"}, 3, "(root): Invalid type. Expected: object, given: integer"),
    ({"properties": {"a": {}}, "additionalProperties": False}, {"x": 1},
     "(root): Additional property x is not allowed"),
    ({"properties": {"kind": {"enum": ["a", "b"]}}}, {"kind": "c"},
     'kind: kind must be one of the following: "a", "b"'),
    ({"pattern": "^[a-z]+$"}, "ANN", "(root): Does not match pattern '^[a-z]+$'"),
    ({"format": "email"}, "x", "(root): Does not match format 'email'"),
    ({"minLength": 2}, "a", "(root): String length must be greater than or equal to 2"),
    ({"minimum": 0}, -1, "(root): Must be greater than or equal to 0"),
    ({"minItems": 1}, [], "(root): Array must have at least 1 items"),
    (NESTED_SCHEMA, {"a": [{"b": 1}]}, "a.0.b: Invalid type. Expected: string, given: integer"),
    ({"maximum": 3, "exclusiveMaximum": True}, 3, "(root): Must be less than 3"),
    ({"$schema": DRAFTS[1], "maximum": 3, "exclusiveMaximum": 3}, 3, "(root): Must be less than 3"),
    ({"$schema": DRAFTS[2], **CONDITIONAL}, 3, "(root): Must be less than or equal to 2"),
    (CONDITIONAL, 3, "(root): Must be less than or equal to 2"),
])  # fmt: skip
def test_15_3_a_violation_has_the_text_of_the_reference(schema: dict[str, Any], document: object, told: str) -> None:
    assert error_text(schema, document) == told


def test_what_is_quoted_is_cut_and_not_everything_is_told() -> None:
    long = error_text({"additionalProperties": False}, {"x" * 10_000: 1})
    many, very_many = (error_text({"items": {"type": "string"}}, list(range(count))) for count in (500, 50_000))
    wide = {"items": {"anyOf": [{"const": number} for number in range(5000)]}}

    assert len(long) < 300
    assert many.endswith("20)19: Invalid type. Expected: string, given: integer.")
    assert very_many == "0: Invalid type. Expected: string, given: integer"
    assert error_text(wide, [-1] * 15) == "0: Must validate at least one schema (anyOf)"
    assert error_text(wide, [-1] * 2000) == "(root): Does not match the schema"


@pytest.mark.parametrize(("data", "detail"), [
    (b'"\xff"', "invalid UTF-8"), (b'{"\xed\xa0\x80": 1}', "invalid UTF-8"),
    (b'"\\ud800"', "invalid surrogate pair"), (b'{"\\ud800": 1}', "invalid surrogate pair"),
    (b'{"a', "unexpected EOF"), (b'"\\ud800', "unexpected EOF"), (b" ", "EOF"),
    (b"[" * 100_000, "nested too deeply"), (b"[" * 3000 + b"]" * 3000, "nested too deeply"),
    (b"1e400", "Number out of range"), (b"1" * 5000, "Integer value out of range"),
])  # fmt: skip
def test_data_that_is_no_json_is_told_in_words_of_its_own(data: bytes, detail: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        JsonSchema({}).check(0, data, Budget())
    assert refused.value.message == f"Message 0 data is not valid JSON format,{detail}"


@given(st.binary())
def test_any_bytes_are_valid_or_refused(data: bytes) -> None:
    try:
        JsonSchema({"type": "object"}).check(0, data, Budget())
    except InvalidInput:
        return
    assert isinstance(json.loads(data), dict)


def test_a_pattern_of_powers_ends_on_a_long_text() -> None:
    assert error_text({"pattern": "^(a+)+$"}, "a" * 10_000 + "!").startswith("(root): Does not match pattern")


def test_references_within_the_schema_are_followed() -> None:
    tree = {"type": "object", "properties": {"left": SELF_REFERENCE, "right": SELF_REFERENCE},
            "additionalProperties": False}  # fmt: skip

    assert error_text(tree, {"left": {"right": {}}}) == ""
    assert error_text(tree, {"left": {"x": 1}, "right": 1}) == (
        ".1)left: Additional property x is not allowed.2)right: Invalid type. Expected: object, given: integer."
    )


def test_a_schema_of_json_schemas_is_no_trouble() -> None:
    """Draft 7 describes itself so: a schema contains schemas, and lists and maps of schemas."""
    lists, maps = {"type": "array", "items": SELF_REFERENCE}, {"type": "object", "additionalProperties": SELF_REFERENCE}
    schemas = {
        "type": ["object", "boolean"],
        "definitions": {"lists": lists, "maps": maps},
        "properties": {
            "not": SELF_REFERENCE,
            "items": {"anyOf": [SELF_REFERENCE, {"$ref": "#/definitions/lists"}]},
            "dependencies": {"additionalProperties": {"anyOf": [SELF_REFERENCE, {"type": "array"}]}},
            "properties": {"$ref": "#/definitions/maps"},
        },
    }

    assert error_text(schemas, {"items": [{"not": True}], "properties": {"a": {"items": False}}}) == ""
    assert error_text(schemas, {"properties": {"a": {"not": 1}}}) == (
        "properties.a.not: Invalid type. Expected: [boolean,object], given: integer"
    )


@pytest.mark.parametrize("schema", [
    SELF_REFERENCE, {"allOf": [SELF_REFERENCE]}, {"not": {"anyOf": [SELF_REFERENCE]}},
    {"type": "array", "allOf": [{"items": SELF_REFERENCE}, {"items": SELF_REFERENCE}, {"items": SELF_REFERENCE}]},
    {"anyOf": [{"contains": SELF_REFERENCE}, {"contains": {"not": SELF_REFERENCE}}, {"items": SELF_REFERENCE}],
     "maxItems": 0},
    {"type": "array", "items": {"anyOf": [SELF_REFERENCE, SELF_REFERENCE, SELF_REFERENCE]}},
])  # fmt: skip
def test_a_schema_of_too_many_ways_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="^Schema would take too long to check"):
        JsonSchema(schema)


def test_a_document_is_not_followed_for_ever() -> None:
    assert error_text({}, nest_lists(63, 1)) == ""
    assert error_text({}, nest_lists(64, 1)) == "(root): Must not be nested deeper than 64 levels"


def allows(schema: dict[str, Any], document: object) -> bool:
    return error_text(schema, document) == ""


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "(?<!a)b", "((a{0,1000}){0,1000}){0,1000}", "("])
@pytest.mark.parametrize("place", [
    lambda part: {"properties": {"a": part}}, lambda part: {"propertyNames": part},
    lambda part: {"propertyNames": part, "minimum": 1, "exclusiveMinimum": True},
], ids=["of values", "of names", "of names in no draft"])  # fmt: skip
def test_a_pattern_without_linear_time_is_refused(place: Callable[[object], dict[str, Any]], pattern: str) -> None:
    with pytest.raises(InvalidInput, match='is not a "regex"$'):
        JsonSchema(place({"pattern": pattern}))


def test_without_a_draft_all_keywords_are_in_force_and_limits_may_be_written_either_way() -> None:
    schema = {
        "propertyNames": {"pattern": "^[0-9]+$"}, "additionalProperties": {"minimum": 1, "exclusiveMinimum": True},
    }  # fmt: skip

    assert allows(schema, {"1": 2})
    assert not allows(schema, {"1": 1})
    assert not allows(schema, {"a": 2})
    assert allows({"maximum": 1, "exclusiveMaximum": False}, 1)
    assert not allows({"exclusiveMaximum": 1}, 1)
    assert allows({"const": {"minimum": 1, "exclusiveMinimum": True}}, {"minimum": 1, "exclusiveMinimum": True})


def test_with_a_draft_its_own_way_is_the_only_one() -> None:
    old = {"minimum": 1, "exclusiveMinimum": True}

    assert not allows({"$schema": DRAFTS[0], **old}, 1)
    with pytest.raises(InvalidInput):
        JsonSchema({"$schema": DRAFTS[2], **old})
    with pytest.raises(InvalidInput):
        JsonSchema({"exclusiveMinimum": True})


@pytest.mark.parametrize("draft", [None, *DRAFTS])
@pytest.mark.parametrize(("name", "good", "bad"), [
    ("uuid", "8f14e45f-ceea-467f-a34e-5d1f5f1f5d1f", "8f14e45f"), ("duration", "P1DT2H", "1 day"),
    ("idn-hostname", "παράδειγμα.example", "a b"), ("iri", "http://a.example/é", "a b"),
    ("iri-reference", "é/b", "a b"), ("json-pointer", "/a/0", "a"), ("relative-json-pointer", "1/a", "/a"),
    ("uri-reference", "a/b", "a b"), ("uri-template", "/a/{b}", "{"),
    ("date-time", "2024-03-05T10:20:30Z", "yesterday"), ("email", "a@b.example", "a"),
    ("ipv4", "127.0.0.1", "127.0.0"), ("regex", "a+", "("),
])  # fmt: skip
def test_a_format_is_asserted_in_every_draft(draft: str | None, name: str, good: str, bad: str) -> None:
    schema = {"format": name} if draft is None else {"$schema": draft, "format": name}
    assert allows(schema, good)
    assert allows(schema, 5)
    assert not allows(schema, bad)


SCALARS: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=3)
)
DOCUMENTS = SCALARS
for _ in range(3):
    DOCUMENTS |= st.lists(DOCUMENTS, max_size=3) | st.dictionaries(st.text("ab", max_size=3), DOCUMENTS, max_size=3)
SCHEMAS = st.sampled_from(
    [
        {}, {"type": ["object", "number", "null"]},
        {"items": {"type": "string", "pattern": "^[ab]*$"}, "maxItems": 2},
        {"properties": {"a": {"minimum": 0}, "b": SELF_REFERENCE}, "additionalProperties": False},
        {"items": {"enum": [1, "a"]}},
    ]
)  # fmt: skip
PAYLOADS = DOCUMENTS.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=6)


@given(SCHEMAS, st.lists(PAYLOADS, max_size=5))
def test_documents_allowed_at_once_are_valid_but_not_the_next(schema: dict[str, Any], documents: list[bytes]) -> None:
    compiled = JsonSchema(schema)

    count = compiled.count_valid(documents, WorkTimer(INLINE_UNITS * 1000))

    for each in documents[:count]:
        compiled.check(0, each, Budget())
    if count < len(documents):
        with pytest.raises(InvalidInput):
            compiled.check(0, documents[count], Budget())


@pytest.mark.parametrize(
    "odd", [json.dumps(nest_lists(9, 1)), json.dumps("x" * LARGE_BYTES), "[", "\ud800", "", "1e999"]
)
def test_only_short_and_shallow_documents_are_found_allowed_in_no_time(odd: str) -> None:
    usual = json.dumps(nest_lists(8, "x" * 1000)).encode()
    documents = [usual, usual, odd.encode(errors="surrogatepass"), usual]
    assert JsonSchema({}).count_valid(documents, WorkTimer(INLINE_UNITS * 1000)) == 2


@pytest.mark.parametrize("schema", [
    {"items": {"allOf": [{}] * 500}}, {"items": {"properties": {str(n): {} for n in range(500)}}},
    {"pattern": "a{500}b"}, {"items": {"multipleOf": 1e-300}},
])  # fmt: skip
def test_what_may_take_long_for_a_schema_is_never_found_allowed_in_no_time(schema: dict[str, Any]) -> None:
    documents = [b"[" + b",".join([b"1"] * size) + b"]" for size in (1, 2500)]
    assert JsonSchema(schema).count_valid(documents, WorkTimer(INLINE_UNITS * 1000)) == 1


def test_no_more_is_found_allowed_when_the_time_is_up() -> None:
    """A text too short for the schema as a whole needs no look at the clock."""
    documents = [b" " * (LARGE_BYTES // 4 - 2) + b"{}"] * 100
    assert JsonSchema({}).count_valid(documents, WorkTimer(0)) == 4


DOUBLINGS = 60  # a schema with 2^60 steps would keep the service busy for longer than anybody lives


def doubling_definitions(name: str = "z{}", path: str = "#/definitions/z{}") -> dict[str, Any]:
    chain = {name.format(n): {"allOf": [{"$ref": path.format(n + 1)}] * 2} for n in range(DOUBLINGS)}
    return {**chain, name.format(DOUBLINGS): {"minProperties": 0}}


@pytest.mark.parametrize("schema", [
    {"$ref": "https://schemas.example/a.json#/b"},
    {"$ref": "file:///etc/hostname"},
    {"$id": "http://schemas.example/", "properties": {"a": {"$ref": "b.json"}}},
    {"$schema": "http://json-schema.org/draft-04/schema#", "$ref": "http://schemas.example/a.json"},
    {"allOf": [{"$ref": "http://a.example/x"}]}, {"properties": {"a": {"$ref": ""}}},
    {"$ref": "#name"}, {"$ref": "?"}, {"$ref": 1}, {"$ref": "x#/definitions/a"},
])  # fmt: skip
def test_a_reference_that_is_no_path_is_refused(schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
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
        "enum": [{"$ref": "http://a.example/"}], "properties": {"a": {"default": {}}}, "items": {"$ref": path},
        "definitions": {"enum": {}},
    }  # fmt: skip

    with pytest.raises(InvalidInput, match="^[$]ref must lead to a schema: "):
        JsonSchema(schema)


@pytest.mark.parametrize("schema", [
    {"allOf": [{"$ref": "#/definitions/z0"}], "definitions": doubling_definitions()},
    {
        "allOf": [{"$ref": "http://a.example/x"}],
        "definitions": {"z0": {}, "A": {"$id": "http://a.example/x", "definitions": doubling_definitions()}},
    },
    {
        "allOf": [{"$ref": "#/definitions/z%2F0"}],
        "definitions": {**doubling_definitions("z/{}", "#/definitions/z%2F{}"), "z": {str(n): {} for n in range(61)}},
    },
    {"allOf": [{"$ref": "http://a.example/0"}], "default": [{"$id": "http://a.example/0"}]},
], ids=["plain", "name", "escaped slash", "decoy"])  # fmt: skip
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

    assert target is not NO_TARGET
    assert [name for name in named if engine.is_valid(name)] == [target["const"]]


def deep_schema(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


@pytest.mark.parametrize(("schema", "told"), [
    ({"title": "x" * 300_000}, "Schema is too large: at most 262144 bytes of JSON"),
    (deep_schema(70), "Schema is nested too deeply: at most 64 levels"),
    (deep_schema(5000), "Schema is nested too deeply: at most 64 levels"),
    ({"anyOf": [{"pattern": str(n)} for n in range(31)]}, "Schema has too many patterns: at most 30"),
    ({"patternProperties": {str(n): {} for n in range(31)}}, "Schema has too many patterns: at most 30"),
], ids=["large", "deep", "very deep", "patterns", "patterns of names"])  # fmt: skip
@pytest.mark.parametrize("kind", ["json", "avro"])
def test_a_schema_over_its_limits_is_refused(kind: str, schema: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        compile_schema(kind, schema, None)
    assert refused.value.message == told


def test_a_schema_at_its_limits_is_compiled_and_a_part_that_is_missing_allows_anything() -> None:
    compile_schema("json", deep_schema(60), None)
    compile_schema("json", {"anyOf": [{"pattern": "^a{1,200}$"} for _ in range(30)]}, None)
    compile_schema("json", None, None).check(0, message("eA==", {"k": "v"}), Budget())
    with pytest.raises(InvalidInput, match="^Schema has too many patterns: at most 30$"):
        compile_schema("json", None, {"patterns": {str(n): "a" for n in range(31)}})


@pytest.mark.parametrize(
    ("data", "place"), [("aGk", 3), ("a", 1), ("aG*k", 2), ("====", 4), ("aGk=aGk=", 8), ("\r\nü", 2)]
)
def test_15_3_data_that_is_not_base64_is_told_with_its_place(data: str, place: int) -> None:
    with pytest.raises(InvalidInput) as refused:
        decode_data(4, data)
    told = f"illegal base64 data at input byte {place}"
    assert refused.value.message == f"Message 4 is not in valid base64 enocding,{told}"


TEXT = st.text(max_size=3)


def refusal(part: dict[str, Any], attributes: dict[str, str]) -> str:
    try:
        AttributeRules(part).check(2, attributes, Budget())
    except InvalidInput as error:
        return error.message
    return ""


@pytest.mark.parametrize(("part", "attributes", "told"), [
    ({"required": ["a"]}, {"a": ""}, ""),
    ({"required": ["a"]}, {}, "Message 2 attributes are not valid,a: is required"),
    ({"values": {"a": ["1", "2"]}}, {}, ""),
    ({"values": {"a": ["1", "2"]}}, {"a": "3"},
     'Message 2 attributes are not valid,a: must be one of the following: "1", "2"'),
    ({"patterns": {"a": "b"}}, {"a": "abc"}, ""),
    ({"patterns": {"a": "^b"}}, {"a": "abc"}, "Message 2 attributes are not valid,a: Does not match pattern '^b'"),
    ({"closed": False}, {"a": "1"}, ""),
    ({"closed": True}, {"a": "1"}, "Message 2 attributes are not valid,a: is not allowed"),
    ({"closed": True, "required": ["a"], "values": {"b": ["1"]}, "patterns": {"c": ""}},
     {"a": "1", "b": "1", "c": "1"}, ""),
    ({"required": ["a", "b"]}, {}, "Message 2 attributes are not valid.1)a: is required.2)b: is required."),
])  # fmt: skip
def test_the_rule_that_is_broken_is_told(part: dict[str, Any], attributes: dict[str, str], told: str) -> None:
    assert refusal(part, attributes) == told


@given(st.lists(TEXT), st.dictionaries(TEXT, st.lists(TEXT)), st.booleans(), st.dictionaries(TEXT, TEXT))
def test_attributes_pass_exactly_when_every_rule_holds(
    required: list[str], values: dict[str, list[str]], closed: bool, attributes: dict[str, str]
) -> None:
    known = {*required, *values}
    holds = (
        all(name in attributes for name in required)
        and all(attributes[name] in allowed for name, allowed in values.items() if name in attributes)
        and (not closed or set(attributes) <= known)
    )

    assert (refusal({"required": required, "values": values, "closed": closed}, attributes) == "") == holds


@pytest.mark.parametrize("part", [
    {"need": []}, {"required": "a"}, {"required": [1]}, {"values": {"a": "b"}}, {"patterns": {"a": 1}},
    {"patterns": {"a": "("}}, {"patterns": {"a": "(?=b)"}}, {"closed": "true"}, {"required": None},
])  # fmt: skip
def test_a_part_that_is_none_is_refused(part: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="^Schema attributes are not valid: "):
        AttributeRules(part)


def test_a_pattern_of_powers_ends_on_a_long_value() -> None:
    assert refusal({"patterns": {"a": "^(a+)+$"}}, {"a": "a" * 10_000 + "!"}) != ""


def test_what_is_quoted_is_cut() -> None:
    assert len(refusal({"closed": True}, {"x" * 10_000: ""})) < 300


@pytest.mark.usefixtures("frozen_thread_time")
def test_a_long_text_for_a_pattern_is_over_the_budget() -> None:
    rules = AttributeRules({"patterns": {"a": "[ab]*a[ab]{60}c"}})
    with pytest.raises(OverBudget):
        rules.check(0, {"a": "ab" * 10_000}, Budget(INLINE_UNITS))
    rules.check(0, {"b": "ab" * 10_000}, Budget(INLINE_UNITS))
