"""Records in a registry for tests, one line each."""

from collections.abc import Awaitable
from typing import Any

from ams.core.names import new_topic_id, new_uuid
from ams.storage.registry.records import ANY_USE, Project, Schema, SchemaContent, SchemaUse, Subscription, Topic, User
from ams.storage.registry.registry import Registry

ANY_SCHEMA = SchemaContent("json", "{}", None)


def new_topic(registry: Registry, project: Project, name: str = "T", *schema: str, **more: Any) -> Awaitable[Topic]:
    return create_topic(registry, project.id, name, *schema, **more)


async def create_topic(
    registry: Registry, project: str, name: str = "T", schema: str = "", use: SchemaUse = ANY_USE, **more: Any
) -> Topic:
    said: dict[str, Any] = {"id": new_topic_id(), "retention": None} | more
    made = Topic(project_id=project, name=name, schema=None, created_on=registry.shared.clock.wall(), **said)
    return await registry.topics.create(made, schema, use)


async def new_subscription(
    registry: Registry, project: Project, name: str = "S", topic: str = "T", **more: Any
) -> Subscription:
    said: dict[str, Any] = {"id": new_uuid(), "ack_deadline_seconds": 10, "push": None} | more
    made = Subscription(project_id=project.id, name=name, topic=topic, created_on=registry.shared.clock.wall(), **said)
    await registry.subscriptions.create(made)
    return made


def new_schema(registry: Registry, project: Project, name: str = "X") -> Awaitable[Schema]:
    return registry.schemas.create(project.id, name, ANY_SCHEMA)


async def new_token(registry: Registry, user: User, name: str = "ci", **more: Any) -> str:
    """Create a named token, by default permanent with all rights; return its text."""
    said: dict[str, Any] = {"expires_on": None, "rights": None, "created_by": None} | more
    _, text = await registry.named_tokens.create(user.id, name, **said)
    return text
