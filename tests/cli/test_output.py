"""Output of commands: tables for people, and with `-o json` the API's documents, empty lists too."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.cli.output import columns, document, fields, json_line, printable
from ams.client import wire
from tests.cli.conftest import Ams, prepare_project
from tests.support.service import LiveService


def test_columns_are_aligned_and_not_cut_and_without_rows_they_are_the_header() -> None:
    table = columns(("NAME", "WHAT"), [("a", "x" * 200), ("longer-name", "")])
    assert table.splitlines() == ["NAME         WHAT", "a            " + "x" * 200, "longer-name"]
    assert columns(("NAME", "WHAT"), []) == "NAME  WHAT"


def test_fields_leave_out_what_is_empty() -> None:
    assert fields({"topic": "t", "schema": "", "created": "now"}) == "topic    t\ncreated  now"
    assert fields({"schema": ""}) == ""


def test_what_others_wrote_cannot_draw_on_the_terminal() -> None:
    assert printable("red \x1b[31m\nline\ttab ä") == r"red \x1b[31m\nline\ttab ä"
    assert columns(("DATA",), [("a\nb",)]).splitlines() == ["DATA", r"a\nb"]


@given(st.text())
def test_whatever_it_was_it_is_printable_and_nothing_printable_is_changed(text: str) -> None:
    assert printable(text).isprintable()
    if text.isprintable():
        assert printable(text) == text


def test_a_document_keeps_the_spelling_of_the_wire() -> None:
    message = wire.message(b"hi", {"k": "v"})
    assert json.loads(document(message)) == {"attributes": {"k": "v"}, "data": "aGk="}


@given(st.text(), st.text())
def test_json_for_programs_cannot_draw_on_a_terminal_either(name: str, text: str) -> None:
    for written in (document({name: text}), json_line({name: text})):
        assert all(each.isprintable() or each == "\n" for each in written)
        assert json.loads(written) == {name: text}


@pytest.mark.parametrize("character", ["\x7f", "\x9b", "\u202e", "\u2066", "\u200f", "\u2028", "\ufeff", "\U000e0041"])
def test_json_escapes_controls_and_marks_of_direction(character: str) -> None:
    assert character not in json_line([character])
    assert json.loads(document([f"a{character}ä"])) == [f"a{character}ä"]
    assert "ä" in json_line([f"a{character}ä"])


USED, EMPTY = "/projects/{used}", "/projects/{empty}"
SHOWN = {
    "projects list": "/projects", "projects show {used}": USED, "users list": "/users?details=true",
    "users show {used}-m": "/users/{used}-m", "members list": f"{USED}/members?details=true",
    "members show {used}-m": f"{USED}/members/{{used}}-m", "topics list": f"{USED}/topics",
    "topics show t": f"{USED}/topics/t", "topics acl t": f"{USED}/topics/t:acl",
    "topics offsets t": f"{USED}/topics/t:offsets", "subs list": f"{USED}/subscriptions",
    "subs show s": f"{USED}/subscriptions/s", "subs acl s": f"{USED}/subscriptions/s:acl",
    "subs offsets s": f"{USED}/subscriptions/s:offsets",
    "subs push-status pushed": f"{USED}/subscriptions/pushed:pushStatus", "schemas list": f"{USED}/schemas",
    "schemas show reading": f"{USED}/schemas/reading",
    "registrations list --status declined": "/registrations?status=declined", "issuers list": "/issuers",
    "token list --user {used}-m": "/users/{used}-m/tokens",
    "token show laptop --user {used}-m": "/users/{used}-m/tokens/laptop",
    "bindings list --user {used}-m": "/users/{used}-m/bindings", "metrics project": f"{USED}:metrics",
    "metrics topic t": f"{USED}/topics/t:metrics", "metrics subscription s": f"{USED}/subscriptions/s:metrics",
    "metrics va --only {empty}": "/metrics/va_metrics?projects={empty}",
    "metrics usage --only {empty}": "/users/usageReport?projects={empty}",
}  # fmt: skip
MADE = """projects create {p}-empty
users create {p}-u
schemas create reading --file -
members create {p}-m
token create laptop --user {p}-m
bindings create checkin --user {p}-m --issuer https://i.example --subject {p}
topics create t
subs create s --topic t
subs create pushed --topic t
subs push-config pushed --url https://receiver.example/in"""


@pytest.fixture(scope="module")
def prepared_ams(service: LiveService, tmp_path_factory: pytest.TempPathFactory) -> Ams:
    return prepare_project(service, tmp_path_factory.mktemp("json"), MADE)


def without_tokens(shown: Any) -> Any:
    """Tokens are printed only on request."""
    if isinstance(shown, list):
        return [without_tokens(each) for each in shown]
    if isinstance(shown, dict):
        return {name: without_tokens(value) for name, value in shown.items() if name != "token"}
    return shown


@pytest.mark.parametrize("command", SHOWN)
def test_what_is_shown_is_what_the_api_sends(command: str, prepared_ams: Ams, service: LiveService) -> None:
    name = prepared_ams.folder.name
    words, path = (text.format(used=name, empty=f"{name}-empty") for text in (command, SHOWN[command]))
    for _ in range(5):  # metrics have a time, which may have gone on between the two
        shown = prepared_ams.json(*words.split())
        sent = without_tokens(service.ask("GET", path))
        if shown == sent:
            break

    assert shown == sent


def test_a_pull_of_nothing_and_dead_letters_of_nobody_are_empty_lists(prepared_ams: Ams) -> None:
    assert prepared_ams("pull", "s", "--no-wait", "-o", "json").stdout == '{\n  "receivedMessages": []\n}\n'
    assert prepared_ams("dead", "list", "s", "--from", "t", "-o", "json").stdout == "[]\n"
    assert prepared_ams("topics", "read", "t", "-o", "json").stdout == ""
