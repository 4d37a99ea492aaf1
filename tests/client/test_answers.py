"""Answers: every struct is decoded and encoded again without loss, and messages and errors are made of them."""

import importlib
import pkgutil
import types
import typing
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ams.client.wire.subscriptions as own
import ams.wire
from ams.client import Message, errors, wire
from ams.client.messages import incoming, outgoing
from ams.client.wire import ReceivedMessage
from tests.support.description import TABLE
from tests.support.texts import DECODED


def structs(package: types.ModuleType) -> Iterator[type[msgspec.Struct]]:
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        for value in vars(importlib.import_module(found.name)).values():
            if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == found.name:
                yield value


SENT = {
    f"{kind.__module__.removeprefix('ams.wire.')}.{kind.__name__}": kind
    for kind in structs(ams.wire)
    if not kind.__struct_config__.forbid_unknown_fields  # a request
}
READ_AS_IT_CAME = {
    "subscriptions.Subscription": own.Subscription, "subscriptions.Subscriptions": own.Subscriptions,
    "push.PushTarget": own.PushTarget, "push.Lease": own.PushLease,
}  # fmt: skip
"""Answers with push configurations, which the client decodes without losing unknown fields."""


def emptiest_value(kind: Any) -> Any:
    """Return the emptiest value of a type; optional texts and parts are present."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return emptiest_value(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return emptiest_value(arguments[0])
    if origin is not None:
        return {} if issubclass(origin, Mapping) else []
    if issubclass(kind, msgspec.Struct):
        return emptiest_struct(kind)
    return "x" if kind is str else kind()


def emptiest_struct(kind: type[msgspec.Struct]) -> msgspec.Struct:
    types_of = typing.get_type_hints(kind, include_extras=True)
    always = [
        field.name
        for field in msgspec.structs.fields(kind)
        if field.required or any(mark == ams.wire.base.ALWAYS for mark in typing.get_args(types_of[field.name])[1:])
    ]
    return kind(**{name: emptiest_value(types_of[name]) for name in always})


def test_all_that_routes_read_and_answer_is_of_the_wire() -> None:
    used = {kind for row in TABLE for kind in (row.request, row.answer) if kind is not None}
    assert {kind.__module__.rpartition(".")[0] for kind in used} == {"ams.wire"}


@pytest.mark.parametrize("name", sorted(SENT))
def test_an_answer_read_and_written_again_is_what_was_sent(name: str) -> None:
    sent = msgspec.json.encode(emptiest_struct(SENT[name]))
    read = msgspec.json.decode(sent, type=READ_AS_IT_CAME.get(name, SENT[name]))
    assert msgspec.json.decode(msgspec.json.encode(read)) == msgspec.json.decode(sent)


def test_an_answer_that_misses_what_was_promised_is_not_taken() -> None:
    with pytest.raises(msgspec.DecodeError):
        wire.pull("P", "S").read(b"{}")
    with pytest.raises(msgspec.DecodeError):
        wire.list_topics("P").read(b'{"topics": null, "nextPageToken": "", "totalSize": 0}')


def test_unknown_fields_are_ignored() -> None:
    assert wire.publish("P", "T", []).read(b'{"messageIds": ["0"], "more": {}}').message_ids == ["0"]


@pytest.mark.parametrize("body", [b"", b"{}", b'{"message": "deactivated"}'])
def test_an_answer_that_says_nothing_is_read_whatever_it_holds(body: bytes) -> None:
    assert wire.delete_subscription("P", "S").read(body) is None


@pytest.mark.parametrize(("text", "expected"), DECODED)
def test_data_is_decoded_as_the_service_does(text: str, expected: bytes | None) -> None:
    if expected is None:
        with pytest.raises(ValueError):
            wire.Message(data=text).payload()
    else:
        assert wire.Message(data=text).payload() == expected


def test_a_named_token_with_all_rights_is_told_from_one_with_some() -> None:
    some = b'{"name": "N", "user": "U", "rights": [{"action": "topics:publish", "resource": "projects/P"}]}'
    every = b'{"name": "N", "user": "U", "created_on": "2024-03-05T10:20:30Z", "token": "s3cret"}'

    assert wire.get_token("U", "N").read(some).rights == [wire.Right(action="topics:publish", resource="projects/P")]
    token = wire.create_token("U", "N").read(every)
    assert (token.rights, token.token) == (None, "s3cret")
    assert "s3cret" not in repr(token)


def received_message(ordering_key: str = "", **fields: object) -> ReceivedMessage:
    usual = {"message_id": "7", "publish_time": "2024-03-05T10:20:30.123Z"}
    message = wire.PulledMessage(**(usual | fields))  # type: ignore[arg-type]  # tests name fields freely
    return ReceivedMessage(ack_id="projects/P/subscriptions/S:7", ordering_key=ordering_key, message=message)


@given(st.binary(), st.dictionaries(st.text(), st.text()), st.text())
def test_what_a_message_says_survives_the_wire(data: bytes, attributes: dict[str, str], key: str) -> None:
    sent = outgoing(Message(data, attributes, key))
    message = incoming(received_message(sent.ordering_key, data=sent.data, attributes=sent.attributes))
    assert (message.data, message.attributes, message.ordering_key) == (data, attributes, key)


@pytest.mark.parametrize("time", ["2016-02-24T11:55:09.786127994Z", "2016-02-24T12:55:09.786127+01:00"])
def test_a_received_message_has_an_id_a_time_of_any_precision_and_what_acknowledges_it(time: str) -> None:
    message = incoming(received_message(publish_time=time))
    assert (message.id, message.ack_id) == ("7", "projects/P/subscriptions/S:7")
    assert message.publish_time == datetime(2016, 2, 24, 11, 55, 9, 786_127, UTC)


def test_a_received_message_is_published_again_without_its_id_and_time() -> None:
    again = outgoing(incoming(received_message("bed 4", data="aGk=", attributes={"k": "v"})))
    assert again == wire.Message(data="aGk=", attributes={"k": "v"}, ordering_key="bed 4")


def envelope(code: int, message: str, status: str) -> bytes:
    return f'{{"error": {{"code": {code}, "message": "{message}", "status": "{status}"}}}}'.encode()


@pytest.mark.parametrize(("code", "status", "kind"), [
    (400, "INVALID_ARGUMENT", errors.InvalidInput), (400, "BAD_REQUEST", errors.InvalidInput),
    (401, "UNAUTHORIZED", errors.NotAuthenticated), (403, "FORBIDDEN", errors.NotAllowed),
    (404, "NOT_FOUND", errors.NotFound), (408, "TIMEOUT", errors.AckTimeout),
    (409, "ALREADY_EXISTS", errors.AlreadyExists), (409, "CONFLICT", errors.Conflict),
    (413, "INVALID_ARGUMENT", errors.TooLarge), (429, "", errors.Overloaded),
    (500, "INTERNAL_SERVER_ERROR", errors.Unavailable), (503, "UNAVAILABLE", errors.Overloaded),
    (418, "", errors.Refused),
])  # fmt: skip
def test_an_envelope_becomes_the_error_of_its_code(code: int, status: str, kind: type[errors.Refused]) -> None:
    error = errors.refusal(code, envelope(code, "what happened", status))
    assert type(error) is kind
    assert (error.code, error.message, error.status) == (code, "what happened", status)


@pytest.mark.parametrize("body", [b"", b"404 page not found\n", b'{"detail": "no"}', b'{"error": "no"}', b"\xff"])
def test_a_body_that_is_no_envelope_is_not_of_ams(body: bytes) -> None:
    error = errors.refusal(404, body)
    assert isinstance(error, errors.NotAms)
    assert error.message.startswith("answer 404 without an AMS error: no AMS is there")


@pytest.mark.parametrize("status", [429, 502, 503])
def test_an_error_of_a_proxy_may_pass_and_one_of_ams_says_how_long_to_wait(status: int) -> None:
    by_proxy = errors.refusal(status, b"<html>later</html>")
    by_ams = errors.refusal(503, envelope(503, "busy", "UNAVAILABLE"), "2")

    assert isinstance(by_proxy, errors.Unavailable)
    assert by_proxy.message == f"answer {status} without an AMS error"
    assert isinstance(by_ams, errors.Overloaded)
    assert by_ams.retry_after == "2"
