"""Looks up resources by name, or raises the error for the answer."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from ams.access.admission import Caller
from ams.access.permissions import CONSUMER, SELF
from ams.core.errors import Conflict, InvalidInput, NotAllowed, NotFound, SubscriptionGone, TopicGone, refuse_if
from ams.core.names import SnapshotName, SubscriptionName, TopicName, UserName, is_resource_name, topic_reference
from ams.core.parallel_options import ParallelOptions
from ams.core.versions import Precondition
from ams.storage.registry.records import NO_USERS, Snapshot, Subscription, Topic, User
from ams.storage.registry.registry import Registry

NO_USER = "User doesn't exist"
NO_TOPIC = "Subscription's topic doesn't exist"
NOT_PARALLEL = "Subscription is not of type parallel"
NO_SNAPSHOT = "Snapshot doesn't exist"
MAX_NAMES = 100
OWN_TOPIC = "A subscription's own topic cannot be its deadLetterTopic"
R = TypeVar("R", Topic, Subscription)
T = TypeVar("T")


def require_found(result: T | None, error: Exception | type[Exception]) -> T:
    """Return a result; raise the error if it is None or False."""
    if not result:
        raise error
    return result


def without_access_list(resource: R) -> R:
    """Return a resource without its access list, to make its version: the access list has its own version."""
    return replace(resource, authorized=NO_USERS)


def expected_subscription(caller: Caller) -> Precondition:
    """Return the precondition of a change to a subscription, for the versions that its caller sees."""
    return caller.expected.seen_by(lambda found: without_access_list(caller.view_push(found)))


async def find_user(registry: Registry, name: UserName, caller: Caller | None = None) -> User:
    """Return a user. Raises `NotFound`, also if `caller` asks for itself by a former name."""
    user = require_found(await registry.users.by_name(name), NotFound(NO_USER))
    if caller is not None and SELF in caller.roles and user.id != caller.user:
        raise NotFound(NO_USER)
    return user


async def find_managed_user(registry: Registry, caller: Caller, name: UserName, *, or_itself: bool = False) -> User:
    """Return a user to change or to bind to an identity; `or_itself`: also the caller itself, as for its tokens.

    Raises `NotAllowed` for a user above the caller. A roles file may allow others than service_admins to manage users.
    They must not gain service roles by it (17.3, U3): an identity, and a token, logs in as its user.
    """
    user = await find_user(registry, name, caller)
    if user.service_roles and not caller.full_view and not (or_itself and user.id == caller.user):
        raise NotAllowed
    return user


async def find_topic(registry: Registry, caller: Caller, name: TopicName) -> Topic:
    """Return a topic of the caller's project; raise `TopicGone` when there is none."""
    return require_found(await registry.topics.find(caller.here.id, name), TopicGone)


async def find_subscription(registry: Registry, caller: Caller, name: SubscriptionName) -> Subscription:
    """Return a subscription of the caller's project; raise `SubscriptionGone` when there is none."""
    return require_found(await registry.subscriptions.find(caller.here.id, name), SubscriptionGone)


async def find_listed_subscription(registry: Registry, caller: Caller, name: SubscriptionName) -> Subscription:
    """Return a subscription that the caller may consume from. Raises `SubscriptionGone`, then `NotAllowed` (A5)."""
    subscription = await find_subscription(registry, caller, name)
    caller.require_listed(subscription.authorized, CONSUMER)
    return subscription


def parallel_options(options: ParallelOptions | None) -> ParallelOptions:
    """Return the options of a parallel subscription; raise `Conflict` for an ordered one, which has none."""
    return require_found(options, Conflict(NOT_PARALLEL))


async def find_snapshot(registry: Registry, caller: Caller, name: SnapshotName) -> Snapshot:
    """Return a snapshot of the caller's project; raise `NotFound` when there is none, or when it has expired."""
    return require_found(await registry.snapshots.find(caller.here.id, name), NotFound(NO_SNAPSHOT))


def check_names(names: Sequence[str]) -> None:
    """Raise `InvalidInput` for too many resource names, and for an invalid one."""
    refuse_if(len(names) > MAX_NAMES, f"At most {MAX_NAMES} names")
    if bad := next((each for each in names if not is_resource_name(each)), None):
        raise InvalidInput(f"Invalid name: {bad[:255]}")


def require_attached(subscription: Subscription) -> None:
    """Raise `Conflict` for a subscription that is detached."""
    if subscription.is_detached:
        raise Conflict("Subscription is detached")


async def topic_of(registry: Registry, subscription: Subscription) -> Topic:
    """Return the present topic of a subscription. Raises `Conflict` if it is deleted.

    Call it right before a cursor is read. A recreated topic has another identity, and a cursor must never be used with
    the old one after the new one (contract 17.2, A9).
    """
    return require_found(await registry.topics.find(subscription.project_id, subscription.topic), Conflict(NO_TOPIC))


async def find_dead_letter_topic(
    registry: Registry, caller: Caller, topic: TopicName, asked: str, *, takes_own: bool = False
) -> TopicName:
    """Return the name of the dead letter topic of a subscription to `topic`.

    `asked` is a name, or a reference `projects/P/topics/T` with or without a leading slash, of the caller's project.
    Raises `InvalidInput` for anything else, and for the subscription's own topic unless that is taken; `TopicGone` when
    there is none.
    """
    name = TopicName(asked) if is_resource_name(asked) else topic_reference(caller.here.name, asked.removeprefix("/"))
    refuse_if(name == topic and not takes_own, OWN_TOPIC)
    return (await find_topic(registry, caller, name)).name


class _NoTopicIsAConflict(contextlib.AbstractContextManager[None]):
    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, TopicGone):
            raise Conflict(NO_TOPIC) from None


no_topic_is_a_conflict = _NoTopicIsAConflict()
"""Raises `Conflict` for a topic deleted meanwhile (contract 10.3); one instance, as every pull needs it."""
