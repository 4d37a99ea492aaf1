"""What is said of failures: short, on one line, and never a secret."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.push_config import MATTERMOST
from ams.push.delivery import new_secret
from ams.push.details import MAX_BYTES, Details, repeats
from tests.push.keepers import pulled, target

HEADER = "5f2d7c0a9b1e4d3f8a6c"
SECRET = new_secret()
HOOK = "https://chat.example/hooks/xyzhookidentity"
DETAILS = Details(target(header_value=f"Bearer {HEADER}", secrets=[SECRET], verification_hash="0011223344556677"))
CHAT = Details(target(type=MATTERMOST, mattermost_url=HOOK))


@given(st.text(), st.text(), st.sampled_from([HEADER, f"Bearer {HEADER}", SECRET, SECRET[6:], "0011223344556677"]))
def test_p19_no_secret_is_shown_whoever_repeats_it(before: str, after: str, secret: str) -> None:
    assert secret not in DETAILS.detail(before + secret + after)


@given(st.integers(5, len(HEADER)))
def test_a_text_that_was_cut_within_a_secret_does_not_show_its_beginning(length: int) -> None:
    assert HEADER[:5] not in DETAILS.detail("the value was " + HEADER[:length])


@given(st.text(max_size=5000), st.text(alphabet="<>!-?/abtiles &;", max_size=2000))
def test_p19_a_detail_and_what_is_shown_of_a_page_are_one_short_line(text: str, page: str) -> None:
    for shown in (DETAILS.detail(text * 10), DETAILS.answer("<" + page)):
        assert len(shown.encode()) <= MAX_BYTES
        assert len(shown.splitlines()) <= 1


def test_half_a_character_is_not_shown() -> None:
    assert DETAILS.detail("ä" * 5000) == "ä" * (MAX_BYTES // 2)


def test_what_cannot_be_printed_is_left_out() -> None:
    assert DETAILS.detail("a\ud800b\x1b[31m\x00\r\nc") == "a b [31m c"


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ('{"id": "x", "message": "No hook", "detailed_error": "", "status_code": 400}', "No hook"),
        ('{"message": "No hook", "detailed_error": "it was deleted"}', "No hook.it was deleted"),
        ("[]", "[]"),
        ('{"message": 1}', '{"message": 1}'),
        ("\ud800", ""),
        ("", ""),
    ],
)
def test_mattermost_is_quoted_as_the_contract_says_and_another_answer_as_it_is(answer: str, shown: str) -> None:
    assert CHAT.answer(answer) == shown


def test_the_address_of_a_hook_is_a_secret() -> None:
    assert CHAT.detail(f"{HOOK}: refused") == "***: refused"
    assert CHAT.detail("POST /hooks/xyzhookidentity") == "POST /hooks/***"


@pytest.mark.parametrize("after", ["/", "?x=1", "#x", "/slack"])
def test_the_identity_of_a_hook_is_hidden_wherever_it_stands_in_its_url(after: str) -> None:
    chat = Details(target(type=MATTERMOST, mattermost_url=HOOK + after))

    assert chat.detail("no hook xyzhookidentity at chat.example") == "no hook *** at chat.example"


def test_other_endpoints_answers_are_not_read_as_mattermosts() -> None:
    assert DETAILS.answer('{"message": "m"}') == '{"message": "m"}'


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("<!doctype html>\n<html lang=en>\n<title>400 Bad Request</title>\n<h1>Bad Request</h1>\n<p>no such bed</p>",
         "400 Bad Request no such bed"),
        ("<html><title>400: no such bed</title><body>400: no such bed</body></html>", "400: no such bed"),
        ("<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>"
         "\r\n<hr><center>nginx</center></body></html>", "502 Bad Gateway nginx"),
        ("<!DOCTYPE html><html><head><style>p {color: red}</style><script>if (1<2) no()</script></head><!-- a -->"
         "<body>a &lt; b &amp; c</body>", "a < b & c"),
        ("  <html><title>Error</title><style>" + "p {color: red}" * 500, "Error"),
        ("<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Not here</Message></Error>",
         "AccessDenied Not here"),
        ("<html>", ""), ("<![x[ <", ""), ("2 < 3", "2 < 3"), ("say <b>hi</b>", "say <b>hi</b>"),
    ],
)  # fmt: skip
def test_of_a_page_its_title_and_text_are_shown(page: str, shown: str) -> None:
    assert DETAILS.answer(page) == shown


def test_a_secret_within_a_page_is_hidden() -> None:
    assert DETAILS.answer(f"<html><title>Error</title>who is <b>{HEADER}</b>?") == "Error who is *** ?"


@pytest.mark.parametrize(
    "text",
    [
        "cannot read SGVsbG8sIHdvcmxkIG9mIGJlZHM=", "cannot read: Hello, world of beds", "got 'world of beds'",
        "Hello,  'WORLD' of", "no bed named roses 7", "bad key: GREENHOUSE 12",
    ],
)  # fmt: skip
def test_a_text_that_repeats_a_message_is_noticed(text: str) -> None:
    message = pulled(1, "SGVsbG8sIHdvcmxkIG9mIGJlZHM=", {"bed": "roses-7"}, "greenhouse-12")

    assert repeats(text, [pulled(0, ""), message])


@given(st.text("abcdefghij", min_size=11, max_size=40), st.text(), st.text("abcdefghij", max_size=8))
def test_eleven_characters_of_a_message_in_a_row_are_noticed(data: str, before: str, after: str) -> None:
    sent = base64.b64encode(f"{after}{data}{before}".encode()).decode()

    assert repeats(before + data[:11] + after, [pulled(1, sent)])


@pytest.mark.parametrize("text", ["", "no such bed", "Duplicate 'User-Agent' header found.", "unknown subscription"])
def test_a_text_of_its_own_repeats_nothing(text: str) -> None:
    assert not repeats(text, [pulled(1, "SGVsbG8sIHdvcmxkIG9mIGJlZHM=", {"bed": "roses-7"}), pulled(2, "not base64!")])
