"""What answers look like: the contract's objects, made of the registry's records.

A field with a default is left out when it is empty; all others are always there, and lists are never null.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from ams.clock import resource_date
from ams.names import subscription_path, topic_path
from ams.registry import records
from ams.registry.paging import Page

T = TypeVar("T")

EMPTY = b""
"""The body of answers that say nothing but their 200."""
EMPTY_OBJECT = b"{}"

PULL_CONFIG: dict[str, Any] = {
    "type": "",
    "pushEndpoint": "",
    "maxMessages": 0,
    "authorizationHeader": {},
    "retryPolicy": {},
    "verificationHash": "",
    "verified": False,
    "mattermostUrl": "",
    "mattermostUsername": "",
    "mattermostChannel": "",
    "base64Decode": False,
}
"""`pushConfig` of a pull subscription: all fields are always there (contract 9.1)."""


class Project(msgspec.Struct, omit_defaults=True):
    """A project (contract 7); its identity is not shown."""

    name: str
    created_on: str
    modified_on: str
    created_by: str = ""
    description: str = ""


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


class Subscription(msgspec.Struct, rename="camel"):
    """A subscription (contract 9.1)."""

    name: str
    topic: str
    push_config: dict[str, Any]
    ack_deadline_seconds: int
    created_on: str


class Projects(msgspec.Struct):
    """All projects, oldest first (contract 7)."""

    projects: Sequence[Project]


class ListPage(msgspec.Struct, rename="camel", kw_only=True):
    """What every page of a list says (contract 4): an empty token on the last page, the size of the whole list."""

    next_page_token: str
    total_size: int


class UserPage(ListPage):
    """A page of users (contract 5.2 and 7.1)."""

    users: Sequence[User]


class TopicPage(ListPage):
    """A page of topics (contract 8)."""

    topics: Sequence[Topic]


class SubscriptionPage(ListPage):
    """A page of subscriptions (contract 9.2)."""

    subscriptions: Sequence[Subscription]


class TopicSubscriptions(msgspec.Struct):
    """Resource names of a topic's subscriptions, oldest first (contract 8)."""

    subscriptions: Sequence[str]


class AccessList(msgspec.Struct):
    """Names of users, in stored order (contract 8 and 9.2)."""

    authorized_users: Sequence[str]


class Nothing(msgspec.Struct):
    """An object that says nothing."""


encode = msgspec.json.encode


def encode_page(kind: Callable[..., ListPage], name: str, page: Page[T], shown: Callable[[T], object]) -> bytes:
    """Write a page of a list (contract 4) as its kind; `name` is the member that holds the items."""
    items = {name: [shown(item) for item in page.items]}
    return encode(kind(**items, next_page_token=page.next_token, total_size=page.total))


def project(project: records.Project) -> Project:
    """Show a project."""
    return Project(
        name=project.name,
        created_on=resource_date(project.created_on),
        modified_on=resource_date(project.modified_on),
        created_by=project.created_by or "",
        description=project.description,
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
    schema = f"projects/{project}/schemas/{topic.schema}" if topic.schema else ""
    return Topic(topic_path(project, topic.name), resource_date(topic.created_on), schema)


def subscription(project: str, subscription: records.Subscription) -> Subscription:
    """Show a subscription of a project, also when its topic is gone."""
    return Subscription(
        name=subscription_path(project, subscription.name),
        topic=topic_path(project, subscription.topic),
        push_config=PULL_CONFIG,
        ack_deadline_seconds=subscription.ack_deadline_seconds,
        created_on=resource_date(subscription.created_on),
    )
