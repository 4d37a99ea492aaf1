"""Every call of the client, asked of a real service."""

import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ams.client import Client, Message, errors, wire
from ams.client.wire import Grant, UserDetails
from tests.client.faces import open_client
from tests.support.served import served
from tests.support.service import LiveService, live_service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    data: Path = tmp_path_factory.mktemp("service") / "ams-data"
    with live_service(data, "--tls-self-signed", "--min-free-bytes", "0", "--reserve-bytes", "0") as service:
        yield service


@pytest.fixture(scope="module")
def client(service: LiveService) -> Iterator[Client]:
    with Client(service.base_url, service.token, ca=str(service.ca)) as client:
        yield client


@pytest.fixture
def either(face: str, service: LiveService) -> Iterator[Any]:
    """Open a client of each face in turn."""
    with open_client(face, service.base_url, service.token, ca=str(service.ca)) as client:
        yield client


@pytest.fixture
def project(client: Client) -> str:
    """Make a project of the test's own."""
    name = f"p-{uuid.uuid4()}"
    assert client.call(wire.create_project(name, "for a test")).description == "for a test"
    return name


def test_projects(client: Client, project: str) -> None:
    renamed = client.call(wire.update_project(project, name=f"{project}-2"))

    assert renamed.name == f"{project}-2"
    assert client.call(wire.get_project(renamed.name)).created_by == "admin"
    assert renamed.name in [each.name for each in client.call(wire.list_projects()).projects]
    client.call(wire.delete_project(renamed.name))
    with pytest.raises(errors.NotFound, match="project doesn't exist"):
        client.call(wire.get_project(renamed.name))


def test_users(client: Client, project: str) -> None:
    name = f"u-{project}"
    details = UserDetails(email="u@site.example", projects=[Grant(project=project, roles=["consumer"])])

    made = client.call(wire.create_user(name, details))
    updated = client.call(wire.update_user(name, UserDetails(first_name="Uma", service_roles=["metrics_viewer"])))
    refreshed = client.call(wire.refresh_token(name))

    assert made.projects[0].roles == ["consumer"]
    assert (updated.first_name, updated.email, updated.service_roles) == ("Uma", "u@site.example", ["metrics_viewer"])
    assert refreshed.token not in ("", made.token)
    assert client.call(wire.get_user(name)) == client.call(wire.get_user_by_uuid(made.uuid)) == refreshed
    assert client.call(wire.get_user_by_token(refreshed.token)).name == name
    assert [each.name for each in client.call(wire.list_users(project=project)).users] == [name]
    with pytest.raises(errors.AlreadyExists):
        client.call(wire.create_user(name))
    client.call(wire.delete_user(name))
    with pytest.raises(errors.NotFound):
        client.call(wire.get_user(name))


def test_who_the_caller_is(client: Client) -> None:
    profile = client.call(wire.get_profile())

    assert (profile.name, profile.service_roles) == ("admin", ["service_admin"])


def test_members(client: Client, project: str) -> None:
    made = client.call(wire.create_member(project, f"u-{project}", ["publisher"], email="u@site.example"))

    changed = client.call(wire.update_member(project, made.name, ["consumer"]))

    assert (made.email, bool(made.token)) == ("u@site.example", True)
    assert changed.projects[0].roles == ["consumer"]
    assert client.call(wire.get_member(project, made.name)).projects == changed.projects
    assert client.call(wire.list_members(project, details=True)).users[0].projects == changed.projects
    client.call(wire.remove_member(project, made.name))
    assert client.call(wire.list_members(project)).users == []
    assert client.call(wire.add_member(project, made.name)).projects[0].roles == []


def test_registrations(client: Client, project: str) -> None:
    name = f"u-{project}"

    asked = client.call(wire.register(name, UserDetails(email="u@site.example", first_name="Uma")))
    shown = client.call(wire.get_registration(asked.uuid))
    user = client.call(wire.accept_registration(asked.uuid))

    assert (shown, asked.status, asked.first_name) == (asked, "pending", "Uma")
    assert (user.name, user.email, bool(user.token)) == (name, "u@site.example", True)
    [decided] = client.call(wire.list_registrations(name=name, status="accepted")).user_registrations
    assert (decided.modified_by, decided.activation_token) == ("admin", "")
    client.call(wire.delete_registration(asked.uuid))
    with pytest.raises(errors.NotFound, match="User registration doesn't exist"):
        client.call(wire.get_registration(asked.uuid))
    other = client.call(wire.register(f"{name}-2"))
    client.call(wire.decline_registration(other.uuid, "no place"))
    assert client.call(wire.get_registration(other.uuid)).decline_comment == "no place"


