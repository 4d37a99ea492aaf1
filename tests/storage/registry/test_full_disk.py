"""A nearly full disk: users' new resources are refused, and vital writes succeed."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ams.core.errors import RegistryUnavailable
from ams.core.names import SnapshotName
from ams.storage.database import sqlite
from ams.storage.free_space import FreeSpace
from ams.storage.registry.records import Applicant, Project, Schema, SchemaContent, Snapshot, Topic, User, UserDetails
from ams.storage.registry.registry import Registry
from tests.storage.audit.events import event
from tests.storage.registry.makers import new_schema, new_subscription, new_token, new_topic
from tests.support.administration import make_project, make_user, open_registry_at, url_of

T, S, N = "T", "S", "N"
LARGE_SCHEMA = SchemaContent("json", '"' + "x" * 300_000 + '"', None)


class FillingDisk(FreeSpace):
    def __init__(self) -> None:
        self.is_full = False

    def growth_refusal(self) -> str | None:
        return "full" if self.is_full else None


class FilledRegistry:
    disk: FillingDisk
    registry: Registry
    project: Project
    user: User
    topic: Topic
    schema: Schema

    async def snapshot(self, name: SnapshotName) -> Any:
        at = 10**12
        made = Snapshot(self.project.id, name, self.topic.id, T, 0, at, 2 * at)
        return await self.registry.snapshots.create(made)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[FilledRegistry]:
    world = FilledRegistry()
    world.disk = FillingDisk()
    async with open_registry_at(url_of("sqlite", tmp_path), space=world.disk) as world.registry:
        registry = world.registry
        world.project = await make_project(registry)
        world.user = await make_user(registry, "u", {world.project.id: ()})
        world.schema = await new_schema(registry, world.project)
        world.topic = await new_topic(registry, world.project)
        await new_subscription(registry, world.project)
        await world.snapshot(N)
        await registry.bindings.create(world.user.id, "b", "https://i", "s", created_by=None)
        await new_token(registry, world.user, "n")
        yield world


Act = Callable[[FilledRegistry], Awaitable[object]]
GROWING_ACTS: dict[str, Act] = {
    "a project": lambda w: make_project(w.registry, "Q"), "a user": lambda w: make_user(w.registry, "v"),
    "more about a user": lambda w: w.registry.users.update(w.user.id, UserDetails(description="d"), None),
    "a topic": lambda w: new_topic(w.registry, w.project, "t"),
    "a subscription": lambda w: new_subscription(w.registry, w.project, "s"), "a snapshot": lambda w: w.snapshot("n"),
    "a schema": lambda w: new_schema(w.registry, w.project, "x"),
    "an access list": lambda w: w.registry.topics.change_access_list(w.project.id, T, ["u"]),
    "labels": lambda w: w.registry.topics.set_labels(w.project.id, T, {"a": "b"}),
    "a named token": lambda w: new_token(w.registry, w.user, "m"),
    "a binding": lambda w: w.registry.bindings.create(w.user.id, "c", "https://i", "t", created_by=None),
    "an idempotency key, with the log on Kafka": lambda w: w.registry.idempotency.claim(w.topic.id, b"k", b"c", 0, "m"),
    "a registration": lambda w: w.registry.registrations.create(Applicant("r", "e", "", "", "", "")),
}  # fmt: skip
ALLOWED_ACTS: dict[str, Act] = {
    "an audit event": lambda w: w.registry.audit.add([event()]),
    "another token": lambda w: w.registry.users.refresh_token(w.user.id),
    "fewer roles": lambda w: w.registry.users.set_roles(w.user.id, w.project.id, ()),
    "no member": lambda w: w.registry.users.remove_member(w.user.id, w.project.id),
    "no named token": lambda w: w.registry.named_tokens.revoke(w.user.id, "n"),
    "no binding": lambda w: w.registry.bindings.delete(w.user.id, "b"),
    "no user": lambda w: w.registry.users.delete(w.user.id),
    "no snapshot": lambda w: w.registry.snapshots.delete(w.project.id, N),
    "no subscription": lambda w: w.registry.subscriptions.delete(w.project.id, S),
    "no schema": lambda w: w.registry.schemas.delete(w.schema.id),
    "no topic": lambda w: w.registry.topics.delete(w.topic),
    "no project": lambda w: w.registry.projects.delete(w.project.id),
    "messages kept for a shorter time": lambda w: w.registry.topics.set_retention(w.project.id, T, 1000),
    "and those of a project": lambda w: w.registry.projects.set_retention(w.project.id, 1000),
    "smaller quotas": lambda w: w.registry.projects.change_quotas(w.project.id, {"topics": 1}),
}


@pytest.mark.parametrize("act", [pytest.param(act, id=name) for name, act in GROWING_ACTS.items()])
async def test_what_makes_it_larger_is_refused_as_by_the_log_and_done_later(world: FilledRegistry, act: Act) -> None:
    world.disk.is_full = True
    with pytest.raises(RegistryUnavailable, match="^Backend Error$"):
        await act(world)
    world.disk.is_full = False
    await act(world)


@pytest.mark.parametrize("act", [pytest.param(act, id=name) for name, act in ALLOWED_ACTS.items()])
async def test_what_must_go_on_does(world: FilledRegistry, act: Act) -> None:
    world.disk.is_full = True
    assert await act(world) is not False


async def test_what_was_deleted_makes_room_in_the_file(world: FilledRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "ROOM_IN_FILE", 250_000)
    large = [await world.registry.schemas.create(world.project.id, f"l{n}", LARGE_SCHEMA) for n in range(2)]
    world.disk.is_full = True
    with pytest.raises(RegistryUnavailable):
        await world.registry.projects.create("Q", "", None)
    await world.registry.schemas.delete(large[0].id)
    await world.registry.projects.create("Q", "", None)
