"""What issuers answer: JSON objects, or one error."""

import pytest

from ams.identity.answers import IssuerFailed, read_object


def test_an_object_is_read() -> None:
    assert read_object(b'{"a": [1, null], "b": {}}', "its answer") == {"a": [1, None], "b": {}}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        b'"{}"',
        b"\xff\xfe",
        b'{"a":' + b"[" * 50_000,
        b'{"a":NaN}',
        b'{"a":"\\ud800"',
        b"{}{}",
    ],
)
def test_anything_else_is_one_error(data: bytes) -> None:
    with pytest.raises(IssuerFailed, match="its answer is no JSON object"):
        read_object(data, "its answer")
