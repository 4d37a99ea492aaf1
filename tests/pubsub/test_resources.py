"""Topics and snapshots of Google's clients; and for all resources: pages, masks, names, and unsupported fields."""

import datetime
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from google.api_core import exceptions
from google.protobuf import field_mask_pb2
from google.pubsub_v1 import types

from tests.pubsub.conftest import World
from tests.support.waiting import PATIENCE_SECONDS

PUBLISHER, SUBSCRIBER = "/google.pubsub.v1.Publisher/", "/google.pubsub.v1.Subscriber/"


def updated_topic(world: World, paths: list[str], **fields: object) -> types.Topic:
    topic = {"name": world.topic(), **fields}
    return world.publisher.update_topic(request={"topic": topic, "update_mask": {"paths": paths}})


def create_topic(world: World, **options: object) -> types.Topic:
    return world.publisher.create_topic(request={"name": world.topic(), **options})


def got_topic(world: World) -> types.Topic:
    return world.publisher.get_topic(request={"topic": world.topic()})


def test_a_topic_is_shown_as_it_was_made(world: World) -> None:
    labels = {"team": "garden", "größe": "l-1_2"}
    asked = {"name": world.topic(), "labels": labels, "message_retention_duration": {"seconds": 86_400}}
    made = world.publisher.create_topic(request=asked)
    assert made == got_topic(world)
    assert (made.name, dict(made.labels)) == (world.topic(), labels)
    assert made.message_retention_duration.total_seconds() == 86_400
    assert made.state == types.Topic.State.ACTIVE


def test_a_topic_without_options_keeps_messages_as_the_project_says(world: World) -> None:
    made = create_topic(world)
    assert made == got_topic(world)
    assert not types.Topic.pb(made).HasField("message_retention_duration")
    assert world.http("GET", "/topics/topic")["name"] == f"/projects/{world.project}/topics/topic"


def test_each_changeable_field_changes_alone(world: World) -> None:
    create_topic(world, labels={"a": "1"})
    kept = {"message_retention_duration": {"seconds": 3600}}
    assert updated_topic(world, ["message_retention_duration"], labels={"b": "2"}, **kept) == got_topic(world)
    assert dict(got_topic(world).labels) == {"a": "1"}
    assert got_topic(world).message_retention_duration.total_seconds() == 3600
    assert dict(updated_topic(world, ["labels"], labels={"b": "2"}).labels) == {"b": "2"}
    assert got_topic(world).message_retention_duration.total_seconds() == 3600
    assert not updated_topic(world, ["labels"]).labels
    cleared = updated_topic(world, ["message_retention_duration"])
    assert not types.Topic.pb(cleared).HasField("message_retention_duration")
    assert cleared == got_topic(world)


@pytest.mark.parametrize(
    "leaf", ["ab", "1abc", "-abc", "goog-topic", "Google", "a" * 256, "a@b", "a:b", "a b", "goog.le", "umläut", ""]
)
def test_a_new_topic_has_a_name_of_the_rule(world: World, leaf: str) -> None:
    with pytest.raises(exceptions.InvalidArgument) as error:
        world.publisher.create_topic(request={"name": world.topic(leaf)})
    assert error.value.message.startswith(f"Invalid resource name given (name={world.topic(leaf)}). Refer to ")


def test_the_shortest_and_the_longest_names_are_taken_and_shorter_ones_of_the_http_api_are_read(world: World) -> None:
    for leaf in ("abc", "a" * 255, "A-b_9"):
        assert world.publisher.create_topic(request={"name": world.topic(leaf)}).name == world.topic(leaf)
    world.http("PUT", "/topics/1")
    assert world.publisher.get_topic(request={"topic": world.topic("1")}).name == world.topic("1")


def test_labels_follow_the_rule_and_there_are_at_most_64(world: World) -> None:
    pairs = [("A", "b"), ("1a", "b"), ("a", "B"), ("a", "b c"), ("", "b"), ("a" * 64, "b"), ("a", "b" * 64), ("-a", "")]
    for name, value in pairs:
        with pytest.raises(exceptions.InvalidArgument, match="^400 Invalid labels: "):
            create_topic(world, labels={name: value})
    labels = {f"label-{n}": "x" * 63 for n in range(64)}
    assert dict(create_topic(world, labels=labels).labels) == labels
    with pytest.raises(exceptions.InvalidArgument, match="Invalid labels"):
        updated_topic(world, ["labels"], labels={**labels, "one-more": ""})
    assert dict(got_topic(world).labels) == labels


