"""What is said of failures: short, on one line, and never a secret."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.push.details import MAX_BYTES, Details
from ams.push.signing import new_secret
from ams.push_config import MATTERMOST
from tests.push.keepers import target

HEADER = "5f2d7c0a9b1e4d3f8a6c"
SECRET = new_secret()
HOOK = "https://chat.example/hooks/xyzhookidentity"
DETAILS = Details(target(header_value=f"Bearer {HEADER}", secrets=[SECRET], verification_hash="0011223344556677"))
CHAT = Details(target(type=MATTERMOST, mattermost_url=HOOK))


@given(st.text(), st.text(), st.sampled_from([HEADER, f"Bearer {HEADER}", SECRET, SECRET[6:], "0011223344556677"]))
def test_no_secret_is_shown_whoever_repeats_it(before: str, after: str, secret: str) -> None:
    """P19."""
    assert secret not in DETAILS.detail(before + secret + after)


@given(st.integers(5, len(HEADER)))
def test_a_text_that_was_cut_within_a_secret_does_not_show_its_beginning(length: int) -> None:
    assert HEADER[:5] not in DETAILS.detail("the value was " + HEADER[:length])


@given(st.text(max_size=5000))
def test_a_detail_is_one_line_of_two_kibibytes_at_most(text: str) -> None:
    """P19."""
    shown = DETAILS.detail(text * 10)

    assert len(shown.encode()) <= MAX_BYTES
    assert len(shown.splitlines()) <= 1


def test_half_a_character_is_not_shown() -> None:
    assert DETAILS.detail("ä" * 5000) == "ä" * (MAX_BYTES // 2)


def test_what_cannot_be_printed_is_left_out() -> None:
    assert DETAILS.detail("a\ud800b\x1b[31m\x00\r\nc") == "a b [31m c"


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ({"id": "x", "message": "No hook", "detailed_error": "", "status_code": 400}, "No hook"),
        ({"message": "No hook", "detailed_error": "it was deleted"}, "No hook.it was deleted"),
    ],
)
def test_mattermost_is_quoted_as_the_contract_says(answer: dict[str, object], shown: str) -> None:
    assert CHAT.answer(json.dumps(answer)) == shown


@pytest.mark.parametrize("text", ["<html>", "[]", '{"message": 1}', "\ud800", ""])
def test_another_answer_of_mattermost_is_quoted_as_it_is(text: str) -> None:
    assert CHAT.answer(text) == text.replace("\ud800", "")


def test_the_address_of_a_hook_is_a_secret() -> None:
    assert CHAT.detail(f"{HOOK}: refused") == "***: refused"
    assert CHAT.detail("POST /hooks/xyzhookidentity") == "POST /hooks/***"


@pytest.mark.parametrize("after", ["/", "?x=1", "#x", "/slack"])
def test_the_identity_of_a_hook_is_hidden_wherever_it_stands_in_its_url(after: str) -> None:
    chat = Details(target(type=MATTERMOST, mattermost_url=HOOK + after))

    assert chat.detail("no hook xyzhookidentity at chat.example") == "no hook *** at chat.example"


def test_other_endpoints_answers_are_not_read_as_mattermosts() -> None:
    assert DETAILS.answer('{"message": "m"}') == '{"message": "m"}'
