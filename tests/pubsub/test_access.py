"""Access on Google's port: as on the HTTP API, behind a TLS proxy; and a program that logs in by its key file."""

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.pubsub_v1 import types

from ams.pubsub import streaming_pull
from tests.pubsub.streams import Policy, Stream, ask, get_refusal, iam, open_stream
from tests.support.program_keys import public_pem, sign_token
from tests.support.served import InProcessService, in_process_service
from tests.support.service import LiveService, live_service
from tests.support.waiting import wait_until

IAM, PUBLISHER = "/google.iam.v1.IAMPolicy/", "/google.pubsub.v1.Publisher/"
SUBSCRIBER = "/google.pubsub.v1.Subscriber/"
FAILURES = 5
TOPIC, SUBSCRIPTION = "projects/P/topics/topic", "projects/P/subscriptions/subscription"
_numbers = itertools.count()
pb: Any = types


@dataclass(frozen=True)
class GuardedService:
    """A service with authentication, and a connection of a proxy to it."""

    service: InProcessService
    channel: grpc.Channel

    def http(self, method: str, path: str, body: object = None) -> Any:
        return self.service.ask(method, path, body)

    def subscription(self, *users: str) -> str:
        name = f"own-{next(_numbers)}"
        self.http("PUT", f"/projects/P/topics/{name}")
        made = {"topic": f"projects/P/topics/{name}", "type": "parallel"}
        self.http("PUT", f"/projects/P/subscriptions/{name}", made)
        self.allow(f"subscriptions/{name}", *users)
        return name

    def allow(self, resource: str, *users: str) -> None:
        self.http("POST", f"/projects/P/{resource}:modifyAcl", {"authorized_users": [*users]})

    def user(self, *roles: str) -> tuple[str, str]:
        name = f"user-{next(_numbers)}"
        made = self.http("POST", f"/users/{name}", {"projects": [{"project": "P", "roles": list(roles)}]})
        return name, made["token"]

    def get_status(self, method: str, request: object, token: str = "", **more: str) -> tuple[str, str]:
        token = token or self.service.token
        metadata = (*bearer(token), *more.items())
        return get_refusal(self.channel, method, request, metadata=metadata)

    def answer(self, kind: Any, method: str, request: object, token: str = "") -> Any:
        metadata = bearer(token or self.service.token)
        return kind.FromString(ask(self.channel, method, request, metadata=metadata))

    def publish(self, token: str = "", **more: str) -> tuple[str, str]:
        return self.get_status(PUBLISHER + "Publish", publish(), token, **more)

    def policy(self, resource: str = TOPIC) -> Any:
        return self.answer(Policy, IAM + "GetIamPolicy", iam.GetIamPolicyRequest(resource=resource))

    def permissions(self, resource: str, *asked: str, token: str = "") -> list[str]:
        request = iam.TestIamPermissionsRequest(resource=resource, permissions=asked)
        answer = self.answer(iam.TestIamPermissionsResponse, IAM + "TestIamPermissions", request, token)
        return list(answer.permissions)


@pytest.fixture(scope="module")
def guarded_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedService]:
    data = tmp_path_factory.mktemp("guarded") / "data"
    settings = {"host": "127.0.0.1", "trusted_proxies": "127.0.0.1/32", "failed_logins_per_minute": FAILURES}
    with (in_process_service(data, pubsub_port=0, **settings) as service,
          grpc.insecure_channel(service.run.pubsub) as channel):  # fmt: skip
        made = GuardedService(service, channel)
        made.http("POST", "/projects/P", {})
        made.http("PUT", "/projects/P/topics/topic")
        made.http("PUT", "/projects/P/subscriptions/subscription", {"topic": TOPIC, "type": "parallel"})
        yield made


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


def publish(topic: str = "topic", data: bytes = b"x") -> Any:
    return pb.PublishRequest.pb()(topic=f"projects/P/topics/{topic}", messages=[pb.PubsubMessage.pb()(data=data)])


def policy(*users: str, role: str = "roles/pubsub.publisher", etag: bytes = b"") -> Any:
    found = Policy(etag=etag)
    if users:
        found.bindings.add(role=role, members=[f"user:{each}" for each in users])
    return found


