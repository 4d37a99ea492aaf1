"""Schemas by Google's client, and publishing to topics with a schema."""

import base64
import io
import json
import re
from typing import Any

import fastavro
import httpx
import pytest
from google.api_core import exceptions
from google.pubsub_v1 import PublisherClient
from google.pubsub_v1.types import Encoding, Schema, SchemaView, Topic

from tests.pubsub.conftest import World
from tests.support.waiting import PATIENCE_SECONDS


def record(*names: str) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": "int"} for name in names]}


def avro_schema(*names: str) -> Schema:
    return Schema(type_=Schema.Type.AVRO, definition=json.dumps(record(*names), indent=2))


def parent(world: World) -> str:
    return f"projects/{world.project}"


def path(world: World, name: str = "records") -> str:
    return f"{parent(world)}/schemas/{name}"


def make_schema(world: World, *names: str, name: str = "records") -> Schema:
    request = {"parent": parent(world), "schema": avro_schema(*names), "schema_id": name}
    return world.schemas.create_schema(request=request)


def commit_revision(world: World, *names: str) -> Schema:
    return world.schemas.commit_schema(request={"name": path(world), "schema": avro_schema(*names)})


def with_topic(world: World, encoding: str = "JSON", **settings: str) -> None:
    said = {"schema": path(world), "encoding": encoding, **settings}
    world.publisher.create_topic(request={"name": world.topic(), "schema_settings": said})
    world.subscriber.create_subscription(request={"name": world.subscription(), "topic": world.topic()})


def update_settings(world: World, path: str, **settings: str) -> Topic:
    """Change the topic's settings that a mask names; without schema settings, remove them."""
    topic = {"name": world.topic(), **({"schema_settings": settings} if settings else {})}
    return world.publisher.update_topic(request={"topic": topic, "update_mask": {"paths": [path]}})


def publish(world: World, *data: bytes) -> None:
    messages = [{"data": each} for each in data]
    PublisherClient.publish(world.publisher, request={"topic": world.topic(), "messages": messages})


def encode_datum(schema: dict[str, Any], datum: object) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), datum)
    return sink.getvalue()


def test_a_schema_is_shown_as_it_was_made(world: World) -> None:
    schema = make_schema(world, "a")
    assert schema.name == path(world)
    assert schema.type_ == Schema.Type.AVRO
    assert schema.definition == avro_schema("a").definition
    assert re.fullmatch("[0-9a-f]{8}", schema.revision_id)
    assert world.schemas.get_schema(name=path(world)) == schema
    assert world.schemas.get_schema(name=f"{path(world)}@{schema.revision_id}") == schema
    assert not world.schemas.get_schema(request={"name": path(world), "view": SchemaView.BASIC}).definition
    with pytest.raises(exceptions.AlreadyExists):
        make_schema(world, "a")
    with pytest.raises(exceptions.NotFound, match="Resource not found \\(resource=records@00000000\\)"):
        world.schemas.get_schema(name=f"{path(world)}@00000000")


def test_schemas_are_listed_by_name_in_pages(world: World) -> None:
    for name in ("three", "one-of", "two"):
        make_schema(world, "a", name=name)
    request = {"parent": parent(world), "page_size": 2}
    first = next(world.schemas.list_schemas(request=request).pages)
    assert [each.name for each in first.schemas] == [path(world, "one-of"), path(world, "three")]
    assert not any(each.definition for each in first.schemas)
    every = list(world.schemas.list_schemas(request=request | {"view": SchemaView.FULL}))
    assert [each.name for each in every] == [path(world, each) for each in ("one-of", "three", "two")]
    assert all(each.definition for each in every)
    with pytest.raises(exceptions.InvalidArgument, match="Invalid page token"):
        world.schemas.list_schemas(request=request | {"page_token": "/"})


