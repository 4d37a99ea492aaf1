"""Google's client administers subscriptions."""

import re
from typing import Any

import pytest
from google.api_core.exceptions import FailedPrecondition, GoogleAPICallError, InvalidArgument, NotFound
from google.pubsub_v1 import types

from tests.pubsub.conftest import World
from tests.pubsub.streams import ask

DAY = 86_400


def updated(world: World, paths: list[str], **fields: object) -> types.Subscription:
    subscription = {"name": world.subscription(), **fields}
    request = {"subscription": subscription, "update_mask": {"paths": paths}}
    return world.subscriber.update_subscription(request=request)


def got(world: World) -> types.Subscription:
    return world.subscriber.get_subscription(request={"subscription": world.subscription()})


def create(world: World, **options: object) -> types.Subscription:
    request = {"name": world.subscription(), "topic": world.topic(), **options}
    return world.subscriber.create_subscription(request=request)


@pytest.fixture
def topic(world: World) -> str:
    return str(world.publisher.create_topic(request={"name": world.topic()}).name)


def test_a_subscription_without_options_has_the_defaults_in_every_answer(world: World, topic: str) -> None:
    made = create(world)
    assert made == got(world)
    listed = list(world.subscriber.list_subscriptions(request={"project": f"projects/{world.project}"}))
    assert listed == [made]
    assert updated(world, ["labels"]) == made
    plain = types.Subscription.pb(made)
    assert (plain.topic, plain.ack_deadline_seconds) == (topic, 10)
    assert (plain.message_retention_duration.seconds, plain.expiration_policy.ttl.seconds) == (7 * DAY, 31 * DAY)
    assert plain.HasField("push_config")
    assert plain.push_config.push_endpoint == ""
    assert not plain.HasField("dead_letter_policy")
    assert not plain.HasField("retry_policy")
    assert (plain.filter, plain.enable_message_ordering, plain.enable_exactly_once_delivery) == ("", False, False)
    assert (plain.retain_acked_messages, plain.detached) == (False, False)
    assert made.state == types.Subscription.State.ACTIVE


def test_a_subscription_is_shown_as_it_was_made(world: World, topic: str) -> None:
    letters = world.topic("letters")
    world.publisher.create_topic(request={"name": letters})
    wanted: dict[str, Any] = {
        "ack_deadline_seconds": 600,
        "retain_acked_messages": True,
        "message_retention_duration": {"seconds": 600},
        "labels": {"a": "b"},
        "enable_message_ordering": True,
        "expiration_policy": {"ttl": {"seconds": DAY}},
        "filter": 'attributes:kind AND attributes.kind != "x"',
        "dead_letter_policy": {"dead_letter_topic": letters},
        "retry_policy": {"minimum_backoff": {"seconds": 1, "nanos": 500_000_000}},
        "enable_exactly_once_delivery": True,
    }
    made = create(world, **wanted)
    assert made == got(world)
    wanted["dead_letter_policy"]["max_delivery_attempts"] = 5
    wanted["retry_policy"]["maximum_backoff"] = {"seconds": 600}
    for name, value in wanted.items():
        assert getattr(made, name) == getattr(types.Subscription({name: value}), name), name


def test_empty_policies_have_their_defaults_and_without_a_ttl_nothing_ends_a_subscription(world: World) -> None:
    world.publisher.create_topic(request={"name": world.topic(), "message_retention_duration": {"seconds": 900}})
    made = create(world, expiration_policy={}, retry_policy={})
    plain = types.Subscription.pb(made)
    assert plain.HasField("expiration_policy")
    assert not plain.expiration_policy.HasField("ttl")
    assert made == got(world)
    policy = made.retry_policy
    assert (policy.minimum_backoff.total_seconds(), policy.maximum_backoff.total_seconds()) == (10, 600)
    assert made.topic_message_retention_duration.total_seconds() == 900


def test_messages_are_not_kept_longer_than_the_subscription_by_default(world: World, topic: str) -> None:
    assert create(world, expiration_policy={"ttl": {"seconds": DAY}}).message_retention_duration.days == 1


def test_a_subscription_without_a_name_gets_one(world: World, topic: str) -> None:
    plain: Any = types.Subscription.pb(types.Subscription(topic=topic))
    made = type(plain).FromString(ask(world.channel, "/google.pubsub.v1.Subscriber/CreateSubscription", plain))
    assert made.name.startswith(f"projects/{world.project}/subscriptions/")
    assert world.subscriber.get_subscription(request={"subscription": made.name}).topic == topic


