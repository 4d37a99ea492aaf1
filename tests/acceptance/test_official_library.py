"""The official client library, unmodified, against a running service over TLS: all its calls."""

import inspect
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from argo_ams_library import (
    AmsMessage,
    AmsServiceException,
    AmsTimeoutException,
    AmsUser,
    AmsUserProject,
    ArgoMessagingService,
)

from ams.client import Client, Message
from tests.support.service import LiveService, live_service
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.acceptance

WITHOUT_REQUESTS = {"assign_token", "auth_via_cert", "get_pullopt", "set_pullopt"} | {
    f"do_{method}" for method in ("get", "put", "post", "delete")
}
"""Methods that send no request."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    data = tmp_path_factory.mktemp("library") / "ams-data"
    flags = ("--tls-self-signed", "--min-free-bytes", "0", "--reserve-bytes", "0", "--pull-wait", "100ms")
    push = ("--push-enabled", "--push-worker-token", "the-token-of-the-push-worker")
    with live_service(data, *flags, *push) as service:
        yield service


@pytest.fixture
def tls(service: LiveService, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Options of every call: the service's own CA, and no proxy."""
    monkeypatch.setenv("NO_PROXY", "localhost")
    return {"verify": str(service.ca), "timeout": 10}


@pytest.fixture
def ams(service: LiveService, tls: dict[str, Any], request: pytest.FixtureRequest) -> ArgoMessagingService:
    """The library as the administrator, in the test's own project."""
    endpoint = service.base_url.removeprefix("https://")
    ams = ArgoMessagingService(endpoint, token=service.token, project=request.node.name.replace("_", "-"))
    ams.create_project(ams.project, "made by a test", **tls)
    return ams


def as_user(ams: ArgoMessagingService, user: AmsUser) -> ArgoMessagingService:
    return ArgoMessagingService(ams.endpoint, token=user.token, project=ams.project)


def refusal_of(call: Any, *arguments: Any, **more: Any) -> AmsServiceException:
    with pytest.raises(AmsServiceException) as refusal:
        call(*arguments, **more)
    return refusal.value


def test_every_method_that_asks_the_service_something_is_called_here() -> None:
    methods = {name for name, _ in inspect.getmembers(ArgoMessagingService, inspect.isfunction) if name[0] != "_"}
    source = Path(__file__).read_text()
    assert {name for name in methods - WITHOUT_REQUESTS if f".{name}(" not in source} == set()
    assert methods >= WITHOUT_REQUESTS


def test_projects(ams: ArgoMessagingService, tls: dict[str, Any]) -> None:
    assert ams.get_project(ams.project, **tls)["description"] == "made by a test"
    assert refusal_of(ams.create_project, ams.project, "again", **tls).code == 409

    renamed = f"{ams.project}-2"
    assert ams.update_project(ams.project, description="new", updated_name=renamed, **tls)["name"] == renamed
    assert ams.get_project(renamed, **tls)["description"] == "new"

    ams.delete_project(renamed, **tls)
    assert refusal_of(ams.get_project, renamed, **tls).msg.endswith("project doesn't exist")


def test_users(ams: ArgoMessagingService, tls: dict[str, Any]) -> None:
    name = f"{ams.project}-user"
    wanted = AmsUser(
        name=name, firstname="First", lastname="Last", organization="Org", description="Text",
        email="first@site.example", service_roles=["admin_viewer"],
        projects=[AmsUserProject(project=ams.project, roles=["publisher"], topics=["ignored"])],
    )  # fmt: skip

    made = ams.create_user(wanted, **tls)

    assert vars(wanted) | vars(made) == vars(made)
    assert [vars(each) for each in made.projects] == [
        {"project": ams.project, "roles": ["publisher"], "topics": [], "subscriptions": []}
    ]
    for found in (
        ams.get_user(name, **tls), ams.get_user_by_uuid(made.uuid, **tls), ams.get_user_by_token(made.token, **tls),
        as_user(ams, made).get_user_profile(**tls),
    ):  # fmt: skip
        assert (found.uuid, found.token, found.email) == (made.uuid, made.token, "first@site.example")
    page = ams.list_users(**tls)  # asks with details=True and nextPageToken=, which are not what the service reads
    assert (page.users[0].name, page.next_page_token, page.total_size) == (name, "", len(page.users))

    projects = [AmsUserProject(project=ams.project, roles=["consumer"])]
    changed = ams.update_user(name, first_name="New", service_roles=["metrics_viewer"], projects=projects, **tls)
    assert (changed.firstname, changed.lastname, changed.service_roles) == ("New", "Last", ["metrics_viewer"])
    assert changed.projects[0].roles == ["consumer"]
    assert ams.refresh_user_token(name, **tls).token != made.token
    ams.delete_user(name, **tls)
    assert refusal_of(ams.get_user, name, **tls).code == 404


