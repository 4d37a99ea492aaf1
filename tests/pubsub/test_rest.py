"""Google's REST on the port of gRPC: by Google's clients, and by handmade requests."""

import base64
import contextlib
import gzip
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import httplib2
import httpx
import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import pubsub_v1
from google.iam.v1 import iam_policy_pb2
from google.pubsub_v1 import PublisherClient, SchemaServiceClient, SubscriberClient, types
from google.pubsub_v1.services.publisher.transports import PublisherRestTransport
from googleapiclient import discovery
from googleapiclient.errors import HttpError
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ams.core.names import ProjectName
from tests.pubsub.conftest import World
from tests.pubsub.streams import SECONDS
from tests.support.served import in_process_service
from tests.support.service import live_service
from tests.support.waiting import PATIENCE_SECONDS, wait_until_async

AVRO = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
MAX_BYTES = 20 * 2**20
pb: Any = types


def ask(world: World, method: str, path: str, body: object = None, **options: Any) -> httpx.Response:
    content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    url = f"http://{world.address}/v1/projects/{world.project}{path}"
    return httpx.request(method, url, content=content, trust_env=False, timeout=PATIENCE_SECONDS, **options)


def error_of(answer: httpx.Response) -> tuple[int, str, str]:
    """Return the code, status and text of an error in Google's envelope."""
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert list(answer.json()) == ["error"]
    error = answer.json()["error"]
    assert error["code"] == answer.status_code
    return error["code"], error["status"], error["message"]


@pytest.fixture
def client(world: World) -> Iterator[Callable[[Any], Any]]:
    with contextlib.ExitStack() as stack:

        def make(kind: Any) -> Any:
            options = {"api_endpoint": f"http://{world.address}"}
            made = kind(credentials=AnonymousCredentials(), transport="rest", client_options=options)
            return stack.enter_context(made)

        yield make


def test_googles_client_for_python_administers_by_rest(world: World, client: Callable[[Any], Any]) -> None:
    publisher, subscriber = client(PublisherClient), client(SubscriberClient)
    topic, subscription, snapshot = world.topic(), world.subscription(), world.snapshot()
    made = publisher.create_topic({"name": topic, "labels": {"a": "b"}})
    assert made == world.publisher.get_topic(topic=topic) == publisher.get_topic(topic=topic)
    with pytest.raises(exceptions.Conflict):
        publisher.create_topic(name=topic)
    changed = publisher.update_topic(topic={"name": topic, "labels": {"c": "d"}}, update_mask={"paths": ["labels"]})
    assert changed.labels == {"c": "d"}
    publisher.create_topic(name=world.topic("other"))
    listed = publisher.list_topics({"project": f"projects/{world.project}", "page_size": 1})
    assert {each.name for each in listed} == {topic, world.topic("other")}
    options = {"name": subscription, "topic": topic, "retry_policy": {"minimum_backoff": {"seconds": 11}}}
    assert subscriber.create_subscription(options) == world.subscriber.get_subscription(subscription=subscription)
    wanted = {"name": subscription, "ack_deadline_seconds": 77}
    mask = {"paths": ["ack_deadline_seconds"]}
    assert subscriber.update_subscription(subscription=wanted, update_mask=mask).ack_deadline_seconds == 77
    assert list(publisher.list_topic_subscriptions(topic=topic)) == [subscription]
    subscriber.create_snapshot(name=snapshot, subscription=subscription)
    assert [each.name for each in subscriber.list_snapshots(project=f"projects/{world.project}")] == [snapshot]
    subscriber.seek({"subscription": subscription, "snapshot": snapshot})
    subscriber.delete_snapshot(snapshot=snapshot)
    subscriber.modify_push_config(subscription=subscription, push_config={"push_endpoint": "https://example.org/"})
    assert subscriber.get_subscription(subscription=subscription).push_config.push_endpoint == "https://example.org/"
    publisher.detach_subscription({"subscription": subscription})
    assert subscriber.get_subscription(subscription=subscription).detached
    subscriber.delete_subscription(subscription=subscription)
    publisher.delete_topic(topic=topic)
    with pytest.raises(exceptions.NotFound):
        publisher.get_topic(topic=topic)


