"""What comes in the Authorization header (RFC 6750, 2.1)."""

import pytest

from ams.access.admission import Bearer, bearer_of


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_scheme_is_a_scheme_in_any_letters(scheme: str) -> None:
    assert bearer_of(f"{scheme} abc".encode()) == "abc"


@pytest.mark.parametrize("header", [b"", b"Bearer", b"Bearer ", b"Bearer a b", b"Basic YTpi", b"abc", b"Bearera b"])
def test_what_cannot_be_read_is_none(header: bytes) -> None:
    assert bearer_of(header) is None


def test_a_bearer_token_is_the_text_it_holds() -> None:
    token = bearer_of(b"Bearer abc")

    assert token == "abc"
    assert {"abc": 1}[token or ""] == 1
    assert isinstance(token, Bearer)


def test_forms_are_told_apart() -> None:
    assert Bearer("e30.e30.c2ln").is_jwt
    assert not Bearer("abc").is_jwt
    assert Bearer("0f" * 32).looks_own
    assert not Bearer("0F" * 32).looks_own
    assert not Bearer("0f" * 31).looks_own
