"""Requests and answers are JSON by Google's mapping, as in `json_format`; anything else is refused."""

import base64
from typing import Any

import pytest
from google.iam.v1 import iam_policy_pb2, policy_pb2
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.pubsub_v1 import types
from google.pubsub_v1.services.publisher.transports import rest_base as publisher
from google.pubsub_v1.services.schema_service.transports import rest_base as schemas
from google.pubsub_v1.services.subscriber.transports import rest_base as subscriber
from hypothesis import given
from hypothesis import strategies as st

from ams.pubsub import protos
from ams.pubsub.bindings import BINDINGS, ROUTES, WHOLE, field_in, shape_of
from ams.pubsub.transcoding import MOST_VALUES, BadPayload, fill, read_json, read_query, show

pb: Any = types
KINDS = [
    getattr(protos, name)
    for name in ("PublishRequest", "PullResponse", "AcknowledgeRequest", "UpdateTopicRequest",
                 "UpdateSubscriptionRequest", "SeekRequest", "CreateSnapshotRequest", "ListSchemasResponse")
] + [iam_policy_pb2.SetIamPolicyRequest, policy_pb2.Policy]  # fmt: skip
SCALARS = {FieldDescriptor.TYPE_STRING: st.text(st.characters(codec="utf-8"), max_size=5),
           FieldDescriptor.TYPE_BYTES: st.binary(max_size=5), FieldDescriptor.TYPE_BOOL: st.booleans(),
           FieldDescriptor.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
           FieldDescriptor.TYPE_INT64: st.integers(-(2**63), 2**63 - 1)}  # fmt: skip
PLAIN_MESSAGES = {
    "google.protobuf.Duration": st.builds(dict, seconds=st.integers(0, 10**6), nanos=st.integers(0, 999_999_999)),
    "google.protobuf.Timestamp": st.builds(dict, seconds=st.integers(0, 10**9), nanos=st.integers(0, 999_999_999)),
    "google.protobuf.FieldMask": st.builds(dict, paths=st.lists(st.sampled_from(["a", "b_c", "d.e_f"]), max_size=3)),
}


def fill_message(data: Any, message: Any, depth: int = 0) -> Any:
    for each in message.DESCRIPTOR.fields:
        if each.name.startswith("value") or not data.draw(st.booleans()):
            continue
        if each.containing_oneof and message.WhichOneof(each.containing_oneof.name):
            continue
        target, inner = getattr(message, each.name), each.message_type
        if inner is None:
            is_enum = each.type == FieldDescriptor.TYPE_ENUM
            kind = st.sampled_from([value.number for value in each.enum_type.values]) if is_enum else SCALARS[each.type]
            if each.is_repeated:
                target.extend(data.draw(st.lists(kind, max_size=2)))
            else:
                setattr(message, each.name, data.draw(kind))
        elif inner.GetOptions().map_entry:
            text = SCALARS[FieldDescriptor.TYPE_STRING]
            target.update(data.draw(st.dictionaries(text, text, max_size=2)))
        elif inner.full_name in PLAIN_MESSAGES:
            target.MergeFrom(type(target)(**data.draw(PLAIN_MESSAGES[inner.full_name])))
        elif depth < 3 and inner.full_name != "google.protobuf.Struct":
            fill_message(data, target.add() if each.is_repeated else target, depth + 1)
    return message