def test_googles_client_for_python_publishes_and_consumes_by_rest(world: World, client: Callable[[Any], Any]) -> None:
    world.make_subscription(enable_exactly_once_delivery=True)
    transport = PublisherRestTransport(host=world.address, credentials=AnonymousCredentials(), url_scheme="http")
    publisher = pubsub_v1.PublisherClient(transport=transport)
    for future in [publisher.publish(world.topic(), b"\xff\x00", number=str(each)) for each in range(20)]:
        future.result(SECONDS)
    publisher.stop()
    transport.close()
    subscriber, asked = client(SubscriberClient), {"subscription": world.subscription()}
    messages = subscriber.pull(max_messages=100, **asked).received_messages
    assert sorted(int(each.message.attributes["number"]) for each in messages) == list(range(20))
    assert {each.message.data for each in messages} == {b"\xff\x00"}
    ids = [each.ack_id for each in messages]
    subscriber.modify_ack_deadline(ack_ids=ids, ack_deadline_seconds=30, **asked)
    subscriber.acknowledge(ack_ids=ids[1:], **asked)
    subscriber.modify_ack_deadline(ack_ids=ids[:1], ack_deadline_seconds=0, **asked)
    with pytest.raises(exceptions.BadRequest) as error:
        subscriber.acknowledge(ack_ids=ids[:1], **asked)
    assert error.value.details[0]["metadata"] == {ids[0]: "PERMANENT_FAILURE_INVALID_ACK_ID"}


def test_googles_client_for_python_has_schemas_and_policies_by_rest(world: World, client: Callable[[Any], Any]) -> None:
    schemas, publisher = client(SchemaServiceClient), client(PublisherClient)
    schema = {"type_": "AVRO", "definition": AVRO}
    made = schemas.create_schema(parent=f"projects/{world.project}", schema=schema, schema_id="schema")
    assert made == world.schemas.get_schema(name=made.name)
    listed = schemas.list_schemas({"parent": f"projects/{world.project}", "view": "FULL"})
    assert [each.definition for each in listed] == [AVRO]
    data = base64.b64decode("eyJhIjogMX0=")
    asked = {"parent": f"projects/{world.project}", "name": made.name, "message": data, "encoding": "JSON"}
    schemas.validate_message(asked)
    schemas.delete_schema(name=made.name)
    publisher.create_topic(name=world.topic())
    permissions = ["pubsub.topics.get", "pubsub.topics.publish"]
    request = iam_policy_pb2.TestIamPermissionsRequest(resource=world.topic(), permissions=permissions)
    assert list(publisher.test_iam_permissions(request).permissions) == permissions
    found = publisher.get_iam_policy(iam_policy_pb2.GetIamPolicyRequest(resource=world.topic()))
    assert found.etag


def test_a_client_that_is_made_of_our_description_works(world: World) -> None:
    found = httpx.get(f"http://{world.address}/$discovery/rest?version=v1", trust_env=False)
    http = httplib2.Http(timeout=PATIENCE_SECONDS)
    api: Any = discovery.build_from_document(found.json(), http=http)
    topics, subscriptions = api.projects().topics(), api.projects().subscriptions()
    topics.create(name=world.topic(), body={"labels": {"a": "b"}}).execute()
    subscriptions.create(name=world.subscription(), body={"topic": world.topic()}).execute()
    body = {"subscription": {"ackDeadlineSeconds": 50}, "updateMask": "ackDeadlineSeconds"}
    assert subscriptions.patch(name=world.subscription(), body=body).execute()["ackDeadlineSeconds"] == 50
    message = {"data": base64.b64encode(b"x").decode(), "attributes": {"k": "v"}}
    assert topics.publish(topic=world.topic(), body={"messages": [message]}).execute() == {"messageIds": ["0"]}
    pulled = subscriptions.pull(subscription=world.subscription(), body={"maxMessages": 5}).execute()
    [received] = pulled["receivedMessages"]
    assert message.items() <= received["message"].items()
    asked = {"ackIds": [received["ackId"]]}
    assert subscriptions.acknowledge(subscription=world.subscription(), body=asked).execute() == {}
    assert topics.getIamPolicy(resource=world.topic(), options_requestedPolicyVersion=3).execute()["etag"]
    assert topics.subscriptions().list(topic=world.topic()).execute() == {"subscriptions": [world.subscription()]}
    request = topics.list(project=f"projects/{world.project}", pageSize=1)
    assert [each["name"] for each in request.execute()["topics"]] == [world.topic()]
    schema = {"type": "AVRO", "definition": AVRO}
    schemas = api.projects().schemas()
    schemas.create(parent=f"projects/{world.project}", schemaId="schema", body=schema).execute()
    assert schemas.list(parent=f"projects/{world.project}", view="FULL").execute()["schemas"][0]["definition"] == AVRO
    with pytest.raises(HttpError) as error:
        topics.get(topic=world.topic("gone")).execute()
    assert (error.value.status_code, error.value.reason) == (404, "Resource not found (resource=gone).")
    http.close()