def test_members(ams: ArgoMessagingService, tls: dict[str, Any]) -> None:
    name = f"{ams.project}-member"

    made = ams.create_project_member(name, roles=["publisher"], email="m@site.example", **tls)

    assert (made.email, made.projects[0].roles) == ("m@site.example", ["publisher"])
    assert ams.get_project_member(name, **tls).uuid == made.uuid
    assert refusal_of(ams.add_project_member, name, roles=["consumer"], **tls).code == 409
    ams.remove_project_member(name, ams.project, **tls)
    assert refusal_of(ams.get_project_member, name, **tls).code == 404
    assert ams.add_project_member(name, roles=["consumer"], **tls).projects[0].roles == ["consumer"]


def test_topics_and_their_access_lists(ams: ArgoMessagingService, tls: dict[str, Any]) -> None:
    publisher = ams.create_project_member(f"{ams.project}-pub", roles=["publisher"], **tls)
    full_name = f"/projects/{ams.project}/topics/T"
    assert not ams.has_topic("T", **tls)

    assert ams.create_topic("T", **tls)["name"] == ams.get_topic("T", **tls)["name"] == full_name
    assert ams.has_topic("T", **tls)
    assert ams.topic("T", **tls).fullname == ams.get_topic("T", retobj=True, **tls).fullname == full_name
    assert ams.topic("other", **tls).name == "other"  # is made
    assert [each["name"] for each in ams.list_topics(**tls)["topics"]][-1] == full_name
    assert {each.name for each in ams.iter_topics(**tls)} == {"T", "other"}

    assert refusal_of(as_user(ams, publisher).publish, "T", AmsMessage(data="x"), **tls).code == 403
    ams.modifyacl_topic("T", [publisher.name], **tls)
    assert ams.getacl_topic("T", **tls) == {"authorized_users": [publisher.name]}
    assert as_user(ams, publisher).publish("T", AmsMessage(data="x"), **tls) == {"messageIds": ["0"]}
    ams.topic("T", **tls).acl([], **tls)
    assert ams.topic("T", **tls).acl(**tls) == {"authorized_users": []}

    ams.delete_topic("T", **tls)
    assert not ams.has_topic("T", **tls)


def test_subscriptions_and_their_access_lists(ams: ArgoMessagingService, tls: dict[str, Any]) -> None:
    topic, full_name = ams.topic("T", **tls), f"/projects/{ams.project}/subscriptions/S"
    assert not ams.has_sub("S", **tls)

    made = ams.create_sub("S", "T", ackdeadline=20, **tls)
    assert (made["name"], made["topic"], made["ackDeadlineSeconds"]) == (full_name, topic.fullname, 20)
    assert ams.has_sub("S", **tls)
    assert ams.get_sub("S", **tls) == made
    assert topic.subscription("R", ackdeadline=30, **tls).ackdeadline == 30
    assert [each["name"] for each in ams.list_subs(**tls)["subscriptions"]][-1] == full_name
    assert {each.name for each in ams.iter_subs("T", **tls)} == {"S", "R"}
    assert [refusal_of(ams.create_sub, "S", topic, **tls).code for topic in ("T", "none")] == [409, 404]

    assert ams.getacl_sub("S", **tls) == {"authorized_users": []}
    consumer = ams.create_project_member(f"{ams.project}-con", roles=["consumer"], **tls)
    ams.modifyacl_sub("S", [consumer.name], **tls)
    assert ams.get_sub("S", retobj=True, **tls).acl(**tls) == {"authorized_users": [consumer.name]}
    assert as_user(ams, consumer).pull_sub("S", return_immediately=True, **tls) == []

    ams.delete_sub("S", **tls)
    assert not ams.has_sub("S", **tls)


