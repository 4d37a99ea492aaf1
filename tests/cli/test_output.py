import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.cli.output import columns, document, fields, json_line, printable, short_name
from ams.client import wire


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


def test_resources_are_called_by_their_last_part() -> None:
    assert short_name("/projects/P/topics/T") == "T"
    assert short_name("") == ""
