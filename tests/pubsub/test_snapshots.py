"""Google's client administers snapshots, and moves subscriptions to times and to them."""

import datetime
import time

import pytest
from google.api_core.exceptions import AlreadyExists, FailedPrecondition, GoogleAPICallError, InvalidArgument, NotFound
from google.protobuf import field_mask_pb2
from google.pubsub_v1 import types

from tests.pubsub.conftest import World
from tests.pubsub.streams import refused

UPDATE = "/google.pubsub.v1.Subscriber/UpdateSnapshot"


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def publish(world: World, *data: bytes) -> None:
    for each in data:
        world.publisher.publish(world.topic(), each).result(20)


def acknowledge(world: World, most: int = 100) -> list[bytes]:
    """Pull, and acknowledge what came; return it."""
    found = world.pulled(world.subscription(), most)
    if found:
        ids = [each.ack_id for each in found]
        world.subscriber.acknowledge(request={"subscription": world.subscription(), "ack_ids": ids})
    return [each.message.data for each in found]


def snapshot(world: World, **options: object) -> types.Snapshot:
    request = {"name": world.snapshot(), "subscription": world.subscription(), **options}
    return world.subscriber.create_snapshot(request=request)


def got(world: World) -> types.Snapshot:
    return world.subscriber.get_snapshot(request={"snapshot": world.snapshot()})


def seek(world: World, **target: object) -> None:
    world.subscriber.seek(request={"subscription": world.subscription(), **target})


def test_a_snapshot_is_shown_as_it_was_made(world: World) -> None:
    topic, _ = world.made()
    before = now()
    made = snapshot(world, labels={"a": "b"})
    assert made == got(world)
    assert made.topic == topic
    assert dict(made.labels) == {"a": "b"}
    assert datetime.timedelta(days=7) <= made.expire_time - before <= datetime.timedelta(days=7, minutes=5)
    assert list(world.subscriber.list_snapshots(request={"project": f"projects/{world.project}"})) == [made]
    assert list(world.publisher.list_topic_snapshots(request={"topic": topic})) == [made.name]


def test_lists_come_in_pages_to_their_end(world: World) -> None:
    topic, subscription = world.made()
    names = {world.snapshot(f"snap-{n}") for n in range(5)}
    for each in names:
        world.subscriber.create_snapshot(request={"name": each, "subscription": subscription})
    request = {"project": f"projects/{world.project}", "page_size": 2}
    pages = list(world.subscriber.list_snapshots(request=request).pages)
    assert [len(each.snapshots) for each in pages] == [2, 2, 1]
    assert {each.name for page in pages for each in page.snapshots} == names
    of_topic = list(world.publisher.list_topic_snapshots(request={"topic": topic, "page_size": 2}).pages)
    assert {each for page in of_topic for each in page.snapshots} == names


def test_labels_and_the_end_of_a_snapshot_change(world: World) -> None:
    world.made()
    before = snapshot(world, labels={"a": "b"})
    until = (now() + datetime.timedelta(days=1)).replace(microsecond=0)
    wanted = {"name": world.snapshot(), "labels": {"c": "d"}, "expire_time": until}
    later = world.subscriber.update_snapshot(request={"snapshot": wanted, "update_mask": {"paths": ["expire_time"]}})
    assert later == got(world)
    assert (later.expire_time, dict(later.labels)) == (until, {"a": "b"})
    labeled = world.subscriber.update_snapshot(request={"snapshot": wanted, "update_mask": {"paths": ["labels"]}})
    assert dict(labeled.labels) == {"c": "d"}
    assert labeled.topic == before.topic


@pytest.mark.parametrize(
    ("paths", "text"),
    [
        ([], "The update_mask in the UpdateSnapshotRequest must be set, and must contain a non-empty paths list."),
        (["labels", "topic"], "the 'topic' field in the Snapshot is not mutable."),
        (["labels", "name"], "the 'name' field in the Snapshot is not mutable."),
        (["labels", "colour"], "'colour' is not a known Snapshot field."),
        (["labels", "expire_time"], "A snapshot ends later than now, and within seven days"),
        (["labels", "labels.a"], "Invalid update_mask provided"),
    ],
)
def test_a_bad_change_changes_nothing(world: World, paths: list[str], text: str) -> None:
    world.made()
    before = snapshot(world)
    asked = types.Snapshot(name=world.snapshot(), labels={"c": "d"}, expire_time=now() + datetime.timedelta(days=8))
    mask = field_mask_pb2.FieldMask(paths=paths)
    request = types.UpdateSnapshotRequest.pb()(snapshot=types.Snapshot.pb(asked), update_mask=mask)
    code, said = refused(world.channel, UPDATE, request)
    assert code == "INVALID_ARGUMENT"
    assert text in said
    assert got(world) == before


