"""Payloads in JSON: the texts of contract 15.3 that the contract's table of rows does not show, and the bounds."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import InvalidInput
from ams.validation.cost import INLINE, LARGE, Budget, Watch
from ams.validation.json_schema import JsonSchema

MYSELF = {"$ref": "#"}


def text(schema: dict[str, Any], document: object) -> str:
    """What is told of a document, without the frame; empty when it is valid."""
    try:
        JsonSchema(schema).check(0, json.dumps(document).encode(), Budget())
    except InvalidInput as error:
        return error.message.removeprefix("Message 0 data is not valid").removeprefix(",")
    return ""


def nested(depth: int, innermost: object) -> object:
    value = innermost
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("schema", "document", "told"),
    [
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
    ],
)
def test_15_3_a_violation_has_the_text_of_the_reference(schema: dict[str, Any], document: object, told: str) -> None:
    assert text(schema, document) == told


def test_what_is_quoted_is_cut_and_not_everything_is_told() -> None:
    long = text({"additionalProperties": False}, {"x" * 10_000: 1})
    many = text({"items": {"type": "string"}}, list(range(500)))

    assert len(long) < 300
    assert many.endswith("20)19: Invalid type. Expected: string, given: integer.")


def test_of_a_large_document_only_the_first_violation_is_told() -> None:
    told = text({"items": {"type": "string"}}, list(range(50_000)))

    assert told == "0: Invalid type. Expected: string, given: integer"


@pytest.mark.parametrize(
    ("data", "detail"),
    [(b'"\xff"', "invalid UTF-8"), (b'{"\xed\xa0\x80": 1}', "invalid UTF-8"),
     (b'"\\ud800"', "invalid surrogate pair"), (b'{"\\ud800": 1}', "invalid surrogate pair"),
     (b'{"a', "unexpected EOF"), (b'"\\ud800', "unexpected EOF"), (b" ", "EOF"),
     (b"[" * 100_000, "nested too deeply"), (b"[" * 3000 + b"]" * 3000, "nested too deeply"),
     (b"1e400", "Number out of range"), (b"1" * 5000, "Integer value out of range")],
)  # fmt: skip
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
    assert text({"pattern": "^(a+)+$"}, "a" * 10_000 + "!").startswith("(root): Does not match pattern")


def test_references_within_the_schema_are_followed() -> None:
    tree = {"type": "object", "properties": {"left": MYSELF, "right": MYSELF}, "additionalProperties": False}

    assert text(tree, {"left": {"right": {}}}) == ""
    assert text(tree, {"left": {"x": 1}, "right": 1}) == (
        ".1)left: Additional property x is not allowed.2)right: Invalid type. Expected: object, given: integer."
    )


def test_a_schema_of_json_schemas_is_no_trouble() -> None:
    """Draft 7 describes itself so: a schema holds schemas, and lists and maps of schemas."""
    lists, maps = {"type": "array", "items": MYSELF}, {"type": "object", "additionalProperties": MYSELF}
    schemas = {
        "type": ["object", "boolean"],
        "definitions": {"lists": lists, "maps": maps},
        "properties": {
            "not": MYSELF,
            "items": {"anyOf": [MYSELF, {"$ref": "#/definitions/lists"}]},
            "dependencies": {"additionalProperties": {"anyOf": [MYSELF, {"type": "array"}]}},
            "properties": {"$ref": "#/definitions/maps"},
        },
    }

    assert text(schemas, {"items": [{"not": True}], "properties": {"a": {"items": False}}}) == ""
    assert text(schemas, {"properties": {"a": {"not": 1}}}) == (
        "properties.a.not: Invalid type. Expected: [boolean,object], given: integer"
    )


@pytest.mark.parametrize(
    "schema",
    [
        MYSELF,
        {"allOf": [MYSELF]},
        {"not": {"anyOf": [MYSELF]}},
        {"type": "array", "allOf": [{"items": MYSELF}, {"items": MYSELF}, {"items": MYSELF}]},
        {"anyOf": [{"contains": MYSELF}, {"contains": {"not": MYSELF}}, {"items": MYSELF}], "maxItems": 0},
        {"type": "array", "items": {"anyOf": [MYSELF, MYSELF, MYSELF]}},
    ],
)
def test_a_schema_of_too_many_ways_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="^Schema would take too long to check"):
        JsonSchema(schema)


def test_where_all_violations_would_take_long_less_is_told() -> None:
    wide = {"items": {"anyOf": [{"const": number} for number in range(5000)]}}

    assert text(wide, [-1] * 15) == "0: Must validate at least one schema (anyOf)"
    assert text(wide, [-1] * 2000) == "(root): Does not match the schema"


def test_a_document_is_not_followed_for_ever() -> None:
    assert text({}, nested(63, 1)) == ""
    assert text({}, nested(64, 1)) == "(root): Must not be nested deeper than 64 levels"


DRAFTS = [f"http://json-schema.org/draft-0{number}/schema#" for number in (4, 6, 7)]


def allows(schema: dict[str, Any], document: object) -> bool:
    return text(schema, document) == ""


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "(?<!a)b", "((a{0,1000}){0,1000}){0,1000}", "("])
@pytest.mark.parametrize(
    "place",
    [
        lambda part: {"properties": {"a": part}},
        lambda part: {"propertyNames": part},
        lambda part: {"propertyNames": part, "minimum": 1, "exclusiveMinimum": True},
    ],
    ids=["of values", "of names", "of names in no draft"],
)
def test_a_pattern_without_linear_time_is_refused(place: Callable[[object], dict[str, Any]], pattern: str) -> None:
    with pytest.raises(InvalidInput, match='is not a "regex"$'):
        JsonSchema(place({"pattern": pattern}))


def test_without_a_draft_all_keywords_are_in_force_and_limits_may_be_written_either_way() -> None:
    schema = {
        "propertyNames": {"pattern": "^[0-9]+$"},
        "additionalProperties": {"minimum": 1, "exclusiveMinimum": True},
    }

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
@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("uuid", "8f14e45f-ceea-467f-a34e-5d1f5f1f5d1f", "8f14e45f"),
        ("duration", "P1DT2H", "1 day"),
        ("idn-hostname", "παράδειγμα.example", "a b"),
        ("iri", "http://a.example/é", "a b"),
        ("iri-reference", "é/b", "a b"),
        ("json-pointer", "/a/0", "a"),
        ("relative-json-pointer", "1/a", "/a"),
        ("uri-reference", "a/b", "a b"),
        ("uri-template", "/a/{b}", "{"),
        ("date-time", "2024-03-05T10:20:30Z", "yesterday"),
        ("email", "a@b.example", "a"),
        ("ipv4", "127.0.0.1", "127.0.0"),
        ("regex", "a+", "("),
    ],
)
def test_a_format_is_asserted_in_every_draft(draft: str | None, name: str, good: str, bad: str) -> None:
    schema = {"format": name} if draft is None else {"$schema": draft, "format": name}

    assert allows(schema, good)
    assert allows(schema, 5)
    assert not allows(schema, bad)


def test_a_format_that_nobody_knows_says_nothing() -> None:
    assert allows({"format": "color"}, "not at all")


SCALARS: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=3)
)
DOCUMENTS = SCALARS
for _ in range(3):
    DOCUMENTS |= st.lists(DOCUMENTS, max_size=3) | st.dictionaries(st.text("ab", max_size=3), DOCUMENTS, max_size=3)
SCHEMAS = st.sampled_from(
    [
        {},
        {"type": ["object", "number", "null"]},
        {"items": {"type": "string", "pattern": "^[ab]*$"}, "maxItems": 2},
        {"properties": {"a": {"minimum": 0}, "b": MYSELF}, "additionalProperties": False},
        {"items": {"enum": [1, "a"]}},
    ]
)
PAYLOADS = DOCUMENTS.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=6)


@given(SCHEMAS, st.lists(PAYLOADS, max_size=5))
def test_what_is_found_allowed_in_no_time_is_allowed_and_the_next_one_is_not(
    schema: dict[str, Any], documents: list[bytes]
) -> None:
    compiled = JsonSchema(schema)

    count = compiled.allowed(documents, Watch(INLINE * 1000))

    for each in documents[:count]:
        compiled.check(0, each, Budget())
    if count < len(documents):
        with pytest.raises(InvalidInput):
            compiled.check(0, documents[count], Budget())


@pytest.mark.parametrize("odd", [json.dumps(nested(9, 1)), json.dumps("x" * LARGE), "[", "\ud800", "", "1e999"])
def test_only_short_and_shallow_documents_are_found_allowed_in_no_time(odd: str) -> None:
    usual = json.dumps(nested(8, "x" * 1000)).encode()

    documents = [usual, usual, odd.encode(errors="surrogatepass"), usual]

    assert JsonSchema({}).allowed(documents, Watch(INLINE * 1000)) == 2


@pytest.mark.parametrize(
    "schema",
    [
        {"items": {"allOf": [{}] * 500}},
        {"items": {"properties": {str(n): {} for n in range(500)}}},
        {"pattern": "a{500}b"},
        {"items": {"multipleOf": 1e-300}},
    ],
)
def test_what_may_take_long_for_a_schema_is_never_found_allowed_in_no_time(schema: dict[str, Any]) -> None:
    documents = [b"[" + b",".join([b"1"] * size) + b"]" for size in (1, 2500)]

    assert JsonSchema(schema).allowed(documents, Watch(INLINE * 1000)) == 1


def test_no_more_is_found_allowed_when_the_time_is_up() -> None:
    """Of what is short for the schema as a whole, no look at the time is needed."""
    documents = [b" " * (LARGE // 4 - 2) + b"{}"] * 100

    assert JsonSchema({}).allowed(documents, Watch(0)) == 4
