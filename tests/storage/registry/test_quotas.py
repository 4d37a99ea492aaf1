"""Quotas in the registry: checked with what is added, also when many come at once."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ams.core.errors import AlreadyExists, QuotaExceeded
from ams.core.quotas import MEMBERS, SCHEMA_BYTES, SCHEMAS, SUBSCRIPTIONS, TOPICS
from ams.storage.registry.records import Project, SchemaContent, UserDetails
from ams.storage.registry.registry import Registry
from tests.storage.registry.makers import ANY, new_schema, new_subscription, new_topic
from tests.support.administration import make_project, make_user

Make = Callable[[Registry, Project, str], Awaitable[object]]


async def new_member(registry: Registry, project: Project, name: str) -> object:
    return await make_user(registry, name, {project.id: ()})


KINDS = [
    (TOPICS, 3, new_topic), (SUBSCRIPTIONS, 3, new_subscription), (SCHEMAS, 3, new_schema), (MEMBERS, 3, new_member),
    (SCHEMA_BYTES, 6, new_schema),
]  # fmt: skip


@pytest.mark.parametrize(("quota", "limit", "make"), KINDS)
async def test_of_many_at_once_only_as_many_are_made_as_the_quota_allows(
    registry: Registry, project: Project, quota: str, limit: int, make: Make
) -> None:
    await registry.projects.change_quotas(project.id, {quota: limit})
    made = await asyncio.gather(*(make(registry, project, f"n{n}") for n in range(8)), return_exceptions=True)

    assert sum(isinstance(each, QuotaExceeded) for each in made) == 5
    assert (await registry.quotas.used(project.id))[quota] == limit
    first = next(f"n{n}" for n in range(8) if not isinstance(made[n], Exception))
    with pytest.raises(AlreadyExists):  # said first: whoever asks for what is there learns that it is
        await make(registry, project, first)


async def test_revisions_count_until_they_are_deleted(registry: Registry, project: Project) -> None:
    schema = await registry.schemas.create(project.id, "x", SchemaContent("json", '"é"', '{"a":1}'))
    assert (await registry.quotas.used(project.id))[SCHEMA_BYTES] == 4 + 7
    await registry.projects.change_quotas(project.id, {SCHEMA_BYTES: 13})
    changed = await registry.schemas.update(schema, content=ANY)
    assert changed is not None
    with pytest.raises(QuotaExceeded):
        await registry.schemas.update(changed, content=ANY)
    await registry.schemas.delete_revision(schema.id, 1)
    assert await registry.schemas.update(changed, content=ANY) is not None


async def test_quotas_of_a_project_are_its_own(registry: Registry, project: Project) -> None:
    other = await make_project(registry, "other")
    changed = await registry.projects.change_quotas(project.id, {TOPICS: 1})
    assert changed is not None
    assert changed.quotas == {TOPICS: 1}
    assert await registry.projects.find(project.name) == changed
    await new_topic(registry, project, "a")
    await new_topic(registry, other, "a")
    await new_topic(registry, other, "b")
    assert (await registry.quotas.used(other.id))[TOPICS] == 2


async def test_users_made_in_a_project_count_until_they_are_elsewhere(registry: Registry, project: Project) -> None:
    """Else a project_admin could fill the registry with users, as nobody but a service_admin deletes them."""
    other = await make_project(registry, "other")
    await registry.projects.change_quotas(project.id, {MEMBERS: 2})

    async def make(name: str) -> str:
        places = {project.id: ["consumer"]}
        return (await registry.users.create(name, UserDetails(), places, None, made_in=project.id)).id

    one, two = await make("one"), await make("two")
    assert await registry.users.remove_member(one, project.id)
    assert await registry.users.remove_member(two, project.id)
    assert (await registry.quotas.used(project.id))[MEMBERS] == 2
    with pytest.raises(QuotaExceeded):
        await make("three")

    await registry.users.add_member(one, other.id, ["consumer"])
    await registry.users.delete(two)
    assert (await registry.quotas.used(project.id))[MEMBERS] == 0
    await make("three")
