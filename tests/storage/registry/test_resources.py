"""Projects, topics, subscriptions and registrations, where one answer of the API is not enough.

Names, concurrent creation, access lists, pages and labels, cascading deletes, and unused subscriptions.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, select

from ams.core.clock import DAY
from ams.core.errors import AlreadyExists, Conflict, NotFound, SubscriptionGone
from ams.core.names import new_uuid
from ams.core.parallel_options import ParallelOptions
from ams.storage.registry.counts import Rate, Tally
from ams.storage.registry.records import Applicant, PageRequest, Project, Registration, Topic, User
from ams.storage.registry.registry import Registry
from ams.storage.registry.resources import Expiring, Title
from ams.storage.registry.tables import topics
from tests.storage.registry.makers import new_schema, new_subscription, new_topic
from tests.support.administration import make_project, make_user, open_registry
from tests.support.clock import ManualClock

WHOLE_PAGE = PageRequest()
LABELS = {"team": "weather", "stufe": "größer", "empty": "", "quoted": '"\\\0'}

MAKERS: Mapping[str, Callable[..., Awaitable[Any]]] = {
    "Project": lambda registry, _, name: make_project(registry, name), "Topic": new_topic,
    "Subscription": new_subscription, "Schema": new_schema,
    "User": lambda registry, project, name: make_user(registry, name, {project.id: ()}),
    "User registration": lambda registry, _, name: registry.registrations.create(Applicant(name)),
}  # fmt: skip


@pytest.mark.parametrize("kind", MAKERS)
async def test_one_of_many_parallel_makers_wins(registry: Registry, project: Project, kind: str) -> None:
    makers = [MAKERS[kind](registry, project, "N") for _ in range(20)]
    outcomes = await asyncio.gather(*makers, return_exceptions=True)
    assert [repr(each) for each in outcomes if isinstance(each, Exception)] == [
        repr(AlreadyExists(f"{kind} already exists"))
    ] * 19


@pytest.mark.parametrize("kind", ["Topic", "Subscription", "Schema", "User"])
async def test_nothing_is_made_in_a_project_that_is_gone(registry: Registry, kind: str) -> None:
    gone = Project("gone", "gone", "", 0, 0, None)
    with pytest.raises(NotFound, match=r"^project doesn't exist$"):
        await MAKERS[kind](registry, gone, "N")
    assert await registry.is_empty()


class ListedResource:
    """Topics or subscriptions: resources with an access list, labels and pages."""

    def __init__(self, registry: Registry, project: Project, kind: str) -> None:
        self.records: Any = registry.topics if kind == "Topic" else registry.subscriptions
        self._make, self._registry, self._project = MAKERS[kind], registry, project

    async def make(self, name: str = "N", project: Project | None = None, **more: Any) -> Any:
        return await self._make(self._registry, project or self._project, name, **more)

    async def find(self) -> Any:
        return await self.records.find(self._project.id, "N")


@pytest.fixture(params=["Topic", "Subscription"])
def listed_resource(request: pytest.FixtureRequest, registry: Registry, project: Project) -> ListedResource:
    return ListedResource(registry, project, request.param)


async def test_names_are_case_sensitive(project: Project, listed_resource: ListedResource) -> None:
    made = await listed_resource.make()
    assert await listed_resource.find() == made
    assert await listed_resource.records.find(project.id, "n") is None
    assert await listed_resource.records.ids() == {made.id}


async def test_an_access_list_is_ordered(registry: Registry, project: Project, listed_resource: ListedResource) -> None:
    users = {name: await make_user(registry, name, {project.id: ()}) for name in ("a", "b", "c")}
    await listed_resource.make()
    await listed_resource.find()

    await listed_resource.records.change_access_list(project.id, "N", ["c", "a", "c"])
    assert (await listed_resource.find()).authorized == {users["c"].id, users["a"].id}
    assert await listed_resource.records.access_list(project.id, "N") == ["c", "a"]

    await listed_resource.records.change_access_list(project.id, "N", [])
    assert (await listed_resource.find()).authorized == set()


async def test_pages_are_cut_to_one_user(registry: Registry, project: Project, listed_resource: ListedResource) -> None:
    user = await make_user(registry, "anna", {project.id: ()})
    for name in ("b", "a", "c"):
        await listed_resource.make(name)
    await listed_resource.make("elsewhere", await make_project(registry, "other"))
    await listed_resource.records.change_access_list(project.id, "a", ["anna"])

    every = await listed_resource.records.page(project.id, WHOLE_PAGE)
    hers = await listed_resource.records.page(project.id, WHOLE_PAGE, listed=user.id)

    assert ([each.name for each in every.items], every.total) == (["c", "a", "b"], 3)
    assert ([each.name for each in hers.items], hers.total) == (["a"], 1)


async def test_labels_are_those_it_was_made_with_and_changes_count(project: Project, listed_resource: ListedResource):
    made = await listed_resource.make(labels=LABELS)
    assert made.labels == LABELS
    assert await listed_resource.find() == made
    assert (await listed_resource.records.page(project.id, WHOLE_PAGE)).items == (made,)

    for labels in ({"a": "1"}, {}):
        changed = await listed_resource.records.set_labels(project.id, "N", labels)
        assert (changed.id, changed.labels) == (made.id, labels)
        assert await listed_resource.find() == changed
    assert await listed_resource.records.set_labels(project.id, "other", {}) is None


async def test_deleting_takes_everything_the_project_owns(registry: Registry, topic: Topic) -> None:
    """HTTP contract 17.3, U12."""
    project, other = await registry.projects.find("P"), await make_project(registry, "other")
    anna = await make_user(registry, "anna", {project.id: ("consumer",), other.id: ()})
    await registry.topics.change_access_list(project.id, "T", ["anna"])
    subscription, kept = await new_subscription(registry, project), await new_topic(registry, other)

    assert await registry.projects.delete(project.id) == ([topic.id], [subscription.id])
    assert await registry.projects.find("P") is None
    assert (await registry.topics.ids(), await registry.subscriptions.ids()) == ({kept.id}, set())
    assert [entry.project for entry in (await registry.users.by_id(anna.id)).memberships] == ["other"]


async def test_a_topic_made_again_is_another_one(registry: Registry, project: Project, topic: Topic) -> None:
    await registry.topics.find(project.id, "T")

    assert await registry.topics.delete(topic)
    assert await registry.topics.find(project.id, "T") is None
    assert not await registry.topics.delete(topic)

    new = await new_topic(registry, project)
    assert not await registry.topics.delete(topic)
    assert await registry.topics.find(project.id, "T") == new


async def test_a_page_is_read_by_index_without_sorting_all_topics(tmp_path: Path) -> None:
    def plan(connection: Connection) -> str:
        query = select(topics).where(topics.c.project_id == "p").order_by(topics.c.number.desc())
        text = str(query.compile(connection, compile_kwargs={"literal_binds": True}))
        return "; ".join(row.detail for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}"))

    async with open_registry(tmp_path) as registry:
        assert await registry._database.read(plan) == "SEARCH topics USING INDEX topics_by_project (project_id=?)"


async def test_titles_name_subscriptions_and_projects_as_they_are_now(registry: Registry, project: Project) -> None:
    first, second, _ = [await new_subscription(registry, project, name) for name in "ABC"]
    await registry.projects.update(project.id, "Q", "")

    titles = await registry.subscriptions.titles([first.id, second.id, new_uuid()])

    assert titles == {first.id: ("Q", "A"), second.id: ("Q", "B")}
    assert await registry.subscriptions.titles([]) == {}


async def test_a_change_of_options_that_is_refused_changes_nothing(registry: Registry, project: Project) -> None:
    made = await new_subscription(registry, project)

    def refuse(before: ParallelOptions | None) -> ParallelOptions:
        assert before is None
        raise Conflict("no")

    with pytest.raises(Conflict):
        await registry.subscriptions.change(project.id, "S", options=refuse)
    with pytest.raises(SubscriptionGone):
        await registry.subscriptions.change(project.id, "other", options=refuse)
    assert await registry.subscriptions.find(project.id, "S") == made


async def test_a_page_of_a_topic_leaves_detached_ones_out(registry: Registry, project: Project) -> None:
    for name in ("a", "b", "c", "d", "e"):
        options = ParallelOptions(filter='attributes.x = "\\"detached\\":true"', detached=name == "b")
        await new_subscription(registry, project, name, parallel=None if name == "c" else options)
    await new_subscription(registry, project, "f", topic="other")
    await new_subscription(registry, await make_project(registry, "other"), "g")

    first = await registry.subscriptions.page_of_topic(project.id, "T", PageRequest(2))
    second = await registry.subscriptions.page_of_topic(project.id, "T", PageRequest(2, first.next_token))

    assert (first.items, second.items) == (("e", "d"), ("c", "a"))
    assert (first.total, second.next_token) == (4, "")


async def test_of_many_parallel_decisions_on_a_registration_one_counts(registry: Registry) -> None:
    asked = await registry.registrations.create(Applicant("anna"))

    accepts = [registry.registrations.accept(asked.id, None) for _ in range(20)]
    declines = [registry.registrations.decline(asked.id, None, "no") for _ in range(20)]
    assert sum(bool(outcome) for outcome in await asyncio.gather(*accepts, *declines)) == 1


async def test_a_user_and_its_registration_are_not_made_both(registry: Registry) -> None:
    outcomes = await asyncio.gather(
        make_user(registry, "anna"), registry.registrations.create(Applicant("anna")), return_exceptions=True
    )

    assert isinstance(outcomes[0], User)
    if isinstance(outcomes[1], Registration):  # it came first: then it cannot be accepted
        with pytest.raises(AlreadyExists, match=r"^User already exists$"):
            await registry.registrations.accept(outcomes[1].id, None)
        assert await registry.registrations.find(outcomes[1].id) == outcomes[1]


TTL = DAY
EXPIRING_OPTIONS = ParallelOptions(expiration_ttl=TTL)


def new_expiring(
    registry: Registry, project: Project, name: str = "S", options: Any = EXPIRING_OPTIONS
) -> Awaitable[Any]:
    return new_subscription(registry, project, name, parallel=options)


async def test_those_that_expire_come_oldest_first(registry: Registry, project: Project, clock: ManualClock) -> None:
    made = [await new_expiring(registry, project, name) for name in ("b", "a")]
    await new_expiring(registry, project, "stays", ParallelOptions())
    await new_expiring(registry, project, "ordered", None)

    assert await registry.subscriptions.expiring() == [
        Expiring(each.id, Title(project.name, each.name), TTL, clock.wall(), clock.wall()) for each in made
    ]


async def test_the_latest_use_stays_whoever_stores_it(registry: Registry, project: Project, clock: ManualClock) -> None:
    one, other = await new_expiring(registry, project, "a"), await new_expiring(registry, project, "b")
    now, gone = clock.wall(), new_uuid()

    await registry.subscriptions.note_uses({})
    await registry.subscriptions.note_uses({one.id: now + 20, gone: now + 5})
    await registry.subscriptions.note_uses({one.id: now + 10, other.id: now + 7})

    found = {each.id: (each.noted - now, each.used - now) for each in await registry.subscriptions.expiring()}
    assert found == {one.id: (20, 20), other.id: (7, 7)}


async def test_of_many_uses_at_once_the_latest_stays(registry: Registry, project: Project, clock: ManualClock) -> None:
    made = [await new_expiring(registry, project, name) for name in "abc"]
    rounds = [{each.id: clock.wall() + past for each in made} for past in range(20)]
    await asyncio.gather(*map(registry.subscriptions.note_uses, rounds))
    assert [each.used - clock.wall() for each in await registry.subscriptions.expiring()] == [19, 19, 19]


async def test_a_pull_that_is_stored_is_a_use(registry: Registry, project: Project, clock: ManualClock) -> None:
    made, pulled = await new_expiring(registry, project), clock.wall() + 50
    await registry.tallies.store([], {made.id: Tally(1, 10, Rate(1, pulled, None))})
    [found] = await registry.subscriptions.expiring()
    assert (found.noted, found.used) == (clock.wall(), pulled)


async def test_an_unused_one_is_removed_once(registry: Registry, project: Project, clock: ManualClock) -> None:
    await make_user(registry, "anna", {project.id: ()})
    made, now = await new_expiring(registry, project), clock.wall()
    await registry.subscriptions.change_access_list(project.id, made.name, ["anna"])
    await registry.subscriptions.find(project.id, made.name)

    assert await registry.subscriptions.delete_unused(made.id, now) is None, "it was made just then"
    removed = await asyncio.gather(*(registry.subscriptions.delete_unused(made.id, now + 1) for _ in range(5)))

    assert [each for each in removed if each] == [made]
    assert await registry.subscriptions.find(project.id, made.name) is None
    assert await registry.subscriptions.expiring() == []


async def test_one_that_was_used_meanwhile_stays(registry: Registry, project: Project, clock: ManualClock) -> None:
    made, used = await new_expiring(registry, project), clock.wall() + 10
    await registry.subscriptions.note_uses({made.id: used})

    assert await registry.subscriptions.delete_unused(made.id, used) is None
    assert await registry.subscriptions.find(project.id, made.name) == made
    assert await registry.subscriptions.delete_unused(made.id, used + 1) == made
    assert await registry.subscriptions.delete_unused(made.id, used + 1) is None


async def test_what_is_detached_is_found_so_and_stands_nowhere(registry: Registry, project: Project) -> None:
    made, other = await new_expiring(registry, project, "a"), await new_expiring(registry, project, "b", None)
    await registry.subscriptions.change(
        project.id, made.name, options=lambda _: replace(EXPIRING_OPTIONS, detached=True)
    )

    assert (await registry.subscriptions.find(project.id, made.name)).is_detached
    assert await registry.subscriptions.ids(attached=True) == {other.id}
    assert [each.id for each in await registry.subscriptions.expiring()] == [made.id]
