from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import InvalidInput
from ams.validation.attributes import AttributeRules
from ams.validation.budget import Budget

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
def test_the_first_message_that_breaks_a_rule_is_told(
    part: dict[str, Any], attributes: dict[str, str], told: str
) -> None:
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


def test_a_pattern_of_powers_is_quick_on_a_long_value() -> None:
    assert refusal({"patterns": {"a": "^(a+)+$"}}, {"a": "a" * 10_000 + "!"}) != ""


def test_what_is_quoted_is_cut() -> None:
    assert len(refusal({"closed": True}, {"x" * 10_000: ""})) < 300