def test_a_token_comes_as_bearer_or_as_an_api_key(guarded_service: GuardedService) -> None:
    _, token = guarded_service.user("publisher")
    guarded_service.allow("topics/topic")
    admin = guarded_service.service.token
    for metadata in ((("authorization", f"Bearer {admin}"),), (("x-goog-api-key", admin),)):
        assert get_refusal(guarded_service.channel, PUBLISHER + "Publish", publish(), metadata=metadata) == ("OK", "")
    pull = pb.PullRequest.pb()(subscription=SUBSCRIPTION, max_messages=1, return_immediately=True)
    assert guarded_service.get_status(SUBSCRIBER + "Pull", pull, token)[0] == "PERMISSION_DENIED"
    absent = pb.GetTopicRequest.pb()(topic="projects/Q/topics/topic")
    assert guarded_service.get_status(PUBLISHER + "GetTopic", absent, token)[0] in ("PERMISSION_DENIED", "NOT_FOUND")


def test_a_call_without_a_token_or_with_a_bad_one_is_not_let_in(guarded_service: GuardedService) -> None:
    for number, metadata in enumerate(((), (("authorization", "Bearer no"),), (("x-goog-api-key", "no"),))):
        hop = (("x-forwarded-for", f"192.0.2.{number}"),)
        code, _ = get_refusal(guarded_service.channel, PUBLISHER + "Publish", publish(), metadata=(*metadata, *hop))
        assert code == "UNAUTHENTICATED"


def test_failed_logins_are_counted_by_address_and_known_tokens_are_let_in(guarded_service: GuardedService) -> None:
    here, there = {"x-forwarded-for": "198.51.100.7"}, {"x-forwarded-for": "198.51.100.8"}
    codes = [guarded_service.publish("bad", **here)[0] for _ in range(FAILURES + 2)]
    assert codes == ["UNAUTHENTICATED"] * FAILURES + ["RESOURCE_EXHAUSTED"] * 2
    assert guarded_service.publish("bad", **there)[0] == "UNAUTHENTICATED"
    assert guarded_service.publish(**here) == ("OK", "")
    assert guarded_service.service.call("GET", "/projects/P", token="bad", headers=here).status_code == 429
    stream = Stream(guarded_service.channel, metadata=(("authorization", "Bearer bad"), *here.items()))
    stream.send(subscription=SUBSCRIPTION, stream_ack_deadline_seconds=10)
    assert stream.end()[0] is grpc.StatusCode.UNAVAILABLE
    events = wait_for_events(guarded_service, "login", lambda found: any(e["address"] == "198.51.100.7" for e in found))
    assert {each["result"] for each in events} == {"refused"}


