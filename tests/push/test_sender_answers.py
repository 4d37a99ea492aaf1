"""Answers: excerpts that can be shown, and `Retry-After` (RFC 9110, 10.2.3)."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.push.connecting import Reply
from ams.push.sender import TEXT_BYTES, answer, excerpt, retry_after

NOW = datetime(1994, 11, 6, 8, 49, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("said", "seconds"),
    [(b"0", 0.0), (b"120", 120.0), (b" 7 ", 7.0), (b"Sun, 06 Nov 1994 08:49:37 GMT", 37.0),
     (b"Sunday, 06-Nov-94 08:49:37 GMT", 37.0), (b"Sun Nov  6 08:49:37 1994", 37.0),
     (b"Sun, 06 Nov 1994 08:48:00 GMT", 0.0)],
)  # fmt: skip
def test_seconds_and_dates_are_understood(said: bytes, seconds: float) -> None:
    assert retry_after([said], NOW) == seconds


@pytest.mark.parametrize(
    "said", [b"", b"soon", b"-1", b"1.5", b"\xb2", b"1e9", b"99 Nov 1994", b"1" * 65, b"Sun, 99 Nov 1994 25:00:00 GMT"]
)
def test_garbage_says_nothing(said: bytes) -> None:
    assert retry_after([said], NOW) is None


def test_whoever_says_it_twice_says_nothing() -> None:
    assert retry_after([b"1", b"2"], NOW) is None


@given(st.binary(max_size=80))
def test_whatever_is_said_is_no_error(said: bytes) -> None:
    found = retry_after([said], NOW)

    assert found is None or found >= 0


@given(st.binary(max_size=5000))
def test_an_excerpt_is_one_short_line(body: bytes) -> None:
    said = excerpt(body)

    assert said.isprintable()
    assert len(said) <= TEXT_BYTES


def test_an_excerpt_is_the_beginning_of_the_text() -> None:
    assert excerpt("<p>\r\n  übel\x1b[31m\x00 </p>".encode()) == "<p> übel[31m </p>"


def test_a_success_has_no_text_and_a_refusal_has() -> None:
    assert answer(Reply(201, [], b"thanks", ""), NOW).text == ""
    assert answer(Reply(503, [(b"Retry-After", b"9")], b"busy", ""), NOW) == (503, "busy", 9.0)


@pytest.mark.parametrize(("coding", "text"), [(b"gzip", ""), (b"GZIP", ""), (b"identity", "busy"), (b" ", "busy")])
def test_what_is_compressed_has_no_text(coding: bytes, text: str) -> None:
    assert answer(Reply(503, [(b"content-ENCODING", coding)], b"busy", ""), NOW).text == text