def test_a_snapshot_is_made_once_and_needs_its_subscription(world: World) -> None:
    world.made()
    snapshot(world)
    with pytest.raises(AlreadyExists) as error:
        snapshot(world)
    assert error.value.message == "Resource already exists in the project (resource=snapshot)."
    with pytest.raises(NotFound) as missing:
        world.subscriber.create_snapshot(
            request={"name": world.snapshot("other"), "subscription": world.subscription("absent")}
        )
    assert missing.value.message == "Resource not found (resource=absent)."
    for name in ("snapshots/x", f"projects/{world.project}/snapshots/1"):
        with pytest.raises(InvalidArgument, match="Invalid resource name given"):
            world.subscriber.create_snapshot(request={"name": name, "subscription": world.subscription()})


def test_a_deleted_snapshot_is_gone(world: World) -> None:
    world.made()
    snapshot(world)
    world.subscriber.delete_snapshot(request={"snapshot": world.snapshot()})
    for each in (lambda: got(world), lambda: seek(world, snapshot=world.snapshot())):
        with pytest.raises(NotFound) as error:
            each()
        assert error.value.message == "Resource not found (resource=snapshot)."
    with pytest.raises(NotFound):
        world.subscriber.delete_snapshot(request={"snapshot": world.snapshot()})


def test_a_snapshot_of_a_deleted_subscription_stays(world: World) -> None:
    topic, subscription = world.made()
    made = snapshot(world)
    world.subscriber.delete_subscription(request={"subscription": subscription})
    assert got(world) == made
    publish(world, b"after")
    world.subscriber.create_subscription(request={"name": subscription, "topic": topic})
    seek(world, snapshot=world.snapshot())
    assert acknowledge(world) == [b"after"]


def test_a_snapshot_brings_back_what_was_not_acknowledged_and_what_came_since(world: World) -> None:
    world.made()
    publish(world, b"one", b"two", b"three")
    assert acknowledge(world, 1) == [b"one"]
    snapshot(world)
    assert acknowledge(world) == [b"two", b"three"]
    publish(world, b"four")
    assert acknowledge(world) == [b"four"]
    seek(world, snapshot=world.snapshot())
    assert sorted(acknowledge(world)) == [b"four", b"three", b"two"]


def test_a_snapshot_of_another_topic_is_refused(world: World) -> None:
    world.made()
    snapshot(world)
    world.publisher.create_topic(request={"name": world.topic("other")})
    world.subscriber.create_subscription(request={"name": world.subscription("other"), "topic": world.topic("other")})
    with pytest.raises(FailedPrecondition, match="Snapshot is of another topic"):
        world.subscriber.seek(request={"subscription": world.subscription("other"), "snapshot": world.snapshot()})


def test_a_snapshot_of_a_deleted_topic_shows_that(world: World) -> None:
    topic, _ = world.made()
    snapshot(world)
    world.publisher.delete_topic(request={"topic": topic})
    try:
        shown = got(world).topic
    except GoogleAPICallError as error:
        shown = error.message
    assert shown == "Resource not found (resource=snapshot)."


def test_a_seek_to_a_time_delivers_what_was_published_then_or_later(world: World) -> None:
    world.made(retain_acked_messages=True)
    publish(world, b"before")
    time.sleep(0.01)
    moment = now()
    time.sleep(0.01)
    publish(world, b"after")
    assert acknowledge(world) == [b"before", b"after"]
    seek(world, time=moment)
    assert acknowledge(world) == [b"after"]
    seek(world, time=datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC))
    assert acknowledge(world) == [b"before", b"after"]
    publish(world, b"more")
    seek(world, time=now() + datetime.timedelta(days=1))
    assert acknowledge(world) == []
    publish(world, b"later")
    assert acknowledge(world) == [b"later"]


def test_a_seek_needs_a_target(world: World) -> None:
    world.made()
    with pytest.raises(InvalidArgument):
        seek(world)
    with pytest.raises(NotFound) as error:
        seek(world, snapshot=world.snapshot("absent"))
    assert error.value.message == "Resource not found (resource=absent)."
    with pytest.raises(InvalidArgument, match="Invalid resource name given"):
        seek(world, snapshot="absent")


def test_an_id_of_before_a_seek_counts_no_more(world: World) -> None:
    world.made(enable_exactly_once_delivery=True)
    publish(world, b"x")
    old = world.pulled(world.subscription())[0].ack_id
    seek(world, time=datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC))
    with pytest.raises(InvalidArgument) as error:
        world.subscriber.acknowledge(request={"subscription": world.subscription(), "ack_ids": [old]})
    assert error.value.details[0].reason == "EXACTLY_ONCE_ACKID_FAILURE"
    assert acknowledge(world) == [b"x"]