def test_retention_has_limits(world: World) -> None:
    for seconds in (0, 599, 2_678_401, -1):
        with pytest.raises(
            exceptions.InvalidArgument, match="The value for message retention duration is out of bounds"
        ):
            create_topic(world, message_retention_duration={"seconds": seconds})
    create_topic(world)
    for seconds in (600, 2_678_400):
        kept = {"message_retention_duration": {"seconds": seconds}}
        shown = updated_topic(world, ["message_retention_duration"], **kept)
        assert shown.message_retention_duration.total_seconds() == seconds


def test_a_deleted_topic_leaves_its_subscriptions(world: World) -> None:
    topic, subscription = world.make_subscription()
    world.publisher.delete_topic(request={"topic": topic})
    with pytest.raises(exceptions.NotFound) as error:
        got_topic(world)
    assert error.value.message == "Resource not found (resource=topic)."
    assert world.subscriber.get_subscription(request={"subscription": subscription}).topic == "_deleted-topic_"
    with pytest.raises(exceptions.FailedPrecondition):
        world.pull()
    with pytest.raises(exceptions.NotFound):
        world.publisher.publish(topic, b"x", retry=None).result(PATIENCE_SECONDS)
    world.subscriber.delete_subscription(request={"subscription": subscription})


def now_utc() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def acknowledge(world: World, most: int = 100) -> list[bytes]:
    found = world.pull(world.subscription(), most)
    if found:
        ids = [each.ack_id for each in found]
        world.subscriber.acknowledge(request={"subscription": world.subscription(), "ack_ids": ids})
    return [each.message.data for each in found]


def create_snapshot(
    world: World, name: str = "snapshot", of: str = "subscription", **options: object
) -> types.Snapshot:
    request = {"name": world.snapshot(name), "subscription": world.subscription(of), **options}
    return world.subscriber.create_snapshot(request=request)


def got_snapshot(world: World) -> types.Snapshot:
    return world.subscriber.get_snapshot(request={"snapshot": world.snapshot()})


def seek(world: World, **target: object) -> None:
    world.subscriber.seek(request={"subscription": world.subscription(), **target})


def test_a_snapshot_is_shown_as_it_was_made(world: World) -> None:
    topic, _ = world.make_subscription()
    before = now_utc()
    made = create_snapshot(world, labels={"a": "b"})
    assert made == got_snapshot(world)
    assert made.topic == topic
    assert dict(made.labels) == {"a": "b"}
    assert datetime.timedelta(days=7) <= made.expire_time - before <= datetime.timedelta(days=7, minutes=5)
    assert list(world.subscriber.list_snapshots(request={"project": f"projects/{world.project}"})) == [made]
    assert list(world.publisher.list_topic_snapshots(request={"topic": topic})) == [made.name]


def test_a_snapshot_changes_and_is_deleted(world: World) -> None:
    world.make_subscription()
    before = create_snapshot(world, labels={"a": "b"})
    until = (now_utc() + datetime.timedelta(days=1)).replace(microsecond=0)
    wanted = {"name": world.snapshot(), "labels": {"c": "d"}, "expire_time": until}
    later = world.subscriber.update_snapshot(request={"snapshot": wanted, "update_mask": {"paths": ["expire_time"]}})
    assert later == got_snapshot(world)
    assert (later.expire_time, dict(later.labels)) == (until, {"a": "b"})
    labeled = world.subscriber.update_snapshot(request={"snapshot": wanted, "update_mask": {"paths": ["labels"]}})
    assert (dict(labeled.labels), labeled.topic) == ({"c": "d"}, before.topic)
    delete = partial(world.subscriber.delete_snapshot, request={"snapshot": world.snapshot()})
    delete()
    for each in (delete, partial(got_snapshot, world), partial(seek, world, snapshot=world.snapshot())):
        with pytest.raises(exceptions.NotFound) as error:
            each()
        assert error.value.message == "Resource not found (resource=snapshot)."


def test_a_snapshot_brings_back_what_was_not_acknowledged_and_what_came_since(world: World) -> None:
    world.make_backlog(b"one", b"two", b"three")
    assert acknowledge(world, 1) == [b"one"]
    create_snapshot(world)
    assert acknowledge(world) == [b"two", b"three"]
    world.publish(b"four")
    assert acknowledge(world) == [b"four"]
    seek(world, snapshot=world.snapshot())
    assert sorted(acknowledge(world)) == [b"four", b"three", b"two"]