def test_revisions_are_made_rolled_back_and_deleted(world: World) -> None:
    first = make_schema(world, "a")
    second = commit_revision(world, "a", "b")
    third = world.schemas.rollback_schema(name=path(world), revision_id=first.revision_id)
    assert third.definition == first.definition
    assert len({each.revision_id for each in (first, second, third)}) == 3
    pages = world.schemas.list_schema_revisions(request={"name": path(world), "page_size": 2, "view": SchemaView.FULL})
    assert list(pages) == [third, second, first]

    assert world.schemas.delete_schema_revision(name=f"{path(world)}@{third.revision_id}", revision_id="") == second
    request = {"name": path(world), "revision_id": first.revision_id}
    assert world.schemas.delete_schema_revision(request=request) == second
    with pytest.raises(exceptions.InvalidArgument, match="last revision"):
        world.schemas.delete_schema_revision(name=f"{path(world)}@{second.revision_id}", revision_id="")
    with pytest.raises(exceptions.NotFound):
        world.schemas.rollback_schema(name=path(world), revision_id=first.revision_id)
    assert commit_revision(world, "c").revision_id not in {first.revision_id, second.revision_id, third.revision_id}


def test_a_schema_has_at_most_20_revisions(world: World) -> None:
    first = make_schema(world, "a")
    for _ in range(19):
        commit_revision(world, "a")
    with pytest.raises(exceptions.FailedPrecondition):
        commit_revision(world, "a")
    with pytest.raises(exceptions.FailedPrecondition):
        world.schemas.rollback_schema(name=path(world), revision_id=first.revision_id)


NO_DEFINITIONS = ("", '"string"', '{"type": "rec"}', '{"type": "string"} x')


@pytest.mark.parametrize(
    "schema", [Schema(definition="{}"), *(Schema(type_=Schema.Type.AVRO, definition=each) for each in NO_DEFINITIONS)]
)
def test_what_is_no_schema_is_refused(world: World, schema: Schema) -> None:
    make_schema(world, "a")
    for ask in (lambda: world.schemas.create_schema(parent=parent(world), schema=schema, schema_id="other"),
                lambda: world.schemas.validate_schema(parent=parent(world), schema=schema),
                lambda: world.schemas.commit_schema(name=path(world), schema=schema)):  # fmt: skip
        with pytest.raises(exceptions.InvalidArgument):
            ask()
    assert [each.name for each in world.schemas.list_schemas(parent=parent(world))] == [path(world)]


def proto_schema(*fields: str) -> Schema:
    definition = f'syntax = "proto3"; // \N{SNOWMAN}\nmessage Reading {{ {" ".join(fields)} }}'
    return Schema(type_=Schema.Type.PROTOCOL_BUFFER, definition=definition)


def test_schemas_in_protocol_buffers_have_revisions_and_check_both_encodings(world: World) -> None:
    client, name = world.schemas, path(world)
    one, two = proto_schema("string a = 1;"), proto_schema("string a = 1;", "int32 b = 2;")
    client.validate_schema(parent=parent(world), schema=one)
    first = client.create_schema(parent=parent(world), schema=one, schema_id="records")
    second = client.commit_schema(name=name, schema=two)
    assert (first.type_, first.definition) == (one.type_, one.definition)
    assert client.get_schema(name=f"{name}@{first.revision_id}") == first
    assert client.rollback_schema(name=name, revision_id=first.revision_id).definition == one.definition
    client.delete_schema_revision(request={"name": name, "revision_id": first.revision_id})
    with pytest.raises(exceptions.InvalidArgument, match="type of a schema cannot change"):
        client.commit_schema(name=name, schema=avro_schema("a"))

    with_topic(world, first_revision_id=second.revision_id, last_revision_id=second.revision_id)
    publish(world, b'{"a": "x", "b": 5}')
    with pytest.raises(exceptions.InvalidArgument, match='Message 1 is not valid.*no field named "c"'):
        publish(world, b'{"a": "x"}', b'{"c": 5}')
    update_settings(world, "schema_settings", schema=name, encoding="BINARY")
    publish(world, b"\x0a\x01x\x10\x05")
    with pytest.raises(exceptions.InvalidArgument, match="Message 0 is not valid.the data is not a message Reading"):
        publish(world, b'{"a": "x"}')
    assert [each.message.attributes["googclient_schemaencoding"] for each in world.pull()] == ["JSON", "BINARY"]