def test_answers_have_googles_form(world: World) -> None:
    assert ask(world, "PUT", "/topics/topic", {}).json() == {"name": world.topic(), "state": "ACTIVE"}
    assert ask(world, "GET", "/topics/topic?$alt=json;enum-encoding=int&prettyPrint=false").json()["state"] == 1
    made = ask(world, "PUT", "/subscriptions/subscription", {"topic": world.topic(), "ack_deadline_seconds": "20"})
    assert made.json()["ackDeadlineSeconds"] == 20
    pull = {"maxMessages": 1, "returnImmediately": True}
    assert ask(world, "POST", "/subscriptions/subscription:pull", pull).json() == {}
    body = gzip.compress(json.dumps({"messages": [{"data": "aGk"}]}).encode())
    coded = ask(world, "POST", "/topics/topic:publish", body, headers={"content-encoding": "gzip"})
    assert coded.json() == {"messageIds": ["0"]}
    pulled = ask(world, "POST", "/subscriptions/subscription:pull", pull, headers={"x-request-id": "mine"})
    assert pulled.json()["receivedMessages"][0]["message"]["data"] == "aGk="
    assert pulled.headers["x-request-id"] == "mine"
    assert httpx.get(f"http://{world.address}/", trust_env=False).text == "Ok\n"


PUBLISH = "/topics/topic:publish"
BAD_MESSAGE = {"messages": [{"dta": ""}]}


@pytest.mark.parametrize(("method", "path", "body", "code", "word"), [
    ("GET", "/topics/gone", None, 404, "NOT_FOUND"),
    ("PUT", "/topics/topic", {"labels": {"A": ""}}, 400, "INVALID_ARGUMENT"),
    ("PUT", "/topics/topic", {"kmsKeyName": "x"}, 501, "UNIMPLEMENTED"),
    ("PUT", "/topics/x", {}, 400, "INVALID_ARGUMENT"),
    ("PATCH", "/topics/topic", {"topic": {}, "updateMask": "nothing"}, 400, "INVALID_ARGUMENT"),
    ("PATCH", "/topics/topic", {"topic": {}}, 400, "INVALID_ARGUMENT"),
    ("GET", "/topics?pageSize=-1", None, 400, "INVALID_ARGUMENT"),
    ("GET", "/topics?pageSize=x", None, 400, "INVALID_ARGUMENT"),
    ("GET", "/topics?other=1", None, 400, "INVALID_ARGUMENT"),
    ("GET", "/topics?alt=media", None, 400, "INVALID_ARGUMENT"),
    ("GET", "/topics?access_token=1", None, 400, "INVALID_ARGUMENT"),
    ("POST", PUBLISH, b"{", 400, "INVALID_ARGUMENT"),
    ("POST", PUBLISH, b"{} x", 400, "INVALID_ARGUMENT"),
    ("POST", PUBLISH, b"[" * 100_000, 400, "INVALID_ARGUMENT"),
    ("POST", PUBLISH, BAD_MESSAGE, 400, "INVALID_ARGUMENT"),
    ("POST", PUBLISH, {"messages": [{"data": "!"}]}, 400, "INVALID_ARGUMENT"),
    ("POST", PUBLISH, {"messages": []}, 404, "NOT_FOUND"),
    ("POST", PUBLISH, b"x" * (MAX_BYTES + 1), 400, "INVALID_ARGUMENT"),
    ("POST", "/subscriptions/subscription:streamingPull", {}, 501, "UNIMPLEMENTED"),
    ("POST", "/subscriptions/gone:pull", {"maxMessages": 1}, 404, "NOT_FOUND"),
    ("POST", "/topics/topic:other", {}, 404, "NOT_FOUND"),
    ("GET", "/other/topic", None, 404, "NOT_FOUND"),
    ("GET", PUBLISH, None, 405, "UNIMPLEMENTED"),
    ("TRACE", "/topics/topic", None, 405, "UNIMPLEMENTED"),
])  # fmt: skip
def test_an_error_has_googles_envelope(world: World, method: str, path: str, body: object, code: int, word: str):
    assert error_of(ask(world, method, path, body))[:2] == (code, word)


