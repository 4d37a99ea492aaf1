"""Administration of subscriptions: HTTP contract 9, line by line, and 17.2 (A5, A7, A8)."""

import asyncio

import pytest

from ams.access.admission import Caller
from ams.core.errors import AlreadyExists, Conflict, InvalidInput, NotAllowed, NotFound
from ams.core.messages import message
from ams.core.names import Offset, SubscriptionName, TopicName
from ams.core.push_config import AskedPush
from ams.storage.registry.records import PageRequest, Subscription
from tests.support.administration import admitted, make_user
from tests.support.engines import Engines

S, T = SubscriptionName("S"), TopicName("T")
REFERENCE = "projects/P/topics/T"
PUSH = AskedPush(endpoint="https://receiver.example/in")
BAD_DEADLINE = "Invalid ackDeadlineSeconds(needs value between 0 and 600) Arguments"


@pytest.fixture
async def engines(engines: Engines) -> Engines:
    await engines.topics.create(await engines.caller(), T)
    return engines


async def test_a_subscription_is_made_as_asked(engines: Engines, caller: Caller) -> None:
    made = await engines.subscriptions.create(caller, S, REFERENCE, 30)

    assert (made.name, made.topic, made.ack_deadline_seconds, made.push) == ("S", "T", 30, None)
    assert made.created_on == engines.clock.wall()
    assert await engines.subscriptions.show(caller, S) == made


async def test_without_a_deadline_it_is_ten_seconds(engines: Engines, caller: Caller) -> None:
    assert (await engines.subscriptions.create(caller, S, REFERENCE)).ack_deadline_seconds == 10


async def test_it_starts_at_the_present_end_of_the_topic(engines: Engines, caller: Caller) -> None:
    topic = await engines.topics.show(caller, T)
    await engines.log.append(topic.id, [message("aGk="), message("aG8=")])

    made = await engines.subscriptions.create(caller, S, REFERENCE)

    assert (await engines.cursors.position(made.id, topic.id)).offset == 2


@pytest.mark.parametrize("seconds", [-1, 601, 10**12])
async def test_a_deadline_out_of_range_is_told_first(engines: Engines, caller: Caller, seconds: int) -> None:
    """A8."""
    await engines.subscriptions.create(caller, S, REFERENCE)

    with pytest.raises(InvalidInput) as creating:
        await engines.subscriptions.create(caller, S, "nonsense", seconds, push=PUSH)
    with pytest.raises(InvalidInput) as modifying:
        await engines.subscriptions.modify_ack_deadline(caller, SubscriptionName("unknown"), seconds)

    assert creating.value.message == modifying.value.message == BAD_DEADLINE


@pytest.mark.parametrize(
    "reference", ["", "T", "/projects/P/topics/T", "projects/other/topics/T", "projects/P/subscriptions/T"]
)
async def test_a_bad_reference_is_told_before_all_else(engines: Engines, caller: Caller, reference: str) -> None:
    """A7."""
    with pytest.raises(InvalidInput, match=r"^Invalid Topic name$"):
        await engines.subscriptions.create(caller, S, reference, push=PUSH)


async def test_the_other_checks_come_in_their_order(engines: Engines, caller: Caller) -> None:
    await engines.subscriptions.create(caller, S, REFERENCE)

    with pytest.raises(NotFound, match=r"^Topic doesn't exist$"):
        await engines.subscriptions.create(caller, S, "projects/P/topics/unknown", push=PUSH)
    with pytest.raises(Conflict, match=r"^Push functionality is currently disabled$"):
        await engines.subscriptions.create(caller, S, REFERENCE, push=PUSH)
    with pytest.raises(AlreadyExists, match=r"^Subscription already exists$"):
        await engines.subscriptions.create(caller, S, REFERENCE)


async def test_one_of_many_parallel_makers_wins_and_one_cursor_stays(engines: Engines, caller: Caller) -> None:
    """U11."""
    makers = [engines.subscriptions.create(caller, S, REFERENCE) for _ in range(10)]

    outcomes = await asyncio.gather(*makers, return_exceptions=True)

    (winner,) = [outcome for outcome in outcomes if isinstance(outcome, Subscription)]
    assert sum(isinstance(outcome, AlreadyExists) for outcome in outcomes) == 9
    assert await engines.cursors.subscriptions() == {winner.id}


async def test_a_topic_deleted_meanwhile_is_not_found(engines: Engines, caller: Caller) -> None:
    topic = await engines.topics.show(caller, T)
    await engines.log.drop(topic.id)

    with pytest.raises(NotFound, match=r"^Topic doesn't exist$"):
        await engines.subscriptions.create(caller, S, REFERENCE)

    assert await engines.cursors.subscriptions() == set()


async def test_what_is_not_there_is_not_found(engines: Engines, caller: Caller) -> None:
    for call in (engines.subscriptions.show, engines.subscriptions.delete, engines.subscriptions.access_list):
        with pytest.raises(NotFound, match=r"^Subscription doesn't exist$"):
            await call(caller, S)
    with pytest.raises(NotFound, match=r"^Subscription doesn't exist$"):
        await engines.subscriptions.modify_ack_deadline(caller, S, 10)
    with pytest.raises(NotFound, match=r"^Subscription doesn't exist$"):
        await engines.subscriptions.set_access_list(caller, S, [])