@pytest.mark.parametrize(("schema", "told"), [
    (proto_schema("none a = 1;"), 'line 2: "none" is not defined'),
    (proto_schema("string a = 1; } message B {"), "A schema defines one message on top"),
    (proto_schema("string a = 1; // " + "x" * 2**18), "at most 262144 bytes"),
])  # fmt: skip
def test_what_is_no_schema_in_protocol_buffers_is_refused(world: World, schema: Schema, told: str) -> None:
    ask = {"parent": parent(world), "schema": schema}
    for call in (
        lambda: world.schemas.create_schema(request={**ask, "schema_id": "other"}),
        lambda: world.schemas.validate_schema(request=ask),
        lambda: world.schemas.validate_message(request={**ask, "message": b"", "encoding": "BINARY"}),
    ):
        with pytest.raises(exceptions.InvalidArgument, match=told):
            call()


def test_a_message_in_protocol_buffers_is_validated_without_a_topic(world: World) -> None:
    ask = {"parent": parent(world), "schema": proto_schema("string a = 1;")}
    world.schemas.validate_message(request={**ask, "message": b"\x0a\x01x", "encoding": "BINARY"})
    world.schemas.validate_message(request={**ask, "message": b'{"a": "x"}', "encoding": "JSON"})
    with pytest.raises(exceptions.InvalidArgument, match="Message 0 is not valid"):
        world.schemas.validate_message(request={**ask, "message": b"\x0a", "encoding": "BINARY"})


def test_messages_are_validated_without_a_topic(world: World) -> None:
    first = make_schema(world, "a")
    commit_revision(world, "b")

    def validate(message: bytes, encoding: Encoding = Encoding.JSON, **about: Any) -> None:
        request = {"parent": parent(world), "message": message, "encoding": encoding, **about}
        world.schemas.validate_message(request=request)

    validate(b'{"b":1}', name=path(world))
    validate(b'{"a":1}', name=f"{path(world)}@{first.revision_id}")
    validate(b'{"c":1}', schema=avro_schema("c"))
    validate(encode_datum(record("c"), {"c": 5}), Encoding.BINARY, schema=avro_schema("c"))
    for message, encoding, about in (
        (b'{"a":1}', Encoding.JSON, {"name": path(world)}), (b'{"c":1}', Encoding.BINARY, {"schema": avro_schema("c")}),
        (b'{"c":1}', Encoding.ENCODING_UNSPECIFIED, {"schema": avro_schema("c")}),
        (b'{"c":1}', Encoding.JSON, {"name": "projects/other/schemas/records"}), (b'{"c":1}', Encoding.JSON, {}),
    ):  # fmt: skip
        with pytest.raises(exceptions.InvalidArgument):
            validate(message, encoding, **about)
    with pytest.raises(exceptions.NotFound, match="resource=none"):
        validate(b"", name=path(world, "none"))


def test_messages_that_fit_tell_consumers_what_schema_they_keep(world: World) -> None:
    schema = make_schema(world, "a")
    with_topic(world)
    world.publisher.publish(world.topic(), b'{"a": 1}', site="x").result(PATIENCE_SECONDS)
    [received] = world.pull()
    assert received.message.data == b'{"a": 1}'
    assert dict(received.message.attributes) == {
        "site": "x", "googclient_schemaname": path(world), "googclient_schemaencoding": "JSON",
        "googclient_schemarevisionid": schema.revision_id,
    }  # fmt: skip


@pytest.mark.parametrize(("encoding", "fits", "other"), [
    ("JSON", b'{"a":1}', encode_datum(record("a"), {"a": 1})),
    ("BINARY", encode_datum(record("a"), {"a": 1}), b'{"a":1}'),
])  # fmt: skip
def test_one_message_that_does_not_fit_refuses_the_request(world: World, encoding: str, fits: bytes, other: bytes):
    make_schema(world, "a")
    with_topic(world, encoding)
    publish(world, fits)
    with pytest.raises(exceptions.InvalidArgument, match="Message 1"):
        publish(world, fits, other)
    assert [each.message.data for each in world.pull()] == [fits]


