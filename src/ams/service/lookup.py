"""Look up what a request names, or raise the error that answers it when it is not there."""

import contextlib
from collections.abc import Iterator

from ams.access.admission import Caller
from ams.core.errors import Conflict, InvalidInput, SubscriptionGone, TopicGone
from ams.core.names import SubscriptionName, TopicName, is_name, topic_reference
from ams.storage.registry.records import Subscription, Topic
from ams.storage.registry.registry import Registry

NO_TOPIC = "Subscription's topic doesn't exist"
OWN_TOPIC = "A subscription's own topic cannot be its deadLetterTopic"


async def find_topic(registry: Registry, caller: Caller, name: TopicName) -> Topic:
    """Return a topic of the caller's project; raise `TopicGone` when there is none."""
    topic = await registry.topics.find(caller.here.id, name)
    if topic is None:
        raise TopicGone
    return topic


async def find_subscription(registry: Registry, caller: Caller, name: SubscriptionName) -> Subscription:
    """Return a subscription of the caller's project; raise `SubscriptionGone` when there is none."""
    subscription = await registry.subscriptions.find(caller.here.id, name)
    if subscription is None:
        raise SubscriptionGone
    return subscription


async def topic_of(registry: Registry, subscription: Subscription) -> Topic:
    """Return the topic a subscription is on now; raise `Conflict` when it is gone.

    To be asked right before a cursor is: a topic created again under its name has another identity, and a cursor must
    never meet the old one after the new (contract 17.2, A9).
    """
    topic = await registry.topics.find(subscription.project_id, subscription.topic)
    if topic is None:
        raise Conflict(NO_TOPIC)
    return topic


async def find_dead_letter_topic(registry: Registry, caller: Caller, topic: TopicName, asked: str) -> TopicName:
    """Return the name of the topic that takes what cannot be delivered of a subscription to `topic`.

    `asked` is a name, or a reference `projects/P/topics/T` with or without a leading slash, of the caller's project.
    Raises `InvalidInput` for what is neither, and for the subscription's own topic; `TopicGone` when there is none.
    """
    name = TopicName(asked) if is_name(asked) else topic_reference(caller.here.name, asked.removeprefix("/"))
    if name == topic:
        raise InvalidInput(OWN_TOPIC)
    return (await find_topic(registry, caller, name)).name


@contextlib.contextmanager
def no_topic_is_a_conflict() -> Iterator[None]:
    """Tell a topic that went while it was read as contract 10.3 does."""
    try:
        yield
    except TopicGone:
        raise Conflict(NO_TOPIC) from None