@given(st.sampled_from(KINDS), st.booleans(), st.data())
def test_messages_are_json_as_google_writes_and_reads_it(kind: Any, numbers: bool, data: Any) -> None:
    message = fill_message(data, kind())
    shown = show(message, numbers)
    assert shown == json_format.MessageToDict(message, use_integers_for_enums=numbers)
    again = kind()
    fill(again, shown)
    assert again == message
    snake = kind()
    fill(snake, json_format.MessageToDict(message, preserving_proto_field_name=True))
    assert snake == message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["topic", "messages", "data", "attributes", "updateMask", "policy", "etag", "time", "no"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@given(st.sampled_from(KINDS), json_values)
def test_what_google_would_not_read_is_refused_here_too(kind: Any, value: object) -> None:
    """Only base64 is stricter here: the library drops invalid characters."""
    read = True
    try:
        expected = json_format.ParseDict(value, kind())
    except Exception:  # it has no one error
        read = False
    message = kind()
    try:
        fill(message, value)
    except BadPayload as error:
        assert not read or "Base64" in error.message or "object" in error.message or "list" in error.message
    else:
        assert not read or message == expected


@given(st.binary(max_size=10))
def test_bytes_are_read_from_both_alphabets_with_padding_or_without(data: bytes) -> None:
    for text in (base64.b64encode(data), base64.urlsafe_b64encode(data)):
        for each in (text, text.rstrip(b"=")):
            message = pb.PubsubMessage.pb()()
            fill(message, {"data": each.decode()})
            assert message.data == data


@pytest.mark.parametrize(("value", "text"), [
    ({"maxMessages": "x"}, "Invalid value at 'maxMessages' (a whole number is needed), \"x\""),
    ({"maxMessages": 1.5}, "Invalid value at 'maxMessages' (a whole number is needed)"),
    ({"maxMessages": True}, "Invalid value at 'maxMessages' (a whole number is needed)"),
    ({"returnImmediately": "true"}, "Invalid value at 'returnImmediately' (TYPE_BOOL), \"true\""),
    ({"subscription": 1}, "Invalid value at 'subscription' (TYPE_STRING)"),
    ({"other": 1}, 'Invalid JSON payload received. Unknown name "other": Cannot find field.'),
    ({"max_messages": 1, "maxMessages": 1}, "Invalid JSON payload received. The field 'maxMessages' is there twice."),
    ([], "Invalid value at 'request' (an object is needed)"),
])  # fmt: skip
def test_an_error_names_the_field(value: object, text: str) -> None:
    with pytest.raises(BadPayload) as error:
        fill(pb.PullRequest.pb()(), value)
    assert error.value.message == text


@pytest.mark.parametrize("body", [
    b"{", b"{} {}", b"nothing", b"\xff", b'{"a": "\xff"}', b'{"a": NaN}', b"[" * 100_000, b'{"a":' * 100_000,
    b"[" + b"0," * MOST_VALUES + b"0]",
])  # fmt: skip
def test_what_is_no_json_or_too_much_of_it_is_refused(body: bytes) -> None:
    with pytest.raises(BadPayload, match=r"Invalid JSON payload received\."):
        read_json(body)


def test_marks_within_strings_are_no_values() -> None:
    assert read_json(b'["' + b'{,\\":' * MOST_VALUES + b'"]') == ['{,":' * MOST_VALUES]
    assert read_json(b" ") == {}


def test_a_query_sets_fields_and_fields_of_fields() -> None:
    kind = protos.GetIamPolicyRequest
    request = kind()
    fill(request, read_query(kind.DESCRIPTOR, "options.requestedPolicyVersion=3&key=k", frozenset({"key"})))
    assert request == kind(options={"requested_policy_version": 3})
    for query in (
        "no=1", "options.no=1", "options.requestedPolicyVersion.no=1", "resource=x&resource.no=1",
        "resource=x&resource.a.b=1",
    ):  # fmt: skip
        with pytest.raises(BadPayload):
            fill(kind(), read_query(kind.DESCRIPTOR, query, frozenset()))
    pull = pb.PullRequest.pb()
    request = pull()
    fill(request, read_query(pull.DESCRIPTOR, "returnImmediately=true&max_messages=2", frozenset()))
    assert (request.return_immediately, request.max_messages) == (True, 2)


def test_bindings_are_those_of_googles_client() -> None:
    known = {}
    for module, base in ((publisher, "_BasePublisherRestTransport"), (subscriber, "_BaseSubscriberRestTransport"),
                         (schemas, "_BaseSchemaServiceRestTransport")):  # fmt: skip
        for name, inner in vars(getattr(module, base)).items():
            if name.startswith("_Base") and hasattr(inner, "_get_http_options"):
                for option in inner._get_http_options():
                    found = known.setdefault(name.removeprefix("_Base"), set())
                    found.add((option["method"].upper(), option["uri"].removeprefix("/v1/"), option.get("body", "")))
    ours: dict[str, set[Any]] = {}
    for each in BINDINGS:
        ours.setdefault(each.rpc, set()).add((each.http, each.template, each.body))
    own = {name: found for name, found in ours.items() if not name.endswith(("IamPolicy", "IamPermissions"))}
    assert {name: own[name] for name in known if name in own} == {
        name: {(http, uri, body) for http, uri, body in found if "snapshots/*}:detach" not in uri}
        for name, found in known.items()
        if name in own
    }
    assert set(own) <= set(known)
    iam = {each for name in ours if name not in own for each in ours[name]}
    assert iam >= {each for name, found in known.items() if name in ours and name not in own for each in found}


@pytest.mark.parametrize("binding", BINDINGS, ids=lambda each: f"{each.rpc} {each.pattern}")
def test_a_path_leads_to_its_method(binding: Any) -> None:
    path = binding.shape.replace("*", "a.b~c")
    assert ROUTES[shape_of(path)][binding.http] is binding
    assert field_in(binding, path) == binding.pattern.replace("*", "a.b~c")
    assert binding.body in ("", WHOLE, "schema")