CHANGES: dict[str, Any] = {
    "ack_deadline_seconds": 20,
    "retain_acked_messages": True,
    "message_retention_duration": {"seconds": 3600},
    "labels": {"c": "d"},
    "expiration_policy": {"ttl": {"seconds": 2 * DAY}},
    "retry_policy": {"minimum_backoff": {"seconds": 1}, "maximum_backoff": {"seconds": 2}},
    "enable_exactly_once_delivery": True,
}


@pytest.mark.parametrize("field", CHANGES)
def test_each_changeable_field_changes_alone_and_goes_back_to_its_default(world: World, topic: str, field: str) -> None:
    before = create(world)
    shown = updated(world, [field], **CHANGES)
    assert shown == got(world)
    wanted = types.Subscription(before)
    setattr(wanted, field, CHANGES[field])
    assert shown == wanted
    cleared = updated(world, [field])
    if field == "expiration_policy":
        before = types.Subscription(before)
        assert cleared.expiration_policy.ttl.days == 31
    assert cleared == before


def test_dead_letters_are_turned_on_and_off(world: World, topic: str) -> None:
    before = create(world)
    letters = world.topic("letters")
    world.publisher.create_topic(request={"name": letters})
    policy = {"dead_letter_topic": letters, "max_delivery_attempts": 7}
    shown = updated(world, ["dead_letter_policy"], dead_letter_policy=policy)
    assert shown.dead_letter_policy.max_delivery_attempts == 7
    nine = {"max_delivery_attempts": 9}
    nested = updated(world, ["dead_letter_policy.max_delivery_attempts"], dead_letter_policy=nine)
    assert nested.dead_letter_policy.max_delivery_attempts == 9
    assert nested.dead_letter_policy.dead_letter_topic == letters
    assert updated(world, ["dead_letter_policy"]) == before


def test_a_nested_path_changes_what_it_names(world: World, topic: str) -> None:
    create(world, retry_policy={"minimum_backoff": {"seconds": 3}, "maximum_backoff": {"seconds": 30}})
    policy = {"minimum_backoff": {"seconds": 5}, "maximum_backoff": {"seconds": 50}}
    shown = updated(world, ["retry_policy.minimum_backoff"], retry_policy=policy)
    assert shown.retry_policy.minimum_backoff.total_seconds() == 5
    assert shown.retry_policy.maximum_backoff.total_seconds() == 30
    ttl = {"expiration_policy": {"ttl": {"seconds": 5 * DAY}}}
    assert updated(world, ["expiration_policy.ttl"], **ttl).expiration_policy.ttl.days == 5
    never = updated(world, ["expiration_policy.ttl"])
    assert not types.Subscription.pb(never).expiration_policy.HasField("ttl")
    assert never == got(world)


DEADLINE = "Invalid ack deadline given (ack_deadline={}). The ack deadline must be between 10 and 600"
RETENTION = "The value for message retention duration is out of"
TTL = "The value for expiration duration is too small"
BACKOFF = "The fields retry_policy.minimum_backoff and retry_policy.maximum_backoff must be between 0s and 600s."
ORDER = "retry_policy.minimum_backoff (10s if absent) must not be more than retry_policy.maximum_backoff."
BAD: list[tuple[dict[str, Any], str]] = [
    *(({"ack_deadline_seconds": each}, DEADLINE.format(each)) for each in (-1, 9, 601)),
    *(({"message_retention_duration": {"seconds": each}}, RETENTION) for each in (0, 599, 2_678_401)),
    *(({"expiration_policy": {"ttl": {"seconds": each}}}, TTL) for each in (0, DAY - 1)),
    ({"retry_policy": {"minimum_backoff": {"seconds": -1}}}, BACKOFF),
    ({"retry_policy": {"maximum_backoff": {"seconds": 601}}}, BACKOFF),
    ({"retry_policy": {"minimum_backoff": {"seconds": 9}, "maximum_backoff": {"seconds": 8}}}, ORDER),
    ({"labels": {"A": ""}}, "Invalid labels: "),
    ({"filter": "attributes.a = 'x'"}, "Invalid filter"),
    ({"filter": "attributes:a AND attributes:b OR attributes:c"}, "Invalid filter"),
    ({"filter": f'attributes.a = "{"x" * 250}"'}, "Invalid filter: it has more than 256 bytes"),
    ({"name": "subscriptions/x"}, "Invalid resource name given (name=subscriptions/x). Refer to "),
    ({"topic": "topics/x"}, "Invalid resource name given (name=topics/x). Refer to "),
    ({"topic": "projects/elsewhere/topics/topic"}, "must be in the same project"),
]


