"""What answers look like: the contract's objects, made of the registry's records.

A field with a default is left out when it is empty; all others are always there, and lists are never null.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from ams.core import push_config
from ams.core.clock import resource_date
from ams.core.names import schema_path, subscription_path, topic_path
from ams.storage.registry import records
from ams.storage.registry.records import Page

T = TypeVar("T")
U = TypeVar("U")

EMPTY = b""
"""The body of answers that say nothing but their 200."""
EMPTY_OBJECT = b"{}"


class Project(msgspec.Struct, omit_defaults=True):
    """A project (contract 7); its identity is not shown."""

    name: str
    created_on: str
    modified_on: str
    created_by: str = ""
    description: str = ""
    retention_seconds: int = msgspec.field(name="retentionSeconds", default=0)


class Membership(msgspec.Struct):
    """A user's place in a project (contract 5.1)."""

    project: str
    roles: Sequence[str]
    topics: Sequence[str]
    subscriptions: Sequence[str]


class User(msgspec.Struct, omit_defaults=True):
    """A user (contract 5.1)."""

    uuid: str
    name: str
    email: str
    service_roles: Sequence[str]
    created_on: str
    modified_on: str
    projects: Sequence[Membership] = ()
    first_name: str = ""
    last_name: str = ""
    organization: str = ""
    description: str = ""
    token: str = ""
    created_by: str = ""


class Topic(msgspec.Struct, omit_defaults=True):
    """A topic (contract 8)."""

    name: str
    created_on: str
    schema: str = ""
    retention_seconds: int = msgspec.field(name="retentionSeconds", default=0)


class AuthorizationHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a delivery carries in `Authorization` (contract 9.1)."""

    type: str = ""
    value: str = ""


class RetryPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a failed delivery is tried again; the period in milliseconds (contract 9.1)."""

    type: str = ""
    period: int | msgspec.UnsetType = msgspec.UNSET


class PushConfig(msgspec.Struct, rename="camel"):
    """A push configuration: all fields are always there, empty ones for a pull subscription (contract 9.1).

    What the contract does not know is there only when it is set, for clients that allow nothing else.
    """

    type: str = ""
    push_endpoint: str = ""
    max_messages: int = 0
    authorization_header: AuthorizationHeader = AuthorizationHeader()
    retry_policy: RetryPolicy = RetryPolicy()
    verification_hash: str = ""
    verified: bool = False
    mattermost_url: str = ""
    mattermost_username: str = ""
    mattermost_channel: str = ""
    base64_decode: bool = False
    dead_letter_topic: str | msgspec.UnsetType = msgspec.UNSET
    max_delivery_attempts: int | msgspec.UnsetType = msgspec.UNSET


class Subscription(msgspec.Struct, rename="camel", omit_defaults=True):
    """A subscription (contract 9.1)."""

    name: str
    topic: str
    push_config: PushConfig
    ack_deadline_seconds: int
    created_on: str
    push_status: str = ""


class Projects(msgspec.Struct):
    """All projects, oldest first (contract 7)."""

    projects: Sequence[Project]


class ListPage(msgspec.Struct, rename="camel", kw_only=True):
    """What every page of a list says (contract 4): an empty token on the last page, the size of the whole list."""

    next_page_token: str
    total_size: int


class Users(ListPage):
    """A page of users (contract 5.2 and 7.1)."""

    users: Sequence[User]


class Topics(ListPage):
    """A page of topics (contract 8)."""

    topics: Sequence[Topic]


class Subscriptions(ListPage):
    """A page of subscriptions (contract 9.2)."""

    subscriptions: Sequence[Subscription]


class SubscriptionNames(msgspec.Struct):
    """Resource names of a topic's subscriptions, oldest first (contract 8)."""

    subscriptions: Sequence[str]


class Acl(msgspec.Struct):
    """Names of users, in stored order (contract 8 and 9.2)."""

    authorized_users: Sequence[str]


class Nothing(msgspec.Struct):
    """An object that says nothing."""


encode = msgspec.json.encode


_BREATH = 500
"""Items of a list that are shown between two breaths: a list without pages may be as long as it likes."""


async def each(items: Sequence[T], shown: Callable[[T], U]) -> list[U]:
    """Show the items of a list, letting other requests in between."""
    found = [shown(item) for item in items[:_BREATH]]
    for start in range(_BREATH, len(items), _BREATH):
        await asyncio.sleep(0)
        found += [shown(item) for item in items[start : start + _BREATH]]
    return found


async def encode_page(kind: Callable[..., ListPage], name: str, page: Page[T], shown: Callable[[T], object]) -> bytes:
    """Write a page of a list (contract 4) as its kind; `name` is the member that holds the items."""
    items = {name: await each(page.items, shown)}
    return encode(kind(**items, next_page_token=page.next_token, total_size=page.total))


def project(project: records.Project) -> Project:
    """Show a project."""
    return Project(
        name=project.name,
        created_on=resource_date(project.created_on),
        modified_on=resource_date(project.modified_on),
        created_by=project.created_by or "",
        description=project.description,
        retention_seconds=(project.retention or 0) // 1000,
    )


def user(user: records.User) -> User:
    """Show what the use case left visible of a user."""
    return User(
        uuid=user.id,
        name=user.name,
        email=user.email,
        service_roles=user.service_roles,
        created_on=resource_date(user.created_on),
        modified_on=resource_date(user.modified_on),
        projects=tuple(
            Membership(each.project, each.roles, each.topics, each.subscriptions) for each in user.memberships
        ),
        first_name=user.first_name,
        last_name=user.last_name,
        organization=user.organization,
        description=user.description,
        token=user.token or "",
        created_by=user.created_by or "",
    )


def topic(project: str, topic: records.Topic) -> Topic:
    """Show a topic of a project."""
    schema = schema_path(project, topic.schema.name) if topic.schema else ""
    return Topic(
        topic_path(project, topic.name), resource_date(topic.created_on), schema, (topic.retention or 0) // 1000
    )


def subscription(project: str, subscription: records.Subscription, push_status: str = "") -> Subscription:
    """Show a subscription of a project, also when its topic is gone."""
    return Subscription(
        name=subscription_path(project, subscription.name),
        topic=topic_path(project, subscription.topic),
        push_config=push(project, subscription.push) if subscription.push else PushConfig(),
        ack_deadline_seconds=subscription.ack_deadline_seconds,
        created_on=resource_date(subscription.created_on),
        push_status=push_status,
    )


def push(project: str, config: push_config.PushConfig) -> PushConfig:
    """Show a push configuration of a project."""
    dead_letters = config.dead_letter_topic
    return PushConfig(
        type=config.type,
        push_endpoint=config.endpoint,
        max_messages=config.max_messages,
        authorization_header=AuthorizationHeader(config.header_type, config.header_value),
        retry_policy=_retry(config),
        verification_hash=config.verification_hash,
        verified=config.verified,
        mattermost_url=config.mattermost_url,
        mattermost_username=config.mattermost_username,
        mattermost_channel=config.mattermost_channel,
        base64_decode=config.base64_decode,
        dead_letter_topic=topic_path(project, dead_letters) if dead_letters else msgspec.UNSET,
        max_delivery_attempts=config.max_delivery_attempts or msgspec.UNSET,
    )


def _retry(config: push_config.PushConfig) -> RetryPolicy:
    """Show a retry policy: where there is an endpoint, the official library wants a period (clients.md, A8)."""
    shows_period = bool(config.retry_period or config.endpoint)
    return RetryPolicy(config.retry_policy, config.retry_period if shows_period else msgspec.UNSET)