async def test_a_deleted_subscription_takes_its_cursor(engines: Engines, caller: Caller) -> None:
    await engines.subscriptions.create(caller, S, REFERENCE)

    await engines.subscriptions.delete(caller, S)

    assert await engines.cursors.subscriptions() == set()
    with pytest.raises(NotFound):
        await engines.subscriptions.show(caller, S)


async def test_a_subscription_without_its_topic_still_names_it(engines: Engines, caller: Caller) -> None:
    """Clients A12: the topic is deleted first, then the subscription is asked for and deleted."""
    await engines.subscriptions.create(caller, S, REFERENCE)
    await engines.topics.delete(caller, T)

    assert (await engines.subscriptions.show(caller, S)).topic == "T"
    await engines.subscriptions.delete(caller, S)


@pytest.mark.parametrize("seconds", [0, 1, 600])
async def test_a_deadline_is_changed(engines: Engines, caller: Caller, seconds: int) -> None:
    await engines.subscriptions.create(caller, S, REFERENCE)

    await engines.subscriptions.modify_ack_deadline(caller, S, seconds)

    assert (await engines.subscriptions.show(caller, S)).ack_deadline_seconds == seconds


async def test_a_consumer_changes_the_deadline_only_where_it_is_listed(engines: Engines, caller: Caller) -> None:
    """A5."""
    await engines.subscriptions.create(caller, S, REFERENCE)
    anna = await make_user(engines.registry, "anna", {caller.here.id: ("consumer",)})
    consumer = await admitted(engines.registry, "subscriptions:modifyAckDeadline", anna, "P")

    with pytest.raises(NotAllowed):
        await engines.subscriptions.modify_ack_deadline(consumer, S, 20)
    await engines.subscriptions.set_access_list(caller, S, ["anna"])
    await engines.subscriptions.modify_ack_deadline(consumer, S, 20)

    assert (await engines.subscriptions.show(caller, S)).ack_deadline_seconds == 20


async def test_a_fresh_subscription_has_an_empty_access_list(engines: Engines, caller: Caller) -> None:
    """Clients A23."""
    await engines.subscriptions.create(caller, S, REFERENCE)

    assert await engines.subscriptions.access_list(caller, S) == []


async def test_an_access_list_is_replaced_in_the_order_given(engines: Engines, caller: Caller) -> None:
    await engines.subscriptions.create(caller, S, REFERENCE)
    for name in ("a", "b"):
        await make_user(engines.registry, name, {caller.here.id: ("consumer",)})

    await engines.subscriptions.set_access_list(caller, S, ["b", "a"])

    assert await engines.subscriptions.access_list(caller, S) == ["b", "a"]
    with pytest.raises(NotFound, match=r"^User\(s\): x, y do not exist$"):
        await engines.subscriptions.set_access_list(caller, S, ["x", "y"])


async def test_lists_come_newest_first_and_a_consumer_sees_its_own(engines: Engines, caller: Caller) -> None:
    anna = await make_user(engines.registry, "anna", {caller.here.id: ("consumer",)})
    for name in ("a", "b", "c"):
        await engines.subscriptions.create(caller, SubscriptionName(name), REFERENCE)
    await engines.subscriptions.set_access_list(caller, SubscriptionName("b"), ["anna"])
    consumer = await admitted(engines.registry, "subscriptions:list", anna, "P")

    first = await engines.subscriptions.list(caller, PageRequest(2))
    second = await engines.subscriptions.list(caller, PageRequest(2, first.next_token))
    hers = await engines.subscriptions.list(consumer, PageRequest())

    assert [each.name for each in (*first.items, *second.items)] == ["c", "b", "a"]
    assert [each.name for each in hers.items] == ["b"]
    assert (first.total, hers.total) == (3, 1)


async def test_a_subscription_whose_cursor_was_lost_begins_again_at_the_oldest_message(
    engines: Engines, caller: Caller
) -> None:
    made = await engines.subscriptions.create(caller, S, REFERENCE)
    topic = await engines.registry.topics.find(caller.here.id, made.topic)
    assert topic is not None
    await engines.log.append(topic.id, [message("aGk=")] * 3)
    await engines.cursors.seek(made.id, topic.id, Offset(3))
    await engines.cursors.drop(made.id)

    assert await engines.subscriptions.give_cursors() == 1

    assert (await engines.cursors.position(made.id, topic.id)).offset == 0
    assert await engines.subscriptions.give_cursors() == 0


async def test_labels_are_kept_and_replaced(engines: Engines, caller: Caller) -> None:
    made = await engines.subscriptions.create(caller, S, REFERENCE, labels={"a": "1"})
    assert made.labels == {"a": "1"}

    changed = await engines.subscriptions.set_labels(caller, S, {"b": "2"})

    assert (changed.id, changed.labels) == (made.id, {"b": "2"})
    assert await engines.subscriptions.show(caller, S) == changed
    with pytest.raises(NotFound, match=r"^Subscription doesn't exist$"):
        await engines.subscriptions.set_labels(caller, SubscriptionName("other"), {})
