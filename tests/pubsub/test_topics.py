"""Google's client administers topics."""

from collections.abc import Mapping
from typing import Any

import pytest
from google.api_core.exceptions import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    MethodNotImplemented,
    NotFound,
)
from google.protobuf import field_mask_pb2
from google.pubsub_v1 import types

from tests.pubsub.conftest import World
from tests.pubsub.streams import refused

UPDATE = "/google.pubsub.v1.Publisher/UpdateTopic"


def updated(world: World, paths: list[str], **fields: object) -> types.Topic:
    topic = {"name": world.topic(), **fields}
    return world.publisher.update_topic(request={"topic": topic, "update_mask": {"paths": paths}})


def got(world: World) -> types.Topic:
    return world.publisher.get_topic(request={"topic": world.topic()})


def test_a_topic_is_shown_as_it_was_made(world: World) -> None:
    asked = {
        "name": world.topic(),
        "labels": {"team": "garden", "größe": "l-1_2"},
        "message_retention_duration": {"seconds": 86_400},
    }
    made = world.publisher.create_topic(request=asked)
    assert made == got(world)
    assert made.name == world.topic()
    assert dict(made.labels) == asked["labels"]
    assert made.message_retention_duration.total_seconds() == 86_400
    assert made.state == types.Topic.State.ACTIVE


def test_a_topic_without_options_keeps_messages_as_the_project_says(world: World) -> None:
    made = world.publisher.create_topic(request={"name": world.topic()})
    assert made == got(world)
    assert not types.Topic.pb(made).HasField("message_retention_duration")
    assert world.http("GET", "/topics/topic")["name"] == f"/projects/{world.project}/topics/topic"


def test_lists_come_in_pages_to_their_end(world: World) -> None:
    names = {world.topic(f"topic-{n}") for n in range(7)}
    for each in names:
        world.publisher.create_topic(request={"name": each})
    request = {"project": f"projects/{world.project}", "page_size": 3}
    pages = list(world.publisher.list_topics(request=request).pages)
    assert [len(each.topics) for each in pages] == [3, 3, 1]
    assert {topic.name for page in pages for topic in page.topics} == names
    assert pages[-1].next_page_token == ""


def test_the_subscriptions_of_a_topic_come_in_pages(world: World) -> None:
    world.publisher.create_topic(request={"name": world.topic()})
    names = {world.subscription(f"sub-{n}") for n in range(5)}
    for each in names:
        world.subscriber.create_subscription(request={"name": each, "topic": world.topic()})
    request = {"topic": world.topic(), "page_size": 2}
    pages = list(world.publisher.list_topic_subscriptions(request=request).pages)
    assert [len(each.subscriptions) for each in pages] == [2, 2, 1]
    assert {each for page in pages for each in page.subscriptions} == names


def test_each_changeable_field_changes_alone(world: World) -> None:
    world.publisher.create_topic(request={"name": world.topic(), "labels": {"a": "1"}})
    kept = {"message_retention_duration": {"seconds": 3600}}
    assert updated(world, ["message_retention_duration"], labels={"b": "2"}, **kept) == got(world)
    assert dict(got(world).labels) == {"a": "1"}
    assert got(world).message_retention_duration.total_seconds() == 3600
    assert dict(updated(world, ["labels"], labels={"b": "2"}).labels) == {"b": "2"}
    assert got(world).message_retention_duration.total_seconds() == 3600
    assert not updated(world, ["labels"]).labels
    cleared = updated(world, ["message_retention_duration"])
    assert not types.Topic.pb(cleared).HasField("message_retention_duration")
    assert cleared == got(world)


@pytest.mark.parametrize(
    ("paths", "text"),
    [
        ([], "The update_mask in the UpdateTopicRequest must be set, and must contain a non-empty paths list."),
        (
            ["name"],
            "Invalid update_mask provided in the UpdateTopicRequest: the 'name' field in the Topic is not mutable.",
        ),
        (
            ["labels", "state"],
            "Invalid update_mask provided in the UpdateTopicRequest: the 'state' field in the Topic is not mutable.",
        ),
        (
            ["labels", "color"],
            "Invalid update_mask provided in the UpdateTopicRequest: 'color' is not a known Topic field.",
        ),
        (["labels", "messageRetentionDuration"], "'messageRetentionDuration' is not a known Topic field."),
        (["labels", "labels.a"], "Invalid update_mask provided"),
        (["labels", "message_retention_duration.minutes"], "Invalid update_mask provided"),
        (["labels", ""], "Invalid update_mask provided"),
    ],
)
def test_a_bad_mask_changes_nothing(world: World, paths: list[str], text: str) -> None:
    world.publisher.create_topic(request={"name": world.topic(), "labels": {"a": "1"}})
    topic = types.Topic(name=world.topic(), labels={"b": "2"})
    mask = field_mask_pb2.FieldMask(paths=paths)
    request = types.UpdateTopicRequest.pb()(topic=types.Topic.pb(topic), update_mask=mask)
    code, said = refused(world.channel, UPDATE, request)
    assert code == "INVALID_ARGUMENT"
    assert text in said
    assert dict(got(world).labels) == {"a": "1"}


