"""Validating the messages of a publish request: many simple ones at once, the others one by one."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import InvalidInput
from ams.core.messages import Message, batch_of, message
from ams.service.validators import check_some
from ams.validation.compiled import compile_schema

pytestmark = pytest.mark.usefixtures("frozen_thread_time")

OBJECTS = compile_schema("json", {"type": "object"}, None)


def make_message(payload: bytes, **attributes: str) -> Message:
    return message(base64.b64encode(payload).decode(), attributes)


USUAL, DEEP, WRONG, LONG = (
    make_message(b"{}"), make_message(b'{"a":' + b"[" * 20 + b"]" * 20 + b"}"), make_message(b"1"),
    make_message(b"{}" + b" " * 20_000),
)  # fmt: skip
BROKEN_MESSAGE = message("e30\r\n=")


@given(st.lists(st.sampled_from([USUAL, USUAL, DEEP, WRONG, LONG, BROKEN_MESSAGE]), max_size=6))
def test_a_batch_is_checked_as_its_messages_are(messages: list[Message]) -> None:
    def describe_check(candidates: list[Message] | None) -> int | str:
        try:
            return check_some(OBJECTS, batch_of(messages) if candidates is None else candidates)
        except InvalidInput as error:
            return error.message

    assert describe_check(None) == describe_check(messages)


@pytest.mark.parametrize("before", [[], [USUAL] * 3, [USUAL, DEEP, BROKEN_MESSAGE]])
def test_the_first_message_that_is_not_allowed_is_told_with_its_number(before: list[Message]) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_some(OBJECTS, batch_of([*before, WRONG, USUAL]))
    told = "(root): Invalid type. Expected: object, given: integer"
    assert refused.value.message == f"Message {len(before)} data is not valid,{told}"


def test_attributes_are_checked_too() -> None:
    compiled = compile_schema("json", {"type": "object"}, {"required": ["site"]})
    assert check_some(compiled, batch_of([make_message(b"{}", site="A")] * 2)) == 2
    with pytest.raises(InvalidInput, match="^Message 1 attributes are not valid,site: is required$"):
        check_some(compiled, batch_of([make_message(b"{}", site="A"), USUAL]))


def test_what_is_not_done_in_no_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter(range(1000))
    monkeypatch.setattr("time.thread_time", lambda: next(looks) * 0.003)
    monkeypatch.setattr("time.perf_counter", lambda: next(looks) * 0.003)
    assert check_some(OBJECTS, batch_of([make_message(b"{}" + b" " * 4000)] * 100)) == 4