def test_messages(ams: ArgoMessagingService, tls: dict[str, Any]) -> None:
    topic = ams.topic("T", **tls)
    subscription = topic.subscription("S", **tls)
    sent = [AmsMessage(data=f"text {n}", attributes={"Number": str(n)}) for n in range(5)]

    assert topic.publish(sent, **tls) == {"messageIds": ["0", "1", "2", "3", "4"]}
    assert ams.publish("T", {"attributes": {"only": "attributes"}}, **tls) == {"messageIds": ["5"]}

    pulled = ams.pull_sub("S", 2, return_immediately=True, **tls)
    assert [(message.get_data(), message.get_attr()) for _, message in pulled] == [
        (b"text 0", {"Number": "0"}),
        (b"text 1", {"Number": "1"}),
    ]
    assert ams.ack_sub("S", [ack_id for ack_id, _ in pulled], **tls)

    [again] = subscription.pull(**tls)  # the default asks to wait
    assert again[1].get_msgid() == "2"
    assert subscription.ack([again[0]], **tls)
    assert [message.get_data() for message in ams.pullack_sub("S", 2, **tls)] == [b"text 3", b"text 4"]
    [last] = subscription.pullack(10, return_immediately=True, **tls)
    assert last.get_attr() == {"only": "attributes"}
    assert ams.pullack_sub("S", **tls) == []

    assert topic.publish([last], **tls) == {"messageIds": ["6"]}  # a pulled message, id and time and all


def test_keyed_messages_reach_the_library(ams: ArgoMessagingService, service: LiveService, tls: dict[str, Any]) -> None:
    ams.create_topic("T", **tls)
    ams.create_sub("S", "T", **tls)
    with Client(service.base_url, service.token, ca=str(service.ca)) as client:
        client.project(ams.project).topic("T").publish([Message(b"keyed", {"k": "v"}, "bed 4"), Message(b"plain")])

    pulled = ams.pull_sub("S", 2, return_immediately=True, **tls)

    assert [(message.get_data(), message.get_attr()) for _, message in pulled] == [
        (b"keyed", {"k": "v"}),
        (b"plain", ""),
    ]
    assert ams.ack_sub("S", [ack_id for ack_id, _ in pulled], **tls)


def test_offsets(ams: ArgoMessagingService, tls: dict[str, Any]) -> None:
    topic = ams.topic("T", **tls)
    subscription = topic.subscription("S", **tls)
    topic.publish([AmsMessage(data="x")] * 3, **tls)

    assert ams.getoffsets_sub("S", **tls) == {"min": 0, "max": 3, "current": 0}
    assert ams.getoffsets_sub("S", "max", **tls) == 3
    assert subscription.offsets(move_to=2, **tls) == {"min": 0, "max": 3, "current": 2}
    assert ams.modifyoffset_sub("S", 0, **tls) is not None
    assert subscription.offsets("current", **tls) == 0
    assert refusal_of(ams.modifyoffset_sub, "S", 4, **tls).code == 400

    an_hour_ago = datetime.now(UTC).replace(tzinfo=None, microsecond=0) - timedelta(hours=1)
    assert ams.time_to_offset_sub("S", an_hour_ago, **tls) == 0  # a blank for the T
    assert subscription.time_to_offset(an_hour_ago.replace(microsecond=500_000), **tls) == 0
    assert refusal_of(ams.time_to_offset_sub, "S", an_hour_ago + timedelta(hours=2), **tls).code == 409


def test_a_late_acknowledgement_is_a_timeout_error(ams: ArgoMessagingService, tls: dict[str, Any]) -> None:
    ams.topic("T", **tls).subscription("S", ackdeadline=1, **tls)
    ams.publish("T", AmsMessage(data="x"), **tls)
    [(ack_id, _)] = ams.pull_sub("S", **tls)

    time.sleep(1.01)  # another process: its clock is the machine's
    with pytest.raises(AmsTimeoutException):
        ams.ack_sub("S", [ack_id], **tls)

    assert [message[0] for message in ams.pull_sub("S", **tls)] == [ack_id]