def test_topics_in_pages(client: Client, project: str) -> None:
    for name in ("one", "two", "three"):
        client.call(wire.create_topic(project, name))

    first = client.call(wire.list_topics(project, page_size=2))
    second = client.call(wire.list_topics(project, page_size=2, page_token=first.next_page_token))

    assert [each.name.rpartition("/")[2] for each in (*first.topics, *second.topics)] == ["three", "two", "one"]
    assert (first.total_size, second.next_page_token) == (3, "")
    client.call(wire.delete_topic(project, "one"))
    with pytest.raises(errors.NotFound, match="Topic doesn't exist"):
        client.call(wire.get_topic(project, "one"))


def test_access_lists(client: Client, project: str) -> None:
    client.call(wire.create_topic(project, "T"))
    client.call(wire.create_subscription(project, "S", "T"))
    user = client.call(wire.create_member(project, f"u-{project}", ["publisher", "consumer"])).name

    client.call(wire.modify_topic_acl(project, "T", [user]))
    client.call(wire.modify_subscription_acl(project, "S", [user]))

    assert client.call(wire.get_topic_acl(project, "T")).authorized_users == [user]
    assert client.call(wire.get_subscription_acl(project, "S")).authorized_users == [user]
    with pytest.raises(errors.NotFound, match="nobody"):
        client.call(wire.modify_topic_acl(project, "T", ["nobody"]))


def test_messages(client: Client, project: str) -> None:
    client.call(wire.create_topic(project, "T"))
    made = client.call(wire.create_subscription(project, "S", "T", ack_deadline=20))
    messages = [wire.message(b"one", {"k": "v"}), wire.message(b"two"), wire.message(b"three")]

    published = client.call(wire.publish(project, "T", messages))
    received = client.call(wire.pull(project, "S", max_messages=10)).received_messages
    client.call(wire.acknowledge(project, "S", [received[1].ack_id]))

    assert made.ack_deadline_seconds == 20
    assert published.message_ids == [each.message.message_id for each in received] == ["0", "1", "2"]
    assert [(each.message.payload(), each.message.attributes) for each in received] == [
        (b"one", {"k": "v"}),
        (b"two", {}),
        (b"three", {}),
    ]
    assert received[1].ack_id == wire.ack_id(project, "S", 1)
    offsets = client.call(wire.get_offsets(project, "S"))
    assert (offsets.min, offsets.current, offsets.max) == (0, 2, 3)


def test_seeking(client: Client, project: str) -> None:
    client.call(wire.create_topic(project, "T"))
    client.call(wire.create_subscription(project, "S", "T"))
    client.call(wire.publish(project, "T", [wire.message(b"one"), wire.message(b"two")]))
    now = datetime.now(UTC)

    assert client.call(wire.time_to_offset(project, "S", now - timedelta(hours=1))).offset == 0
    with pytest.raises(errors.Conflict, match="out of bounds"):
        client.call(wire.time_to_offset(project, "S", now + timedelta(hours=1)))
    client.call(wire.modify_offset(project, "S", 2))
    assert client.call(wire.pull(project, "S", wait=False)).received_messages == []
    with pytest.raises(errors.InvalidInput, match="Offset out of bounds"):
        client.call(wire.modify_offset(project, "S", 3))


def test_an_ack_after_the_deadline_is_its_own_error(client: Client, project: str) -> None:
    client.call(wire.create_topic(project, "T"))
    client.call(wire.create_subscription(project, "S", "T"))
    client.call(wire.publish(project, "T", [wire.message(b"one")]))
    [pulled] = client.call(wire.pull(project, "S")).received_messages

    client.call(wire.modify_ack_deadline(project, "S", 0))

    with pytest.raises(errors.AckTimeout, match="ack timeout"):
        client.call(wire.acknowledge(project, "S", [pulled.ack_id]))


def test_subscriptions(client: Client, project: str) -> None:
    client.call(wire.create_topic(project, "T"))
    client.call(wire.create_subscription(project, "S", "T"))
    path = f"/projects/{project}/subscriptions/S"

    assert client.call(wire.list_topic_subscriptions(project, "T")).subscriptions == [path]
    assert [each.name for each in client.call(wire.list_subscriptions(project)).subscriptions] == [path]
    assert client.call(wire.get_subscription(project, "S")).push_config["pushEndpoint"] == ""
    client.call(wire.delete_subscription(project, "S"))
    with pytest.raises(errors.NotFound, match="Subscription doesn't exist"):
        client.call(wire.get_subscription(project, "S"))


def test_the_service(client: Client) -> None:
    assert client.call(wire.get_status())["status"] == "ok"
    assert client.call(wire.get_status(details=True))["status"] == "ok"
    assert "release" in client.call(wire.get_version())


def test_a_body_over_the_limit_is_too_large(client: Client, project: str) -> None:
    client.call(wire.create_topic(project, "T"))

    with pytest.raises(errors.TooLarge):
        client.call(wire.publish(project, "T", [wire.message(b"x" * 2_000_000)]))


