"""Google's client administers snapshots, and moves subscriptions to times and to them."""

import datetime
import time

import pytest
from google.api_core.exceptions import InvalidArgument, NotFound
from google.pubsub_v1 import types

from tests.pubsub.conftest import World


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


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


def test_a_snapshot_brings_back_what_was_not_acknowledged_and_what_came_since(world: World) -> None:
    world.made()
    world.publish(b"one", b"two", b"three")
    assert acknowledge(world, 1) == [b"one"]
    snapshot(world)
    assert acknowledge(world) == [b"two", b"three"]
    world.publish(b"four")
    assert acknowledge(world) == [b"four"]
    seek(world, snapshot=world.snapshot())
    assert sorted(acknowledge(world)) == [b"four", b"three", b"two"]


def test_a_seek_to_a_time_delivers_what_was_published_then_or_later(world: World) -> None:
    world.made(retain_acked_messages=True)
    world.publish(b"before")
    time.sleep(0.01)
    moment = now()
    time.sleep(0.01)
    world.publish(b"after")
    assert acknowledge(world) == [b"before", b"after"]
    seek(world, time=moment)
    assert acknowledge(world) == [b"after"]
    seek(world, time=datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC))
    assert acknowledge(world) == [b"before", b"after"]
    world.publish(b"more")
    seek(world, time=now() + datetime.timedelta(days=1))
    assert acknowledge(world) == []
    world.publish(b"later")
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
    world.publish(b"x")
    old = world.pulled(world.subscription())[0].ack_id
    seek(world, time=datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC))
    with pytest.raises(InvalidArgument) as error:
        world.subscriber.acknowledge(request={"subscription": world.subscription(), "ack_ids": [old]})
    assert error.value.details[0].reason == "EXACTLY_ONCE_ACKID_FAILURE"
    assert acknowledge(world) == [b"x"]
