"""Which draft a schema is of, and what it means where drafts differ."""

import json
from typing import Any

import pytest

from ams.core.errors import InvalidInput
from ams.validation.budget import Budget
from ams.validation.json_schema import JsonSchema

DRAFTS = [f"http://json-schema.org/draft-0{number}/schema#" for number in (4, 6, 7)]


def allows(schema: dict[str, Any], document: object) -> bool:
    try:
        JsonSchema(schema).check(0, json.dumps(document).encode(), Budget())
    except InvalidInput as error:
        assert error.message.startswith("Message 0 data is not valid,")
        return False
    return True


@pytest.mark.parametrize("text", ["(?=[0-9])", r"(a)\1", "((a{0,1000}){0,1000}){0,1000}"])
@pytest.mark.parametrize("mixed", [{}, {"minimum": 1, "exclusiveMinimum": True}])
def test_a_pattern_of_names_is_compiled_or_refused_too(text: str, mixed: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match='is not a "regex"$'):
        JsonSchema({"propertyNames": {"pattern": text}, **mixed})


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


def test_the_text_of_a_format_does_not_depend_on_who_asserts_it() -> None:
    with pytest.raises(InvalidInput, match=r"^Message 0 data is not valid,\(root\): Does not match format 'uuid'$"):
        JsonSchema({"format": "uuid"}).check(0, b'"x"', Budget())