def test_an_unknown_field_is_named_as_google_does(world: World) -> None:
    answer = ask(world, "POST", PUBLISH, BAD_MESSAGE)
    text = "Invalid JSON payload received. Unknown name \"dta\" at 'messages[0]': Cannot find field."
    assert error_of(answer)[2] == text
    violation = {"field": "messages[0]", "description": text}
    assert answer.json()["error"]["details"] == [
        {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]}
    ]


@pytest.mark.embedded("on Kafka no message has more than 10 MB")
def test_a_message_over_10_mb_is_taken_in_the_emulators_place_as_by_grpc(world: World) -> None:
    world.publisher.create_topic(name=world.topic())
    answer = ask(world, "POST", PUBLISH, {"messages": [{"data": "AAAA" * (11 * 2**20 // 3)}]})
    assert (answer.status_code, len(answer.json()["messageIds"])) == (200, 1)


@pytest.mark.parametrize("headers", [{"content-encoding": "br"}, {"content-encoding": "gzip"}])
def test_a_body_in_a_coding_that_cannot_be_undone_is_refused(world: World, headers: dict[str, str]) -> None:
    assert error_of(ask(world, "POST", PUBLISH, b"{}", headers=headers))[:2] == (400, "INVALID_ARGUMENT")


def test_a_page_of_a_browser_is_not_let_in_where_nobody_needs_a_token(world: World) -> None:
    headers = {"origin": "https://example.org"}
    assert error_of(ask(world, "POST", PUBLISH, {}, headers=headers))[:2] == (403, "PERMISSION_DENIED")


@pytest.mark.parametrize("said", [
    b"GET /v1/projects HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"nothing at all\r\n\r\n", b"PRI * HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nx: " + b"x" * 2**17 + b"\r\n\r\n", b"\x16\x03\x01\x02\x00\x01" * 10,
])  # fmt: skip
def test_what_is_no_request_is_answered_in_googles_envelope(world: World, said: bytes) -> None:
    host, _, port = world.address.rpartition(":")
    with socket.create_connection((host, int(port)), SECONDS) as sock:
        sock.sendall(said)
        answer = b""
        while piece := sock.recv(65536):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["status"] == "INVALID_ARGUMENT"


texts = st.text(max_size=4)
FIELDS = [
    "name", "topic", "messages", "data", "attributes", "subscription", "updateMask", "policy", "ackIds", "pushConfig",
    "labels", "schema", "type", "time", "maxMessages", "permissions",
]  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS) | texts, inner, max_size=4),
    max_leaves=10,
)
names = st.sampled_from(["topics", "subscriptions", "snapshots", "schemas", "topic", "gone", "%41", "a%2Fb", "..", "~"])


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.sampled_from(["GET", "PUT", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS"]),
       st.lists(names, max_size=4).map(lambda parts: "".join(f"/{each}" for each in parts)),
       st.sampled_from(["", ":publish", ":pull", ":seek", ":commit", ":setIamPolicy", ":validate", ":%70ull", ":"]),
       st.binary(max_size=20) | values.map(lambda value: json.dumps(value).encode()),
       st.text(st.characters(codec="ascii", exclude_categories=["Cc", "Zs"]), max_size=20))  # fmt: skip
@example("POST", "/topics/topic", ":publish", b'{"messages":[{"attributes":{"\\ud800":""}}]}', "")
@example("POST", "/topics/topic", ":publish", b'{"messages":[{"data":"x","publishTime":"1"}]}', "")
@example("POST", "/topics/topic", ":publish", b"", "topic=a&topic.b.c=1&messages.data=1&messages=2")
def test_every_answer_has_googles_form(world: World, method: str, path: str, verb: str, body: bytes, query: str):
    if verb == ":pull":
        body = b'{"returnImmediately": true}' + body[:1]
    answer = ask(world, method, path + verb, body, params=query or None)
    assert answer.status_code < 500 or answer.status_code == 501, answer.text
    if method != "HEAD" and answer.status_code >= 400:
        error_of(answer)


def test_a_pull_whose_client_leaves_is_over(tmp_path: Path) -> None:
    with in_process_service(tmp_path / "data", pubsub_port=0, pubsub_emulator=True, pull_wait=8.0) as service:
        world: Any = SimpleNamespace(address=service.run.pubsub, project="P")
        ask(world, "PUT", "/topics/topic", {})
        ask(world, "PUT", "/subscriptions/subscription", {"topic": "projects/P/topics/topic"})
        host, _, port = service.run.pubsub.rpartition(":")
        with socket.create_connection((host, int(port)), SECONDS) as sock:
            head = b"POST /v1/projects/P/subscriptions/subscription:pull HTTP/1.1\r\nHost: x\r\nContent-Length: 18\r\n"
            sock.sendall(head + b'\r\n{"maxMessages": 1}')
            made = service.run.service
            project: Any = service.carry_out(made.registry.projects.find(ProjectName("P")))
            service.carry_out(wait_until_async(lambda: made.slots.waiting_pulls.held_by(project.id) == 1))
        service.carry_out(wait_until_async(lambda: made.pubsub_calls["CANCELLED"] == 1))


@pytest.mark.long
def test_tokens_are_needed_over_tls_on_either_transport(tmp_path: Path) -> None:
    with live_service(tmp_path / "data", "--pubsub-port", "0", "--tls-self-signed") as service:
        service.ask("POST", "/projects/P", {})
        url = f"https://{service.pubsub}/v1/projects/P/topics/topic"
        context = ssl.create_default_context(cafile=service.ca)
        with httpx.Client(verify=context, trust_env=False, timeout=PATIENCE_SECONDS) as http:
            assert http.put(url, json={}, headers={"authorization": f"Bearer {service.token}"}).status_code == 200
            assert http.get(url, headers={"x-goog-api-key": service.token}).status_code == 200
            assert http.get(url, params={"key": service.token}).status_code == 200
            for headers in ({}, {"authorization": "Bearer no"}):
                refused = http.get(url, headers=headers)
                assert error_of(refused)[:2] == (401, "UNAUTHENTICATED")
                assert refused.headers["www-authenticate"].startswith("Bearer ")
            found = http.get(f"https://{service.pubsub}/$discovery/rest").json()
            assert found["rootUrl"] == f"https://{service.pubsub}/"
        credentials = grpc.composite_channel_credentials(
            grpc.ssl_channel_credentials(service.ca.read_bytes()), grpc.access_token_call_credentials(service.token)
        )
        with grpc.secure_channel(service.pubsub, credentials) as channel:
            get = channel.unary_unary("/google.pubsub.v1.Publisher/GetTopic")
            request = pb.GetTopicRequest.pb()(topic="projects/P/topics/topic").SerializeToString()
            assert pb.Topic.pb().FromString(get(request, timeout=SECONDS)).name == "projects/P/topics/topic"