def test_messages_may_keep_any_revision_and_tell_the_newest_that_they_keep(world: World) -> None:
    first = make_schema(world, "a")
    with_topic(world)
    second = commit_revision(world, "a", "b")
    third = commit_revision(world, "a")
    publish(world, b'{"a":1}', b'{"a":1,"b":2}')
    with pytest.raises(exceptions.InvalidArgument, match="b is not allowed"):
        publish(world, b'{"a":1}', b'{"b":1}')
    world.schemas.delete_schema_revision(name=f"{path(world)}@{third.revision_id}", revision_id="")
    publish(world, b'{"a":1}')
    told = [each.message.attributes["googclient_schemarevisionid"] for each in world.pull()]
    assert told == [third.revision_id, second.revision_id, first.revision_id]


def test_revisions_of_a_topic_are_bounded(world: World) -> None:
    make_schema(world, "a")
    second = commit_revision(world, "b")
    ends = {"first_revision_id": second.revision_id, "last_revision_id": second.revision_id}
    with_topic(world, **ends)
    third = commit_revision(world, "c")
    publish(world, b'{"b":1}')
    for data in (b'{"a":1}', b'{"c":1}'):
        with pytest.raises(exceptions.InvalidArgument):
            publish(world, data)
    last = {"schema": path(world), "encoding": "JSON", "last_revision_id": third.revision_id}
    topic = update_settings(world, "schema_settings.last_revision_id", **last)
    assert topic.schema_settings.first_revision_id == second.revision_id
    assert topic.schema_settings.last_revision_id == third.revision_id
    assert world.publisher.get_topic(topic=world.topic()) == topic
    publish(world, b'{"b":1}', b'{"c":1}')


def test_a_topic_changes_its_schema_by_masks(world: World) -> None:
    make_schema(world, "a")
    with_topic(world)
    changed = update_settings(world, "schema_settings.encoding", encoding="BINARY")
    assert changed.schema_settings.schema == path(world)
    assert changed.schema_settings.encoding == Encoding.BINARY
    publish(world, b"\x02")
    assert "schema_settings" not in update_settings(world, "schema_settings")
    publish(world, b"anything")


@pytest.mark.parametrize(("settings", "error"), [
    ({"encoding": "ENCODING_UNSPECIFIED"}, exceptions.InvalidArgument),
    ({"schema": "projects/other/schemas/records"}, exceptions.InvalidArgument),
    ({"schema": "records"}, exceptions.InvalidArgument), ({"schema": ""}, exceptions.InvalidArgument),
    ({"first_revision_id": "00000000"}, exceptions.NotFound), ({"last_revision_id": "x"}, exceptions.NotFound),
])  # fmt: skip
def test_settings_that_cannot_be_are_refused(world: World, settings: dict[str, str], error: type[Exception]) -> None:
    make_schema(world, "a")
    said = {"schema": path(world), "encoding": "JSON", **settings}
    with pytest.raises(error):
        world.publisher.create_topic(request={"name": world.topic(), "schema_settings": said})
    with pytest.raises(exceptions.NotFound):
        world.publisher.get_topic(topic=world.topic())


def test_a_topic_whose_schema_was_deleted_takes_nothing_until_it_gets_another(world: World) -> None:
    make_schema(world, "a")
    with_topic(world)
    world.schemas.delete_schema(name=path(world))
    settings = world.publisher.get_topic(topic=world.topic()).schema_settings
    assert (settings.schema, settings.encoding) == ("_deleted-schema_", Encoding.JSON)
    with pytest.raises(exceptions.InvalidArgument, match="was deleted"):
        publish(world, b'{"a":1}')
    make_schema(world, "a")  # another one of that name is not the one that was named
    with pytest.raises(exceptions.InvalidArgument, match="was deleted"):
        publish(world, b'{"a":1}')
    topic = update_settings(world, "schema_settings", schema=path(world), encoding="BINARY")
    assert topic.schema_settings.schema == path(world)
    publish(world, b"\x02")
    world.schemas.delete_schema(name=path(world))
    update_settings(world, "schema_settings")
    publish(world, b"anything")
    assert [each.message.data for each in world.pull()] == [b"\x02", b"anything"]