def test_a_deadline_of_0_is_one_of_0(either: Any, client: Client, project: str) -> None:
    client.call(wire.create_topic(project, "T"))

    made = either.project(project).subscription("S").create("T", ack_deadline=0)

    assert made.ack_deadline_seconds == 0
    assert client.call(wire.get_subscription(project, "S")) == made


def test_a_parallel_subscription_is_made_and_changed(either: Any, client: Client, project: str) -> None:
    client.call(wire.create_topic(project, "T"))
    there = either.project(project).subscription("S")

    made = there.create(
        "T", ack_deadline=0, parallel=wire.ParallelOptions(wire.RetryBackoff("1s"), filter="attributes:a")
    )
    changed = there.update(wire.SubscriptionChanges(retry_policy=None, enable_exactly_once_delivery=True))

    assert (made.type, made.ack_deadline_seconds, made.filter) == ("parallel", 10, "attributes:a")
    assert made.retry_policy is not None
    assert (made.retry_policy.minimum_backoff, made.retry_policy.maximum_backoff) == ("1s", "600s")
    assert changed == msgspec.structs.replace(made, retry_policy=None, enable_exactly_once_delivery=True)
    assert client.call(wire.get_subscription(project, "S")) == changed


def test_messages_go_in_and_come_out_of_a_loop(either: Any, project: str) -> None:
    topic, subscription = either.project(project).topic("T"), either.project(project).subscription("S")
    topic.create()
    subscription.create("T", ack_deadline=20)

    ids = topic.publish([Message(b"one", {"k": "v"}, "bed 4"), Message(b"two"), Message(attributes={"only": "these"})])
    [first] = subscription.pull()
    received = list(subscription.messages(batch=2, follow=False))

    assert (first.data, first.attributes, ids) == (b"one", {"k": "v"}, ["0", "1", "2"])
    assert [each.ordering_key for each in (first, *received)] == ["bed 4", "bed 4", "", ""]
    assert [(each.id, each.data, each.attributes) for each in received] == [
        ("0", b"one", {"k": "v"}),
        ("1", b"two", {}),
        ("2", b"", {"only": "these"}),
    ]
    assert abs(datetime.now(UTC) - received[0].publish_time) < timedelta(minutes=1)
    assert subscription.offsets().current == 3
    subscription.delete()
    topic.delete()


def test_a_parallel_subscription_says_what_is_under_way_until_it_is_detached(either: Any, project: str) -> None:
    topic, subscription = either.project(project).topic("T"), either.project(project).subscription("S")
    topic.create()
    subscription.create("T", parallel=wire.ParallelOptions())
    topic.publish([Message(b"%d" % number) for number in range(4)])
    _, second, third = subscription.pull(3)
    subscription.acknowledge([second, third])

    found = subscription.offsets()
    assert (found.current, found.acknowledged, found.leased, found.waiting, found.blocked) == (0, 2, 1, 0, 0)
    subscription.detach()
    with pytest.raises(errors.Conflict, match="Subscription is detached"):
        subscription.pull(wait=False)
    subscription.delete()
    subscription.create("T")
    with pytest.raises(errors.Conflict, match="Subscription is not of type parallel"):
        subscription.detach()


def test_what_a_loop_did_not_finish_comes_again(either: Any, project: str) -> None:
    topic, subscription = either.project(project).topic("T"), either.project(project).subscription("S")
    topic.create()
    subscription.create("T")
    topic.publish([Message(b"%d" % number) for number in range(5)])

    for message in subscription.messages(batch=2):
        if message.data == b"3":
            break
    assert subscription.offsets().current == 2

    for message in subscription.messages(batch=2):
        subscription.acknowledge(message)
        if message.data == b"2":
            break
    assert [each.data for each in subscription.pull(10)] == [b"3", b"4"]


def test_a_loop_that_follows_gets_what_is_published_later(either: Any, client: Client, project: str) -> None:
    client.project(project).topic("T").create()
    client.project(project).subscription("S").create("T")
    later = threading.Timer(0.2, client.project(project).topic("T").publish, [[Message(b"later")]])
    later.start()

    message = next(iter(either.project(project).subscription("S").messages()))

    later.join()
    assert message.data == b"later"


def test_a_loop_slower_than_the_deadline_gets_everything_once(face: str, tmp_path: Path) -> None:
    with (
        served(tmp_path / "ams-data") as service,
        open_client(face, service.run.base_url, service.token) as client,
    ):
        client.call(wire.create_project("P"))
        topic, subscription = client.project("P").topic("T"), client.project("P").subscription("S")
        topic.create()
        subscription.create("T")
        topic.publish([Message(b"%d" % number) for number in range(5)])
        taken = []

        for message in subscription.messages(batch=3, follow=False):
            taken.append(message.data)
            if message.data == b"1":
                service.clock.advance(60_000)

        assert taken == [b"0", b"1", b"2", b"3", b"4"]
        assert subscription.offsets().current == 5