def test_failed_logins_behind_a_proxy_that_names_no_clients_keep_nobody_out(guarded_service: GuardedService) -> None:
    with grpc.insecure_channel(guarded_service.service.run.pubsub, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        attacker = GuardedService(guarded_service.service, channel)
        codes = [attacker.publish("bad")[0] for _ in range(FAILURES + 1)]
        assert codes == ["UNAUTHENTICATED"] * FAILURES + ["RESOURCE_EXHAUSTED"]
        _, new = guarded_service.user("project_admin")  # a new, uncached token
        guarded_service.http("POST", "/users/admin/tokens/ci", {"public_key": public_pem()})
        for each in (attacker, guarded_service):
            for token in (new, sign_token(guarded_service.service.clock.wall() / 1000)):
                assert each.publish(token) == ("OK", "")
        assert guarded_service.publish("bad")[0] == "UNAUTHENTICATED"

    def connections(found: Any) -> set[str]:
        return {each["address"] for each in found if each["address"].startswith("127.0.0.1:")}

    assert len(connections(wait_for_events(guarded_service, "login", lambda found: len(connections(found)) == 2))) == 2


def wait_for_events(guarded: GuardedService, action: str, is_enough: Any) -> list[Any]:
    """Return events of the audit log, which arrive a little later."""

    def events() -> list[Any]:
        found = [*guarded.http("GET", f"/audit?action={action}&pageSize=1000")["events"]]
        return found if is_enough(found) else []

    return wait_until(events)


def test_what_administers_is_recorded_and_what_consumes_is_not(guarded_service: GuardedService) -> None:
    name, token = guarded_service.user("project_admin")
    _, poor = guarded_service.user("consumer")
    topic = pb.Topic.pb()(name="projects/P/topics/recorded")
    assert guarded_service.get_status(PUBLISHER + "CreateTopic", topic, token) == ("OK", "")
    assert guarded_service.get_status(PUBLISHER + "CreateTopic", topic, poor)[0] == "PERMISSION_DENIED"
    assert guarded_service.publish(guarded_service.service.token) == ("OK", "")

    def events_about(found: list[Any]) -> list[Any]:
        return [each for each in found if each["resource"].endswith("/topics/recorded")]

    events = wait_for_events(guarded_service, "topics:", lambda found: len(events_about(found)) == 2)
    assert {(each["action"], each["result"]) for each in events_about(events)} == {
        ("topics:create", "done"), ("topics:create", "refused"),
    }  # fmt: skip
    assert {each["actor"] for each in events_about(events) if each["result"] == "done"} == {name}
    assert not [each for each in events if each["action"] == "topics:publish"]


def test_an_access_list_is_the_one_of_the_http_api(guarded_service: GuardedService) -> None:
    name, token = guarded_service.user("publisher")
    other, _ = guarded_service.user("publisher")
    assert guarded_service.publish(token)[0] == "PERMISSION_DENIED"
    wanted = iam.SetIamPolicyRequest(resource=TOPIC, policy=policy(name))
    shown = guarded_service.answer(Policy, IAM + "SetIamPolicy", wanted)
    assert shown == guarded_service.policy()
    assert [(e.role, list(e.members)) for e in shown.bindings] == [("roles/pubsub.publisher", [f"user:{name}"])]
    assert guarded_service.http("GET", "/projects/P/topics/topic:acl")["authorized_users"] == [name]
    assert guarded_service.publish(token) == ("OK", "")
    # The other way round; cached permissions are not used again.
    guarded_service.allow("topics/topic", other)
    assert list(guarded_service.policy().bindings[0].members) == [f"user:{other}"]
    late = iam.SetIamPolicyRequest(resource=TOPIC, policy=policy(name, etag=shown.etag))
    code, text = guarded_service.get_status(IAM + "SetIamPolicy", late)
    assert (code, "concurrent policy changes" in text) == ("ABORTED", True)
    emptied = guarded_service.answer(
        Policy, IAM + "SetIamPolicy", iam.SetIamPolicyRequest(resource=TOPIC, policy=Policy())
    )
    assert list(emptied.bindings) == []
    assert guarded_service.http("GET", "/projects/P/topics/topic:acl")["authorized_users"] == []


CONDITION = {"expression": "request.time < timestamp('2030-01-01T00:00:00Z')", "title": "for a while"}
VIEWERS: dict[str, Any] = {"role": "roles/pubsub.viewer", "members": ["group:ops@example.com", "allUsers"]}


@pytest.mark.parametrize(("wanted", "text"), [
    ({"bindings": [{"role": "owner", "members": ["allUsers"]}]}, "Role owner is not supported for this resource"),
    ({"bindings": [{"role": "roles/a_withcond_1", "members": ["allUsers"]}]}, "Role roles/a_withcond_1 is not"),
    ({"bindings": [{"role": "roles/a", "members": ["someone"]}]}, "The member someone is of an unknown type"),
    ({"version": 1, "bindings": [{**VIEWERS, "condition": CONDITION}]}, "need version 3"),
    ({"version": 3, "bindings": [{**VIEWERS, "condition": {"title": "x"}}]}, "A condition has an expression"),
    ({"version": 2}, "The version of a policy is 0, 1 or 3"),
    ({"bindings": [{"role": "roles/a", "members": [f"user:{each}" for each in range(1501)]}]}, "at most 1500 members"),
])  # fmt: skip
def test_a_bad_policy_changes_nothing(guarded_service: GuardedService, wanted: dict[str, Any], text: str) -> None:
    before = guarded_service.policy()
    code, said = guarded_service.get_status(
        IAM + "SetIamPolicy", iam.SetIamPolicyRequest(resource=TOPIC, policy=Policy(**wanted))
    )
    assert code == "INVALID_ARGUMENT"
    assert text in said
    assert guarded_service.policy() == before


@pytest.mark.parametrize("kind", ["topics", "subscriptions", "snapshots", "schemas"])
def test_a_missing_resource_has_no_policy_and_no_permissions(guarded_service: GuardedService, kind: str) -> None:
    resource = f"projects/P/{kind}/absent"
    for method, request in (("GetIamPolicy", iam.GetIamPolicyRequest(resource=resource)),
                            ("SetIamPolicy", iam.SetIamPolicyRequest(resource=resource, policy=Policy()))):  # fmt: skip
        assert guarded_service.get_status(IAM + method, request) == (
            "NOT_FOUND", "Resource not found (resource=absent).",
        )  # fmt: skip
    assert guarded_service.permissions(resource, f"pubsub.{kind}.get") == []


def test_roles_and_members_that_are_not_known_are_kept_without_effect(guarded_service: GuardedService) -> None:
    name, token = guarded_service.user("publisher")
    alone, tokens = guarded_service.user("publisher")
    role = "roles/pubsub.publisher"
    wanted = Policy(version=3, bindings=[
        {"role": role, "members": ["user:me@example.com", f"user:{name}", "allAuthenticatedUsers"]}, VIEWERS,
        {"role": role, "members": [f"user:{alone}"], "condition": CONDITION}, {"role": "roles/x", "members": []},
    ])  # fmt: skip
    shown = guarded_service.answer(Policy, IAM + "SetIamPolicy", iam.SetIamPolicyRequest(resource=TOPIC, policy=wanted))
    listed = [f"user:{name}", "user:me@example.com", "allAuthenticatedUsers"]
    assert [(each.role, list(each.members)) for each in shown.bindings] == [
        (role, listed), (VIEWERS["role"], VIEWERS["members"]), (role, [f"user:{alone}"]),
    ]  # fmt: skip
    assert (shown.version, shown.bindings[2].condition.title) == (3, "for a while")
    assert (guarded_service.publish(token)[0], guarded_service.publish(tokens)[0]) == ("OK", "PERMISSION_DENIED")
    told = guarded_service.http("GET", "/projects/P/topics/topic:acl")
    assert told["authorized_users"] == [name]
    assert told["without_effect"][-2:] == ["roles/pubsub.viewer: allUsers", f"{role}: user:{alone}, under a condition"]
    old = guarded_service.policy()
    assert (old.version, old.etag, old.bindings[2].HasField("condition")) == (1, shown.etag, False)
    assert old.bindings[2].role.startswith(f"{role}_withcond_")
    bad = iam.GetIamPolicyRequest(resource=TOPIC, options={"requested_policy_version": 2})
    assert guarded_service.get_status(IAM + "GetIamPolicy", bad)[0] == "INVALID_ARGUMENT"
    guarded_service.allow("topics/topic")  # resources unknown to the HTTP API stay
    assert [each.role for each in guarded_service.policy().bindings][:2] == [role, "roles/pubsub.viewer"]
    emptied = guarded_service.answer(
        Policy, IAM + "SetIamPolicy", iam.SetIamPolicyRequest(resource=TOPIC, policy=Policy())
    )
    assert (emptied.version, list(emptied.bindings)) == (0, [])


def test_what_has_no_access_list_has_a_policy_without_effect(guarded_service: GuardedService) -> None:
    guarded_service.http("PUT", "/projects/P/subscriptions/shot", {"topic": TOPIC, "type": "parallel"})
    shot = pb.CreateSnapshotRequest.pb()(name="projects/P/snapshots/shot", subscription="projects/P/subscriptions/shot")
    assert guarded_service.get_status(SUBSCRIBER + "CreateSnapshot", shot) == ("OK", "")
    schema = {"name": "record", "type": "record", "fields": []}
    guarded_service.http("POST", "/projects/P/schemas/record", {"type": "avro", "schema": schema})
    for resource, permission in (("projects/P/snapshots/shot", "pubsub.snapshots.get"),
                                 ("projects/P/schemas/record", "pubsub.schemas.get")):  # fmt: skip
        assert list(guarded_service.policy(resource).bindings) == []
        wanted = iam.SetIamPolicyRequest(resource=resource, policy=Policy(bindings=[VIEWERS]))
        assert guarded_service.answer(Policy, IAM + "SetIamPolicy", wanted) == guarded_service.policy(resource)
        assert list(guarded_service.policy(resource).bindings[0].members) == VIEWERS["members"]
        assert guarded_service.permissions(resource, permission) == [permission]


def test_a_mask_says_what_of_a_policy_is_set(guarded_service: GuardedService) -> None:
    name, _ = guarded_service.user("publisher")

    def put_policy(users: Any, *paths: str) -> tuple[str, str]:
        request = iam.SetIamPolicyRequest(resource=TOPIC, policy=users, update_mask={"paths": paths})
        return guarded_service.get_status(IAM + "SetIamPolicy", request)

    empty = guarded_service.policy()
    for paths in (("etag",), ("version", "etag")):
        assert put_policy(policy(name), *paths) == ("OK", "")
        assert guarded_service.policy() == empty
    assert put_policy(policy(name), "bindings", "paint") == (
        "INVALID_ARGUMENT",
        "Invalid update_mask provided in the SetIamPolicyRequest: 'paint' is not a known Policy field.",
    )
    assert put_policy(policy(name), "bindings", "audit_configs")[0] == "UNIMPLEMENTED"
    assert guarded_service.policy() == empty
    assert put_policy(policy(name), "bindings") == ("OK", "")
    assert put_policy(policy(etag=empty.etag), "etag")[0] == "ABORTED"
    assert list(guarded_service.policy().bindings[0].members) == [f"user:{name}"]
    assert put_policy(Policy()) == ("OK", "")
    assert guarded_service.policy() == empty


def test_permissions_are_those_of_who_asks(guarded_service: GuardedService) -> None:
    every = ["pubsub.topics.get", "pubsub.topics.publish", "pubsub.topics.delete"]
    name, token = guarded_service.user("publisher")

    assert guarded_service.permissions(TOPIC, *every) == every
    assert guarded_service.permissions(TOPIC, *every, token=token) == ["pubsub.topics.get"]
    guarded_service.allow("topics/topic", name)
    assert guarded_service.permissions(TOPIC, *every, token=token) == every[:2]
    assert guarded_service.permissions("projects/P/topics/absent", *every, token=token) == []
    assert guarded_service.permissions(SUBSCRIPTION, "pubsub.subscriptions.consume", token=token) == []
    bad = iam.TestIamPermissionsRequest(resource=TOPIC, permissions=["pubsub.topics.paint"])
    assert guarded_service.get_status(IAM + "TestIamPermissions", bad)[0] == "INVALID_ARGUMENT"
    assert get_refusal(guarded_service.channel, IAM + "TestIamPermissions", bad)[0] == "UNAUTHENTICATED"
    guarded_service.allow("topics/topic")


@pytest.mark.parametrize("way", ["delete", "take off the list", "take the role"])
def test_a_stream_of_a_user_who_may_no_more_gets_nothing_and_ends(guarded_service: GuardedService, way: str) -> None:
    name, token = guarded_service.user("consumer")
    own = guarded_service.subscription(name)
    stream = open_stream(guarded_service.channel, f"projects/P/subscriptions/{own}", metadata=bearer(token))
    if way == "delete":
        guarded_service.http("DELETE", f"/users/{name}")
    elif way == "take off the list":
        guarded_service.allow(f"subscriptions/{own}")
    else:
        guarded_service.http("PUT", f"/users/{name}", {"projects": [{"project": "P", "roles": ["publisher"]}]})
    assert guarded_service.get_status(PUBLISHER + "Publish", publish(own, b"secret")) == ("OK", "")
    wanted = grpc.StatusCode.UNAUTHENTICATED if way == "delete" else grpc.StatusCode.PERMISSION_DENIED
    assert stream.end()[0] is wanted
    assert stream.ended_with == 0
    other = open_stream(
        guarded_service.channel, f"projects/P/subscriptions/{own}", metadata=bearer(guarded_service.service.token)
    )
    assert [each.message.data for each in other.messages(1)] == [b"secret"]
    other.call.cancel()


@pytest.mark.parametrize("is_idle", [False, True])
def test_a_stream_ends_with_its_rights(guarded_service: GuardedService, is_idle: bool, monkeypatch: pytest.MonkeyPatch):
    if is_idle:
        monkeypatch.setattr(streaming_pull, "LOOK_SECONDS", 0.3)
    name, token = guarded_service.user("consumer")
    own = guarded_service.subscription(name)
    stream = open_stream(guarded_service.channel, f"projects/P/subscriptions/{own}", metadata=bearer(token))
    guarded_service.http("DELETE", f"/users/{name}")
    if not is_idle:
        stream.send()
    assert stream.end()[0] is grpc.StatusCode.UNAUTHENTICATED


def test_a_stream_without_a_request_ends(guarded_service: GuardedService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming_pull, "FIRST_SECONDS", 0.3)
    stream = Stream(guarded_service.channel, metadata=bearer(guarded_service.service.token))
    assert stream.end() == (grpc.StatusCode.UNAVAILABLE, "The first request did not come in time")


def test_an_update_needs_the_right_to_each_thing_that_it_changes(guarded_service: GuardedService) -> None:
    subscription = f"projects/P/subscriptions/{guarded_service.subscription()}"
    rights = [{"action": "topics:modifyRetention", "resource": TOPIC},
              {"action": "subscriptions:update", "resource": subscription}]  # fmt: skip
    name, _ = guarded_service.user("project_admin")
    token = guarded_service.http("POST", f"/users/{name}/tokens/narrow", {"rights": rights})["token"]
    schema = pb.UpdateTopicRequest.pb()(topic={"name": TOPIC}, update_mask={"paths": ["schema_settings"]})
    labels = pb.UpdateTopicRequest.pb()(topic={"name": TOPIC}, update_mask={"paths": ["labels"]})
    deadline = pb.UpdateSubscriptionRequest.pb()(
        subscription={"name": subscription, "ack_deadline_seconds": 20}, update_mask={"paths": ["ack_deadline_seconds"]}
    )
    assert guarded_service.get_status(PUBLISHER + "UpdateTopic", labels, token) == ("OK", "")
    assert guarded_service.get_status(PUBLISHER + "UpdateTopic", schema, token)[0] == "PERMISSION_DENIED"
    assert guarded_service.get_status(SUBSCRIBER + "UpdateSubscription", deadline, token)[0] == "PERMISSION_DENIED"


def test_who_only_administers_a_project_names_its_own_service_accounts(guarded_service: GuardedService) -> None:
    _, token = guarded_service.user("project_admin")

    def subscribe(account: str) -> str:
        push = {"push_endpoint": "https://a.example", "oidc_token": {"service_account_email": account}}
        name = f"projects/P/subscriptions/own-{next(_numbers)}"
        request = pb.Subscription.pb()(name=name, topic=TOPIC, push_config=push)
        return guarded_service.get_status(SUBSCRIBER + "CreateSubscription", request, token)[0]

    own = "pusher@P.iam.gserviceaccount.com"
    for other in ("pusher@forest.iam.gserviceaccount.com", "me@example.com", f"{own}.evil.example"):
        assert subscribe(other) == "PERMISSION_DENIED"
    assert subscribe(own) == "OK"


PROGRAM = """
import sys
from google.api_core.exceptions import GoogleAPICallError
from google.cloud import pubsub_v1

publisher = pubsub_v1.PublisherClient(client_options={"api_endpoint": sys.argv[1]})
for topic in sys.argv[2:]:
    try:
        print(publisher.publish(topic, b"x", retry=None, timeout=60).result(60))
    except GoogleAPICallError as error:
        print(error.code.name, error.message)
"""
"""Publishes one message to each topic; as its own process, because gRPC reads its CA certificates once."""
PROGRAM_SECONDS = 180  # timeout of a program; its start is slow on a busy machine


@pytest.fixture
def service(tmp_path: Path) -> Iterator[LiveService]:
    with live_service(tmp_path / "data", "--pubsub-port", "0", "--tls-self-signed", "--min-free-bytes", "0") as service:
        yield service


def run_program(service: LiveService, folder: Path, *command: str) -> str:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AMS_", "PUBSUB_"))}
    environment = own | {
        "AMS_ENDPOINT": service.base_url, "AMS_TOKEN": service.token, "AMS_CA": str(service.ca),
        "AMS_PROJECT": "garden", "GOOGLE_APPLICATION_CREDENTIALS": "robot.json",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(service.ca), "no_proxy": "localhost,127.0.0.1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=PROGRAM_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.long
def test_a_program_publishes_by_its_file_until_that_is_revoked(service: LiveService, tmp_path: Path) -> None:
    ams = "-m", "ams.cli.main"
    service.ask("POST", "/projects/garden", {})
    for topic in ("readings", "alarms"):
        service.ask("PUT", f"/projects/garden/topics/{topic}", {})
    run_program(
        service, tmp_path, *ams, "token", "create", "robot", "--publish", "readings", "--google-file", "robot.json"
    )

    def publish_by_program(*topics: str) -> list[str]:
        named = (f"projects/{topic.replace('/', '/topics/')}" for topic in topics)
        return run_program(service, tmp_path, "-c", PROGRAM, service.pubsub, *named).splitlines()

    kept, forbidden, missing = publish_by_program("garden/readings", "garden/alarms", "orchard/readings")
    assert kept == "0"
    assert forbidden.startswith("FORBIDDEN ")
    assert missing == "NOT_FOUND Resource not found (resource=orchard)."
    run_program(service, tmp_path, *ams, "token", "revoke", "robot")
    [revoked] = publish_by_program("garden/readings")
    assert revoked.startswith("UNAUTHORIZED ")