@pytest.mark.parametrize(("options", "text"), BAD, ids=str)
def test_what_is_outside_its_limits_is_refused_with_a_text_that_says_so(
    world: World, topic: str, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidArgument) as error:
        create(world, **options)
    assert text in error.value.message
    assert not re.search("[a-z][A-Z]|docs/", error.value.message), "fields are spelled as the protocol does"
    with pytest.raises(NotFound):
        got(world)


def test_a_subscription_has_dead_letters_in_another_topic(world: World, topic: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        create(world, dead_letter_policy={"dead_letter_topic": topic})
    assert error.value.message == (
        "The field dead_letter_policy.dead_letter_topic must not be the subscription's own topic."
    )


@pytest.mark.parametrize("attempts", [-1, 1, 4, 101])
def test_dead_letters_have_5_to_100_attempts(world: World, topic: str, attempts: int) -> None:
    letters = world.topic("letters")
    world.publisher.create_topic(request={"name": letters})
    policy = {"dead_letter_topic": letters, "max_delivery_attempts": attempts}
    size = "large" if attempts > 100 else "small"
    with pytest.raises(InvalidArgument, match=f"The value for max_delivery_attempts is too {size}"):
        create(world, dead_letter_policy=policy)


def test_a_topic_that_is_not_there_is_named(world: World, topic: str) -> None:
    absent = world.topic("absent")
    for options in ({"topic": absent}, {"dead_letter_policy": {"dead_letter_topic": absent}}):
        with pytest.raises(NotFound) as error:
            create(world, **options)
        assert error.value.message == "Resource not found (resource=absent)."


def test_a_detached_subscription_is_shown_so_and_gives_nothing(world: World, topic: str) -> None:
    create(world)
    other = world.subscription("other")
    world.subscriber.create_subscription(request={"name": other, "topic": topic})
    world.publisher.detach_subscription(request={"subscription": world.subscription()})
    assert got(world).detached
    assert list(world.publisher.list_topic_subscriptions(request={"topic": topic})) == [other]
    with pytest.raises(FailedPrecondition) as error:
        world.pulled(world.subscription())
    assert error.value.message == f"Subscription {world.subscription()} is detached."
    world.subscriber.delete_subscription(request={"subscription": world.subscription()})
    with pytest.raises(NotFound):
        got(world)


def test_an_ordered_subscription_of_ams_is_shown_and_refuses_consumers_with_why(world: World, topic: str) -> None:
    world.http("PUT", "/subscriptions/subscription", {"topic": topic})
    assert got(world).topic == topic
    assert updated(world, ["labels"], labels={"a": "b"}) == got(world)
    with pytest.raises(InvalidArgument, match="An ordered subscription has labels and an ack deadline only"):
        updated(world, ["retry_policy"], retry_policy={})
    assert dict(got(world).labels) == {"a": "b"}
    calls = (
        lambda: world.pulled(world.subscription()),
        lambda: world.acknowledge("1-2"),
        lambda: world.modify(0, "1-2"),
    )
    for each in calls:
        with pytest.raises(FailedPrecondition, match="ordered one of AMS.*AMS API"):
            each()
    with pytest.raises(GoogleAPICallError) as error:
        world.subscriber.subscribe(world.subscription(), print).result(20)
    assert "ordered one of AMS" in str(error.value)


def test_what_one_api_makes_the_other_shows(world: World, topic: str) -> None:
    made = {"topic": topic, "type": "parallel", "enableMessageOrdering": True}
    world.http("PUT", "/subscriptions/subscription", made)
    assert got(world).enable_message_ordering
    assert updated(world, ["ack_deadline_seconds"], ack_deadline_seconds=33).ack_deadline_seconds == 33
    assert world.http("GET", "/subscriptions/subscription")["ackDeadlineSeconds"] == 33
