"""Requests as the bench makes them."""

from bench.connection import request


def test_a_token_with_dots_goes_as_a_bearer_token_and_any_other_in_the_header_of_ams() -> None:
    assert b"\r\nauthorization: Bearer a.b.c\r\n" in request("GET", "/v1/projects", "a.b.c")[0]
    assert b"\r\nx-api-key: abc\r\n" in request("GET", "/v1/projects", "abc")[0]
