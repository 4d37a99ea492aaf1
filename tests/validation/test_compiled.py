from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import InvalidInput
from ams.core.messages import message
from ams.validation import compile_schema
from ams.validation.compiled import AttributeRules, decoded
from ams.validation.cost import INLINE, Budget, TooMuch


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"title": "x" * 300_000}, "Schema is too large: at most 262144 bytes of JSON"),
        (deep(70), "Schema is nested too deeply: at most 64 levels"),
        (deep(5000), "Schema is nested too deeply: at most 64 levels"),
        ({"anyOf": [{"pattern": str(n)} for n in range(31)]}, "Schema has too many patterns: at most 30"),
        ({"patternProperties": {str(n): {} for n in range(31)}}, "Schema has too many patterns: at most 30"),
    ],
    ids=["large", "deep", "very deep", "patterns", "patterns of names"],
)
@pytest.mark.parametrize("kind", ["json", "avro"])
def test_a_schema_over_its_limits_is_refused(kind: str, schema: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        compile_schema(kind, schema, None)

    assert refused.value.message == told


def test_the_attributes_part_counts_too() -> None:
    with pytest.raises(InvalidInput, match="^Schema has too many patterns: at most 30$"):
        compile_schema("json", None, {"patterns": {str(n): "a" for n in range(31)}})


def test_a_schema_at_its_limits_is_compiled() -> None:
    compile_schema("json", deep(60), None)
    compile_schema("json", {"anyOf": [{"pattern": "^a{1,200}$"} for _ in range(30)]}, None)


def test_a_part_that_is_missing_allows_anything() -> None:
    compile_schema("json", None, None).check(0, message("eA==", {"k": "v"}), Budget())


@pytest.mark.parametrize(
    ("data", "place"), [("aGk", 3), ("a", 1), ("aG*k", 2), ("====", 4), ("aGk=aGk=", 8), ("\r\nü", 2)]
)
def test_15_3_data_that_is_not_base64_is_told_with_its_place(data: str, place: int) -> None:
    with pytest.raises(InvalidInput) as refused:
        decoded(4, data)

    told = f"illegal base64 data at input byte {place}"
    assert refused.value.message == f"Message 4 is not in valid base64 enocding,{told}"


TEXT = st.text(max_size=3)


def refusal(part: dict[str, Any], attributes: dict[str, str]) -> str:
    try:
        AttributeRules(part).check(2, attributes, Budget())
    except InvalidInput as error:
        return error.message
    return ""


@pytest.mark.parametrize(
    ("part", "attributes", "told"),
    [
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
    ],
)  # fmt: skip
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


@pytest.mark.parametrize(
    "part",
    [{"need": []}, {"required": "a"}, {"required": [1]}, {"values": {"a": "b"}}, {"patterns": {"a": 1}},
     {"patterns": {"a": "("}}, {"patterns": {"a": "(?=b)"}}, {"closed": "true"}, {"required": None}],
)  # fmt: skip
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

    with pytest.raises(TooMuch):
        rules.check(0, {"a": "ab" * 10_000}, Budget(INLINE))
    rules.check(0, {"b": "ab" * 10_000}, Budget(INLINE))