def test_a_seek_to_a_time_delivers_what_was_published_then_or_later(world: World) -> None:
    world.make_backlog(b"before", retain_acked_messages=True)
    time.sleep(0.01)
    moment = now_utc()
    time.sleep(0.01)
    world.publish(b"after")
    assert acknowledge(world) == [b"before", b"after"]
    seek(world, time=moment)
    assert acknowledge(world) == [b"after"]
    seek(world, time=datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC))
    assert acknowledge(world) == [b"before", b"after"]
    world.publish(b"more")
    seek(world, time=now_utc() + datetime.timedelta(days=1))
    assert acknowledge(world) == []
    world.publish(b"later")
    assert acknowledge(world) == [b"later"]


def test_a_seek_needs_a_target(world: World) -> None:
    world.make_subscription()
    with pytest.raises(exceptions.InvalidArgument):
        seek(world)
    with pytest.raises(exceptions.NotFound) as error:
        seek(world, snapshot=world.snapshot("absent"))
    assert error.value.message == "Resource not found (resource=absent)."
    with pytest.raises(exceptions.InvalidArgument, match="Invalid resource name given"):
        seek(world, snapshot="absent")


def test_lists_come_in_pages_to_their_end(world: World) -> None:
    topic, subscription = world.make_subscription()
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


@pytest.mark.parametrize(("method", "kind"), [
    (PUBLISHER + "ListTopics", types.ListTopicsRequest),
    (SUBSCRIBER + "ListSubscriptions", types.ListSubscriptionsRequest),
    (SUBSCRIBER + "ListSnapshots", types.ListSnapshotsRequest),
])  # fmt: skip
def test_a_bad_page_is_refused(world: World, method: str, kind: Any) -> None:
    def ask(**fields: object) -> tuple[str, str]:
        return world.get_refusal(method, kind.pb()(**{"project": f"projects/{world.project}", **fields}))

    assert {ask(page_size=-1)[0], ask(page_token="?")[0]} == {"INVALID_ARGUMENT"}
    assert ask(page_size=100_000) == ("OK", "")
    for name in ("", "projects/", "projects/a/b", "topics/a"):
        code, text = ask(project=name)
        assert code == "INVALID_ARGUMENT"
        assert text.startswith(f"Invalid resource name given (name={name}). Refer to ")


MASK_NOT_SET = "The update_mask in the Update{}Request must be set, and must contain a non-empty paths list."
FIELD_NOT_MUTABLE = "Invalid update_mask provided in the Update{}Request: the '{}' field in the {} is not mutable."
UNKNOWN_FIELD = "Invalid update_mask provided in the Update{}Request: '{}' is not a known {} field."
INVALID = "Invalid update_mask provided"
FIXED_FIELDS = {"Topic": ("name", "state"),
                "Subscription": ("name", "topic", "filter", "enable_message_ordering", "detached", "state"),
                "Snapshot": ("name", "topic")}  # fmt: skip


@pytest.mark.parametrize(("kind", "paths", "text"), [
    *((kind, [], MASK_NOT_SET.format(kind)) for kind in FIXED_FIELDS),
    *((kind, ["labels", each],
       FIELD_NOT_MUTABLE.format(kind, each, kind)) for kind in FIXED_FIELDS for each in FIXED_FIELDS[kind]),
    *((kind, ["labels", "colour"], UNKNOWN_FIELD.format(kind, "colour", kind)) for kind in FIXED_FIELDS),
    *((kind, ["labels", "labels.a"], INVALID) for kind in FIXED_FIELDS),
    ("Topic", ["labels", "messageRetentionDuration"], "'messageRetentionDuration' is not a known Topic field."),
    ("Topic", ["labels", "message_retention_duration.minutes"], INVALID), ("Topic", ["labels", ""], INVALID),
    ("Subscription", ["labels", "retry_policy.colour"], INVALID),
    ("Subscription", ["labels", "ackDeadlineSeconds"], "'ackDeadlineSeconds' is not a known Subscription field."),
    ("Subscription", ["*"], "'*' is not a known Subscription field."),
    ("Snapshot", ["labels", "expire_time"], "A snapshot ends later than now, and within seven days"),
])  # fmt: skip
def test_a_bad_mask_changes_nothing(world: World, kind: str, paths: list[str], text: str) -> None:
    def get_resources() -> list[object]:
        return [world.publisher.get_topic(request={"topic": topic}),
                world.subscriber.get_subscription(request={"subscription": subscription}),
                world.subscriber.get_snapshot(request={"snapshot": world.snapshot()})]  # fmt: skip

    topic, subscription = world.make_subscription()
    create_snapshot(world)
    before, labels = get_resources(), {"b": "2"}
    in_eight_days = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=8)
    changed = {
        "Topic": types.Topic(name=topic, labels=labels),
        "Subscription": types.Subscription(name=subscription, labels=labels, filter="attributes:x"),
        "Snapshot": types.Snapshot(name=world.snapshot(), labels=labels, expire_time=in_eight_days),
    }[kind]
    request: Any = getattr(types, f"Update{kind}Request").pb()(update_mask=field_mask_pb2.FieldMask(paths=paths))
    getattr(request, kind.lower()).CopyFrom(type(changed).pb(changed))
    method = (PUBLISHER if kind == "Topic" else SUBSCRIBER) + f"Update{kind}"
    code, said = world.get_refusal(method, request)
    assert code == "INVALID_ARGUMENT"
    assert text in said
    assert get_resources() == before


