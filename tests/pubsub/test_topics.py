"""Google's client administers topics."""

import pytest
from google.api_core.exceptions import FailedPrecondition, InvalidArgument, NotFound
from google.pubsub_v1 import types

from tests.pubsub.conftest import World


def updated(world: World, paths: list[str], **fields: object) -> types.Topic:
    topic = {"name": world.topic(), **fields}
    return world.publisher.update_topic(request={"topic": topic, "update_mask": {"paths": paths}})


def create(world: World, **options: object) -> types.Topic:
    return world.publisher.create_topic(request={"name": world.topic(), **options})


def got(world: World) -> types.Topic:
    return world.publisher.get_topic(request={"topic": world.topic()})


def test_a_topic_is_shown_as_it_was_made(world: World) -> None:
    labels = {"team": "garden", "größe": "l-1_2"}
    asked = {"name": world.topic(), "labels": labels, "message_retention_duration": {"seconds": 86_400}}
    made = world.publisher.create_topic(request=asked)
    assert made == got(world)
    assert (made.name, dict(made.labels)) == (world.topic(), labels)
    assert made.message_retention_duration.total_seconds() == 86_400
    assert made.state == types.Topic.State.ACTIVE


def test_a_topic_without_options_keeps_messages_as_the_project_says(world: World) -> None:
    made = create(world)
    assert made == got(world)
    assert not types.Topic.pb(made).HasField("message_retention_duration")
    assert world.http("GET", "/topics/topic")["name"] == f"/projects/{world.project}/topics/topic"


def test_each_changeable_field_changes_alone(world: World) -> None:
    create(world, labels={"a": "1"})
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
    "leaf", ["ab", "1abc", "-abc", "goog-topic", "Google", "a" * 256, "with.dot", "a~b", "a+b", "a%20", "umläut", ""]
)
def test_a_new_topic_has_a_name_of_the_rule(world: World, leaf: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        world.publisher.create_topic(request={"name": world.topic(leaf)})
    assert error.value.message.startswith(f"Invalid resource name given (name={world.topic(leaf)}). Refer to ")


def test_names_of_the_least_and_the_most_characters_are_taken_and_shorter_ones_of_the_http_api_read(
    world: World,
) -> None:
    for leaf in ("abc", "a" * 255, "A-b_9"):
        assert world.publisher.create_topic(request={"name": world.topic(leaf)}).name == world.topic(leaf)
    world.http("PUT", "/topics/1")
    assert world.publisher.get_topic(request={"topic": world.topic("1")}).name == world.topic("1")


@pytest.mark.parametrize(
    "labels",
    [{"A": "b"}, {"1a": "b"}, {"a": "B"}, {"a": "b c"}, {"": "b"}, {"a" * 64: "b"}, {"a": "b" * 64}, {"-a": ""}],
)
def test_labels_are_of_the_rule(world: World, labels: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument, match="^400 Invalid labels: "):
        create(world, labels=labels)


def test_there_are_64_labels_at_most(world: World) -> None:
    labels = {f"label-{n}": "x" * 63 for n in range(64)}
    assert dict(create(world, labels=labels).labels) == labels
    with pytest.raises(InvalidArgument, match="Invalid labels"):
        updated(world, ["labels"], labels={**labels, "one-more": ""})
    assert dict(got(world).labels) == labels


@pytest.mark.parametrize("seconds", [0, 599, 2_678_401, -1])
def test_retention_is_within_its_limits(world: World, seconds: int) -> None:
    with pytest.raises(InvalidArgument, match="The value for message retention duration is out of bounds"):
        create(world, message_retention_duration={"seconds": seconds})


def test_the_ends_of_retention_are_taken(world: World) -> None:
    create(world)
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
        world.pulled()
    with pytest.raises(NotFound):
        world.publisher.publish(topic, b"x", retry=None).result(20)
    world.subscriber.delete_subscription(request={"subscription": subscription})