def http_publish(world: World, *data: bytes, **headers: str) -> httpx.Response:
    messages = [{"data": base64.b64encode(each).decode()} for each in data]
    with world.service.http() as client:
        return client.post(f"/{world.topic()}:publish", json={"messages": messages}, headers=headers)


def test_a_request_that_is_repeated_after_a_commit_stores_nothing_again(world: World) -> None:
    make_schema(world, "a")
    with_topic(world)
    commit_revision(world, "a", "b")
    data, key = (b'{"a":1}', b'{"a":1,"b":1}'), {"idempotency-key": "k"}
    first = http_publish(world, *data, **key).json()
    commit_revision(world, "a")
    commit_revision(world, "a", "b")
    assert http_publish(world, *data, **key).json() == first
    assert http_publish(world, b'{"a":2}', **key).status_code == 409
    assert len(world.pull()) == 2


def test_a_schema_of_the_http_api_is_one_here(world: World) -> None:
    """A JSON Schema has no type in Google's API, and its messages are documents."""
    make_schema(world, "a", name="other")
    world.http("POST", "/schemas/records", {"type": "json", "schema": {"type": "object"}})
    schema = world.schemas.get_schema(name=path(world))
    assert schema.type_ == Schema.Type.TYPE_UNSPECIFIED
    assert json.loads(schema.definition) == {"type": "object"}
    with pytest.raises(exceptions.InvalidArgument, match="type of a schema cannot change"):
        commit_revision(world, "a")
    with pytest.raises(exceptions.InvalidArgument, match="has the encoding JSON"):
        with_topic(world, "BINARY")
    with_topic(world)
    publish(world, b"{}")
    with pytest.raises(exceptions.InvalidArgument, match="Message 0 data is not valid"):
        publish(world, b"1")


def test_a_schema_attached_by_the_http_api_is_shown_without_an_encoding(world: World) -> None:
    make_schema(world, "a")
    world.make_subscription()
    world.http("POST", "/topics/topic:attachSchema", {"schema": path(world)})
    settings = world.publisher.get_topic(topic=world.topic()).schema_settings
    assert (settings.schema, settings.encoding) == (path(world), Encoding.ENCODING_UNSPECIFIED)
    publish(world, b"\x02")
    with pytest.raises(exceptions.InvalidArgument):
        publish(world, b'{"a":1}')


def test_a_definition_is_measured_as_it_is_given(world: World) -> None:
    blanks, letters = avro_schema("a").definition + " " * 2**18, json.dumps(record("a") | {"doc": "DOC"})
    for definition in (blanks, letters.replace("DOC", "ü" * 2**18)):
        schema = Schema(type_=Schema.Type.AVRO, definition=definition)
        with pytest.raises(exceptions.InvalidArgument, match="at most 262144 bytes"):
            world.schemas.create_schema(parent=parent(world), schema=schema, schema_id="large")


def test_a_page_token_and_a_view_that_cannot_be_are_refused(world: World) -> None:
    make_schema(world, "a")
    for token in ("x", "1" * 5000, "²", "-1"):
        with pytest.raises(exceptions.InvalidArgument, match="Invalid page token"):
            world.schemas.list_schema_revisions(request={"name": path(world), "page_token": token})
    for ask, of in ((world.schemas.get_schema, {"name": path(world)}),
                    (world.schemas.list_schemas, {"parent": parent(world)}),
                    (world.schemas.list_schema_revisions, {"name": path(world)})):  # fmt: skip
        with pytest.raises(exceptions.InvalidArgument, match="argument=view"):
            ask(request=of | {"view": 7})