TRANSFORMS = [{"javascript_udf": {"function_name": "f", "code": "x"}}]


NO_TOPIC_FIELDS = {
    "message_storage_policy": {"allowed_persistence_regions": ["europe-west1"]},
    "kms_key_name": "projects/p/locations/l/keyRings/r/cryptoKeys/k",
    "ingestion_data_source_settings": {"cloud_storage": {"bucket": "b"}}, "message_transforms": TRANSFORMS,
}  # fmt: skip
NO_SUBSCRIPTION_FIELDS = {
    "bigquery_config": {"table": "p.d.t"}, "cloud_storage_config": {"bucket": "b"}, "bigtable_config": {"table": "t"},
    "message_transforms": TRANSFORMS,
}  # fmt: skip


def test_a_field_that_is_not_supported_is_refused_by_name(world: World) -> None:
    topic, subscription = world.make_subscription()
    for field, value in NO_TOPIC_FIELDS.items():
        with pytest.raises(exceptions.MethodNotImplemented, match=f"The field {field} is not supported"):
            world.publisher.create_topic(request={"name": world.topic("other"), field: value})
        with pytest.raises(exceptions.NotFound):
            world.publisher.get_topic(request={"topic": world.topic("other")})
    for field, value in NO_SUBSCRIPTION_FIELDS.items():
        update = {"subscription": {"name": subscription, field: value}, "update_mask": {"paths": [field]}}
        with pytest.raises(exceptions.MethodNotImplemented, match=f"The field {field} is not supported"):
            world.subscriber.create_subscription(request={"name": subscription + "-b", "topic": topic, field: value})
        with pytest.raises(exceptions.MethodNotImplemented, match=f"The field {field} is not supported"):
            world.subscriber.update_subscription(request=update)


def test_each_is_made_once(world: World) -> None:
    topic, subscription = world.make_subscription()
    create_snapshot(world)
    asked: dict[str, Callable[[], object]] = {
        "topic": lambda: world.publisher.create_topic(request={"name": topic}),
        "subscription": lambda: world.subscriber.create_subscription(
            request={"name": subscription, "topic": topic, "ack_deadline_seconds": 20}
        ),
        "snapshot": lambda: create_snapshot(world),
    }
    for name, ask in asked.items():
        with pytest.raises(exceptions.AlreadyExists) as error:
            ask()
        assert error.value.message == f"Resource already exists in the project (resource={name})."
    assert world.subscriber.get_subscription(request={"subscription": subscription}).ack_deadline_seconds == 10


def test_what_is_not_there_is_named(world: World) -> None:
    world.make_subscription()
    topic, subscription = world.topic("absent"), world.subscription("absent")
    asked: list[Callable[[], object]] = [
        lambda: world.pull(subscription),
        lambda: world.subscriber.acknowledge(request={"subscription": subscription, "ack_ids": ["1-1"]}),
        lambda: world.subscriber.delete_subscription(request={"subscription": subscription}),
        lambda: world.publisher.get_topic(request={"topic": topic}),
        lambda: world.publisher.delete_topic(request={"topic": topic}),
        lambda: world.publisher.detach_subscription(request={"subscription": subscription}),
        lambda: create_snapshot(world, of="absent"),
    ]
    for ask in asked:
        with pytest.raises(exceptions.NotFound) as error:
            ask()
        assert error.value.message == "Resource not found (resource=absent)."


def test_a_new_snapshot_has_a_name_of_the_rule(world: World) -> None:
    world.make_subscription()
    for name in ("snapshots/x", f"projects/{world.project}/snapshots/1"):
        with pytest.raises(exceptions.InvalidArgument, match="Invalid resource name given"):
            world.subscriber.create_snapshot(request={"name": name, "subscription": world.subscription()})
