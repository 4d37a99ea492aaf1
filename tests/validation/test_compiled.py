from typing import Any

import pytest

from ams.core.errors import InvalidInput
from ams.core.messages import message
from ams.validation import compile_schema
from ams.validation.budget import Budget
from ams.validation.compiled import decoded


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

    assert refused.value.message == (
        f"Message 4 is not in valid base64 enocding,illegal base64 data at input byte {place}"
    )