def test_errors_status_and_version(ams: ArgoMessagingService, tls: dict[str, Any]) -> None:
    stranger = ArgoMessagingService(ams.endpoint, token="0" * 64, project=ams.project)

    assert refusal_of(stranger.get_topic, "T", **tls).code == 401
    missing = refusal_of(ams.get_topic, "T", **tls)
    assert (missing.code, missing.status) == (404, "NOT_FOUND")
    assert missing.msg == "While trying the [topic_get]: Topic doesn't exist"
    assert ams.status(**tls)["status"] == "ok"
    assert ams.version(**tls)["release"]


def test_metrics_and_usage(ams: ArgoMessagingService, tls: dict[str, Any]) -> None:
    name = f"{ams.project}-admin"
    administrator = as_user(ams, ams.create_project_member(name, roles=["project_admin"], **tls))
    ams.topic("T", **tls).publish([AmsMessage(data="x")] * 3, **tls)
    today = datetime.now(UTC)

    assert [each["metric"] for each in ams.metrics(**tls)["metrics"]] == ["ams_node.cpu_usage", "ams_node.memory_usage"]
    [mine] = ams.va_metrics([ams.project], today - timedelta(days=1), today, **tls)["projects_metrics"]["projects"]
    assert (mine["project"], mine["message_count"], mine["topics_count"]) == (ams.project, 3, 1)
    report = administrator.usage_report([ams.project], today - timedelta(days=1), today, **tls)
    assert report["va_metrics"]["projects_metrics"]["total_message_count"] == 3
    assert len(report["operational_metrics"]["metrics"]) == 2


def test_push_is_configured_shown_in_every_list_and_taken_back(ams: ArgoMessagingService, tls: dict[str, Any]) -> None:
    ams.create_topic("t", **tls)
    made = ams.create_sub("s", "t", push_endpoint="https://receiver.example/in", retobj=True, **tls)
    assert (made.push_endpoint, made.retry_policy_type, made.retry_policy_period) == (
        "https://receiver.example/in", "linear", 300,
    )  # fmt: skip

    ams.pushconfig_sub("s", "https://receiver.example/in", "slowstart", **tls)

    for shown in (ams.get_sub("s", **tls), ams.list_subs(**tls)["subscriptions"][0]):
        assert shown["pushConfig"]["type"] == "http_endpoint"
        assert shown["pushConfig"]["retryPolicy"] == {"type": "slowstart", "period": 0}
    assert ams.has_sub("s", **tls)
    assert [each.retry_policy_type for each in ams.iter_subs(**tls)] == ["slowstart"]
    assert refusal_of(ams.pushconfig_sub, "s", "http://receiver.example/in", **tls).code == 400

    ams.pushconfig_sub("s", **tls)

    assert ams.get_sub("s", **tls)["pushConfig"]["pushEndpoint"] == ""


def test_parallel_subscriptions(ams: ArgoMessagingService, tls: dict[str, Any]) -> None:
    """Two programs share a backlog by the loop of docs/explanation/ordered-or-parallel.md: every id is acknowledged."""
    topic = ams.topic("T", **tls)
    url = f"https://{ams.endpoint}/v1/projects/{ams.project}/subscriptions/workers?key={ams.token}"
    body = {"topic": f"projects/{ams.project}/topics/T", "type": "parallel"}  # which the library cannot make
    trusted = ssl.create_default_context(cafile=tls["verify"])
    httpx.put(url, json=body, verify=trusted, trust_env=False, timeout=PATIENCE_SECONDS).raise_for_status()
    topic.publish([AmsMessage(data=f"text {number}") for number in range(25)], **tls)

    worked: list[bytes] = []
    programs = ams, ArgoMessagingService(ams.endpoint, token=ams.token, project=ams.project)
    while any(given := [each.pull_sub("workers", 10, return_immediately=True, **tls) for each in programs]):
        for program, batch in zip(programs, given, strict=True):
            worked += [message.get_data() for _, message in batch]
            assert not batch or program.ack_sub("workers", [ack_id for ack_id, _ in batch], **tls)

    assert sorted(worked) == sorted(b"text %d" % number for number in range(25))
    assert ams.getoffsets_sub("workers", **tls) == {
        "min": 0, "max": 25, "current": 25, "acknowledged": 0, "leased": 0, "waiting": 0, "blocked": 0,
    }  # fmt: skip
    assert ams.pullack_sub("workers", 5, return_immediately=True, **tls) == []
