"""What is so of all resources that Google's clients administer: pages, masks, names, and fields that are not there."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
from google.api_core.exceptions import AlreadyExists, InvalidArgument, MethodNotImplemented, NotFound
from google.protobuf import field_mask_pb2
from google.pubsub_v1 import types

from tests.pubsub.conftest import World

PUBLISHER, SUBSCRIBER = "/google.pubsub.v1.Publisher/", "/google.pubsub.v1.Subscriber/"


def create_snapshot(world: World, name: str = "snapshot", of: str = "subscription") -> types.Snapshot:
    request = {"name": world.snapshot(name), "subscription": world.subscription(of)}
    return world.subscriber.create_snapshot(request=request)


def test_lists_come_in_pages_to_their_end(world: World) -> None:
    topic, subscription = world.made()
    topics, subscriptions = {topic}, {subscription}
    snapshots = {create_snapshot(world, f"snap-{number}").name for number in range(5)}
    for number in range(4):
        topics.add(world.publisher.create_topic(request={"name": world.topic(f"topic-{number}")}).name)
        request = {"name": world.subscription(f"sub-{number}"), "topic": topic}
        subscriptions.add(world.subscriber.create_subscription(request=request).name)
    of_project: dict[str, Any] = {"project": f"projects/{world.project}", "page_size": 2}
    of_topic: dict[str, Any] = {"topic": topic, "page_size": 2}
    lists: list[tuple[Any, str, set[str]]] = [
        (world.publisher.list_topics(request=of_project), "topics", topics),
        (world.publisher.list_topic_subscriptions(request=of_topic), "subscriptions", subscriptions),
        (world.publisher.list_topic_snapshots(request=of_topic), "snapshots", snapshots),
        (world.subscriber.list_subscriptions(request=of_project), "subscriptions", subscriptions),
        (world.subscriber.list_snapshots(request=of_project), "snapshots", snapshots),
    ]
    for listed, field, names in lists:
        pages = list(listed.pages)
        found = [[*getattr(page, field)] for page in pages]
        assert [len(each) for each in found] == [2, 2, 1]
        assert {getattr(each, "name", each) for page in found for each in page} == names
        assert pages[-1].next_page_token == ""


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        (PUBLISHER + "ListTopics", types.ListTopicsRequest),
        (SUBSCRIBER + "ListSubscriptions", types.ListSubscriptionsRequest),
        (SUBSCRIBER + "ListSnapshots", types.ListSnapshotsRequest),
    ],
)
def test_a_bad_page_is_refused(world: World, method: str, kind: Any) -> None:
    def ask(**fields: object) -> tuple[str, str]:
        return world.refused(method, kind.pb()(**{"project": f"projects/{world.project}", **fields}))

    assert {ask(page_size=-1)[0], ask(page_token="?")[0]} == {"INVALID_ARGUMENT"}
    assert ask(page_size=100_000) == ("OK", "")
    for name in ("", "projects/", "projects/a/b", "topics/a"):
        code, text = ask(project=name)
        assert code == "INVALID_ARGUMENT"
        assert text.startswith(f"Invalid resource name given (name={name}). Refer to ")


NOT_SET = "The update_mask in the Update{}Request must be set, and must contain a non-empty paths list."
NOT_MUTABLE = "Invalid update_mask provided in the Update{}Request: the '{}' field in the {} is not mutable."
UNKNOWN = "Invalid update_mask provided in the Update{}Request: '{}' is not a known {} field."
INVALID = "Invalid update_mask provided"
FIXED = {
    "Topic": ("name", "state"),
    "Subscription": ("name", "topic", "filter", "enable_message_ordering", "detached", "state"),
    "Snapshot": ("name", "topic"),
}


@pytest.mark.parametrize(
    ("kind", "paths", "text"),
    [
        *((kind, [], NOT_SET.format(kind)) for kind in FIXED),
        *((kind, ["labels", each], NOT_MUTABLE.format(kind, each, kind)) for kind in FIXED for each in FIXED[kind]),
        *((kind, ["labels", "colour"], UNKNOWN.format(kind, "colour", kind)) for kind in FIXED),
        *((kind, ["labels", "labels.a"], INVALID) for kind in FIXED),
        ("Topic", ["labels", "messageRetentionDuration"], "'messageRetentionDuration' is not a known Topic field."),
        ("Topic", ["labels", "message_retention_duration.minutes"], INVALID),
        ("Topic", ["labels", ""], INVALID),
        ("Subscription", ["labels", "retry_policy.colour"], INVALID),
        ("Subscription", ["labels", "ackDeadlineSeconds"], "'ackDeadlineSeconds' is not a known Subscription field."),
        ("Subscription", ["*"], "'*' is not a known Subscription field."),
        ("Snapshot", ["labels", "expire_time"], "A snapshot ends later than now, and within seven days"),
    ],
)
def test_a_bad_mask_changes_nothing(world: World, kind: str, paths: list[str], text: str) -> None:
    def got() -> list[object]:
        return [
            world.publisher.get_topic(request={"topic": topic}),
            world.subscriber.get_subscription(request={"subscription": subscription}),
            world.subscriber.get_snapshot(request={"snapshot": world.snapshot()}),
        ]

    topic, subscription = world.made()
    create_snapshot(world)
    before, labels = got(), {"b": "2"}
    in_eight_days = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=8)
    changed = {
        "Topic": types.Topic(name=topic, labels=labels),
        "Subscription": types.Subscription(name=subscription, labels=labels, filter="attributes:x"),
        "Snapshot": types.Snapshot(name=world.snapshot(), labels=labels, expire_time=in_eight_days),
    }[kind]
    request: Any = getattr(types, f"Update{kind}Request").pb()(update_mask=field_mask_pb2.FieldMask(paths=paths))
    getattr(request, kind.lower()).CopyFrom(type(changed).pb(changed))
    method = (PUBLISHER if kind == "Topic" else SUBSCRIBER) + f"Update{kind}"
    code, said = world.refused(method, request)
    assert code == "INVALID_ARGUMENT"
    assert text in said
    assert got() == before


TRANSFORMS = [{"javascript_udf": {"function_name": "f", "code": "x"}}]


@pytest.mark.parametrize(
    ("field", "value"),
    [("message_storage_policy", {"allowed_persistence_regions": ["europe-west1"]}),
     ("kms_key_name", "projects/p/locations/l/keyRings/r/cryptoKeys/k"),
     ("ingestion_data_source_settings", {"cloud_storage": {"bucket": "b"}}), ("message_transforms", TRANSFORMS)],
)  # fmt: skip
def test_what_topics_do_not_have_here_is_refused_by_name(world: World, field: str, value: object) -> None:
    with pytest.raises(MethodNotImplemented, match=f"The field {field} is not supported"):
        world.publisher.create_topic(request={"name": world.topic(), field: value})
    with pytest.raises(NotFound):
        world.publisher.get_topic(request={"topic": world.topic()})


@pytest.mark.parametrize(
    ("field", "value"),
    [("bigquery_config", {"table": "p.d.t"}), ("cloud_storage_config", {"bucket": "b"}),
     ("bigtable_config", {"table": "t"}), ("message_transforms", TRANSFORMS)],
)  # fmt: skip
def test_what_subscriptions_do_not_have_here_is_refused_by_name(world: World, field: str, value: object) -> None:
    topic, subscription = world.made()
    other = {"name": world.subscription("other"), "topic": topic, field: value}
    update = {"subscription": {"name": subscription, field: value}, "update_mask": {"paths": [field]}}
    with pytest.raises(MethodNotImplemented, match=f"The field {field} is not supported"):
        world.subscriber.create_subscription(request=other)
    with pytest.raises(MethodNotImplemented, match=f"The field {field} is not supported"):
        world.subscriber.update_subscription(request=update)


def test_each_is_made_once(world: World) -> None:
    topic, subscription = world.made()
    create_snapshot(world)
    asked: dict[str, Callable[[], object]] = {
        "topic": lambda: world.publisher.create_topic(request={"name": topic}),
        "subscription": lambda: world.subscriber.create_subscription(
            request={"name": subscription, "topic": topic, "ack_deadline_seconds": 20}
        ),
        "snapshot": lambda: create_snapshot(world),
    }
    for name, ask in asked.items():
        with pytest.raises(AlreadyExists) as error:
            ask()
        assert error.value.message == f"Resource already exists in the project (resource={name})."
    assert world.subscriber.get_subscription(request={"subscription": subscription}).ack_deadline_seconds == 10


def test_what_is_not_there_is_named(world: World) -> None:
    world.made()
    topic, subscription = world.topic("absent"), world.subscription("absent")
    asked: list[Callable[[], object]] = [
        lambda: world.pulled(subscription),
        lambda: world.subscriber.acknowledge(request={"subscription": subscription, "ack_ids": ["1-1"]}),
        lambda: world.subscriber.delete_subscription(request={"subscription": subscription}),
        lambda: world.publisher.get_topic(request={"topic": topic}),
        lambda: world.publisher.delete_topic(request={"topic": topic}),
        lambda: world.publisher.detach_subscription(request={"subscription": subscription}),
        lambda: create_snapshot(world, of="absent"),
    ]
    for ask in asked:
        with pytest.raises(NotFound) as error:
            ask()
        assert error.value.message == "Resource not found (resource=absent)."


def test_a_new_snapshot_has_a_name_of_the_rule(world: World) -> None:
    world.made()
    for name in ("snapshots/x", f"projects/{world.project}/snapshots/1"):
        with pytest.raises(InvalidArgument, match="Invalid resource name given"):
            world.subscriber.create_snapshot(request={"name": name, "subscription": world.subscription()})