REFUSED: list[tuple[str, Mapping[str, Any]]] = [
    ("message_storage_policy", {"allowed_persistence_regions": ["europe-west1"]}),
    ("kms_key_name", {}),
    ("ingestion_data_source_settings", {"cloud_storage": {"bucket": "b"}}),
    ("message_transforms", {}),
]


@pytest.mark.parametrize("field", [name for name, _ in REFUSED])
def test_what_is_not_there_is_refused_by_name(world: World, field: str) -> None:
    value: Any = dict(REFUSED)[field]
    if field == "kms_key_name":
        value = "projects/p/locations/l/keyRings/r/cryptoKeys/k"
    if field == "message_transforms":
        value = [{"javascript_udf": {"function_name": "f", "code": "x"}}]
    with pytest.raises(MethodNotImplemented, match=f"The field {field} is not supported"):
        world.publisher.create_topic(request={"name": world.topic(), field: value})
    with pytest.raises(NotFound):
        got(world)


def test_a_topic_is_made_once(world: World) -> None:
    world.publisher.create_topic(request={"name": world.topic()})
    with pytest.raises(AlreadyExists) as error:
        world.publisher.create_topic(request={"name": world.topic()})
    assert error.value.message == "Resource already exists in the project (resource=topic)."


@pytest.mark.parametrize(
    "leaf", ["ab", "1abc", "-abc", "goog-topic", "Google", "a" * 256, "with.dot", "a~b", "a+b", "a%20", "umläut", ""]
)
def test_a_new_topic_has_a_name_of_the_rule(world: World, leaf: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        world.publisher.create_topic(request={"name": world.topic(leaf)})
    assert error.value.message.startswith(f"Invalid resource name given (name={world.topic(leaf)}). Refer to ")


def test_names_of_the_least_and_the_most_characters_are_taken(world: World) -> None:
    for leaf in ("abc", "a" * 255, "A-b_9"):
        assert world.publisher.create_topic(request={"name": world.topic(leaf)}).name == world.topic(leaf)


def test_a_topic_with_a_shorter_name_of_the_http_api_is_read(world: World) -> None:
    world.publisher.create_topic(request={"name": world.topic()})
    world.http("PUT", "/topics/1")
    assert world.publisher.get_topic(request={"topic": world.topic("1")}).name == world.topic("1")


@pytest.mark.parametrize(
    "labels",
    [{"A": "b"}, {"1a": "b"}, {"a": "B"}, {"a": "b c"}, {"": "b"}, {"a" * 64: "b"}, {"a": "b" * 64}, {"-a": ""}],
)
def test_labels_are_of_the_rule(world: World, labels: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument, match="^400 Invalid labels: "):
        world.publisher.create_topic(request={"name": world.topic(), "labels": labels})


def test_there_are_64_labels_at_most(world: World) -> None:
    labels = {f"label-{n}": "x" * 63 for n in range(64)}
    assert dict(world.publisher.create_topic(request={"name": world.topic(), "labels": labels}).labels) == labels
    with pytest.raises(InvalidArgument, match="Invalid labels"):
        updated(world, ["labels"], labels={**labels, "one-more": ""})
    assert dict(got(world).labels) == labels


@pytest.mark.parametrize("seconds", [0, 599, 2_678_401, -1])
def test_retention_is_within_its_limits(world: World, seconds: int) -> None:
    with pytest.raises(InvalidArgument, match="The value for message retention duration is out of bounds"):
        world.publisher.create_topic(
            request={"name": world.topic(), "message_retention_duration": {"seconds": seconds}}
        )


def test_the_ends_of_retention_are_taken(world: World) -> None:
    world.publisher.create_topic(request={"name": world.topic()})
    for seconds in (600, 2_678_400):
        kept = {"message_retention_duration": {"seconds": seconds}}
        shown = updated(world, ["message_retention_duration"], **kept)
        assert shown.message_retention_duration.total_seconds() == seconds


def test_a_deleted_topic_leaves_its_subscriptions(world: World) -> None:
    topic, subscription = world.made()
    world.publisher.delete_topic(request={"topic": topic})
    with pytest.raises(NotFound) as error:
        got(world)
    assert error.value.message == "Resource not found (resource=topic)."
    assert world.subscriber.get_subscription(request={"subscription": subscription}).topic == "_deleted-topic_"
    with pytest.raises(FailedPrecondition):
        world.pulled(subscription)
    with pytest.raises(NotFound):
        world.publisher.publish(topic, b"x", retry=None).result(20)
    world.subscriber.delete_subscription(request={"subscription": subscription})
