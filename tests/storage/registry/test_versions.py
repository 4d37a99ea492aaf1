"""Of two concurrent changes to one version, one succeeds and the other is refused, on every database."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

import pytest

from ams.core.errors import ChangedMeanwhile
from ams.core.issuer import Issuer
from ams.core.parallel_options import ParallelOptions
from ams.core.push_config import PushConfig
from ams.core.versions import Precondition, version_of
from ams.storage.registry.records import Project, SchemaContent, UserDetails
from ams.storage.registry.registry import Registry
from tests.storage.registry.makers import new_schema, new_subscription, new_topic
from tests.support.administration import make_project, make_user, open_registry_at

ROUNDS = 5
T, S, X, ISSUER = "T", "S", "X", "I"


class VersionedKinds:
    """A project with one of each kind, and changes of them: of `number`, to the version that `expected` names."""

    def __init__(self, registry: Registry, project: Project) -> None:
        self.registry = registry
        self.project = project

    async def fill(self) -> None:
        for number in range(1 + 2 * ROUNDS):
            self.user = await make_user(self.registry, f"u{number}", {self.project.id: ("publisher",)})
        await new_topic(self.registry, self.project)
        await new_subscription(self.registry, self.project, parallel=ParallelOptions())
        await new_schema(self.registry, self.project)
        await self.registry.issuers.create(self.issuer(0), None)

    def issuer(self, number: int) -> Issuer:
        return Issuer(name=ISSUER, url="https://i.example", audiences=(f"audience-{number}",))

    async def change_schema(self, number: int, expected: Precondition) -> object:
        content = SchemaContent("json", f'{{"title": "{number}"}}', None)
        return await self.registry.schemas.update(
            await self.registry.schemas.find(self.project.id, X), content=content, expected=expected
        )


Change = Callable[[VersionedKinds, int, Precondition], Awaitable[object]]
Read = Callable[[VersionedKinds], Awaitable[object]]


async def read_issuer(world: VersionedKinds) -> object:
    return next(each for each in await world.registry.issuers.all() if each.name == ISSUER)


READ: Mapping[str, Read] = {
    "access list": lambda w: w.registry.topics.access_list(w.project.id, T),
    "topic": lambda w: w.registry.topics.find(w.project.id, T),
    "subscription": lambda w: w.registry.subscriptions.find(w.project.id, S),
    "schema": lambda w: w.registry.schemas.find(w.project.id, X), "member": lambda w: w.registry.users.by_id(w.user.id),
    "project": lambda w: w.registry.projects.find(w.project.name), "issuer": read_issuer,
}  # fmt: skip
CHANGES: Mapping[str, tuple[str, Change]] = {
    "an access list": (
        "access list", lambda w, n, e: w.registry.topics.change_access_list(w.project.id, T, [f"u{n}"], None, e),
    ),
    "a user on an access list": (
        "access list", lambda w, n, e: w.registry.topics.change_access_list(w.project.id, T, [f"u{n}"], [], e),
    ),
    "a retention": ("topic", lambda w, n, e: w.registry.topics.set_retention(w.project.id, T, n, e)),
    "an ack deadline": (
        "subscription", lambda w, n, e: w.registry.subscriptions.set_ack_deadline(w.project.id, S, 20 + n, e),
    ),
    "options": (
        "subscription", lambda w, n, e: w.registry.subscriptions.change(
            w.project.id, S, e, options=lambda _: ParallelOptions(message_retention=n)),
    ),
    "a push configuration": (
        "subscription", lambda w, n, e: w.registry.subscriptions.change(
            w.project.id, S, e, config=lambda _: PushConfig("http_endpoint", endpoint=f"https://e.example/{n}")),
    ),
    "a schema": ("schema", VersionedKinds.change_schema),
    "roles": ("member", lambda w, n, e: w.registry.users.set_roles(w.user.id, w.project.id, [f"role-{n}"], e)),
    "a user": (
        "member", lambda w, n, e: w.registry.users.update(w.user.id, UserDetails(email=f"{n}@e.example"), None, e),
    ),
    "a project": (
        "project", lambda w, n, e: w.registry.projects.update(w.project.id, w.project.name, f"text {n}", e),
    ),
    "an issuer": ("issuer", lambda w, n, e: w.registry.issuers.update(ISSUER, w.issuer(1 + n), e)),
}  # fmt: skip
"""How each kind is read, and how its number is changed if it has the expected version."""


@pytest.mark.parametrize("what", CHANGES)
async def test_of_two_changes_of_one_version_one_is_made(registry: Registry, registry_url: str, what: str) -> None:
    world = VersionedKinds(registry, await make_project(registry))
    await world.fill()
    kind, change = CHANGES[what]
    read = READ[kind]
    # On PostgreSQL the second change is another node's; a SQLite file belongs to one process.
    is_shared = registry_url.startswith("postgresql")
    async with open_registry_at(registry_url) if is_shared else contextlib.nullcontext(registry) as other:
        worlds = [world, VersionedKinds(other, world.project)]
        worlds[1].user = world.user
        newest = world
        for turn in range(ROUNDS):
            expected = Precondition(frozenset({version_of(await read(newest))}))
            both = [change(each, 1 + 2 * turn + place, expected) for place, each in enumerate(worlds)]
            outcomes = await asyncio.gather(*both, return_exceptions=True)

            assert sorted(isinstance(each, ChangedMeanwhile) for each in outcomes) == [False, True], outcomes
            assert sum(isinstance(each, Exception) for each in outcomes) == 1, outcomes
            newest = worlds[isinstance(outcomes[0], Exception)]  # it has surely heard of the change
            assert version_of(await read(newest)) not in (expected.versions or ())
