import asyncio

import pytest
from sqlalchemy import update
from structlog.testing import capture_logs

from ams.core.clock import ManualClock
from ams.core.errors import AlreadyExists, NotFound
from ams.core.names import ProjectId, ProjectName, SubscriptionId, SubscriptionName, TopicName, UserName, new_topic_id
from ams.storage.registry.records import Membership, PageRequest, Principal, User, UserDetails
from ams.storage.registry.registry import Registry
from ams.storage.registry.statements import page_token
from ams.storage.registry.tables import users
from tests.support.administration import make_project, make_user

EVERYTHING = PageRequest()


async def test_a_user_is_found_as_it_was_made(registry: Registry, clock: ManualClock) -> None:
    maker, project = await make_user(registry, "root"), await make_project(registry)
    details = UserDetails("ignored", "a@site.example", "Anna", "Ada", "Site", "tester", service_roles=("push_worker",))

    made = await registry.users.create(UserName("anna"), details, {project.id: ("consumer", "publisher")}, maker.id)

    now = clock.wall()
    assert made == User(
        id=made.id,
        name=UserName("anna"),
        email="a@site.example",
        first_name="Anna",
        last_name="Ada",
        organization="Site",
        description="tester",
        service_roles=("push_worker",),
        memberships=(Membership(ProjectName("P"), ("consumer", "publisher")),),
        created_on=now,
        modified_on=now,
        created_by=UserName("root"),
        token=made.token,
    )
    assert await registry.users.by_name(made.name) == made
    assert await registry.users.by_id(made.id) == made
    assert await registry.users.by_token(str(made.token)) == made


async def test_a_user_does_not_show_its_token_by_accident(registry: Registry) -> None:
    user = await make_user(registry, "anna")

    assert str(user.token) not in repr(user)


async def test_a_role_given_twice_is_kept_once_in_order(registry: Registry) -> None:
    project = await make_project(registry)
    user = await make_user(registry, "anna", {project.id: ("publisher", "consumer", "publisher")}, "push_worker")
    twice = UserDetails(service_roles=("admin_viewer", "push_worker", "admin_viewer"))
    await registry.users.update(user.id, twice, None)

    changed = await registry.users.by_id(user.id)

    assert changed is not None
    assert changed.service_roles == ("admin_viewer", "push_worker")
    assert changed.memberships[0].roles == ("publisher", "consumer")
    assert await registry.users.set_roles(user.id, project.id, ["consumer"] * 3)
    changed = await registry.users.by_id(user.id)
    assert changed is not None
    assert changed.memberships[0].roles == ("consumer",)


async def test_a_token_stands_for_its_user(registry: Registry) -> None:
    project = await make_project(registry)
    user = await make_user(registry, "anna", {project.id: ("publisher",)}, "admin_viewer")

    principal = await registry.users.principal(str(user.token))

    assert principal == Principal(
        user.id, user.name, frozenset({"admin_viewer"}), {project.id: frozenset({"publisher"})}
    )


@pytest.mark.parametrize("token", ["", "unknown", "é", "\ud800", "x" * 100_000])
async def test_any_other_text_stands_for_nobody(registry: Registry, token: str) -> None:
    await make_user(registry, "anna")

    assert await registry.users.principal(token) is None
    assert await registry.users.by_token(token) is None


async def test_a_refreshed_token_is_dead_at_once(registry: Registry, clock: ManualClock) -> None:
    user = await make_user(registry, "anna")
    assert await registry.users.principal(str(user.token)) is not None
    clock.advance(5_000)

    fresh = await registry.users.refresh_token(user.id)

    assert fresh is not None
    assert fresh.token != user.token
    assert fresh.modified_on == user.modified_on
    assert await registry.users.principal(str(user.token)) is None
    assert await registry.users.principal(str(fresh.token)) is not None


async def test_a_look_up_under_way_does_not_revive_a_revoked_token(registry: Registry) -> None:
    user = await make_user(registry, "anna")

    await asyncio.gather(
        *(registry.users.principal(str(user.token)) for _ in range(10)),
        registry.users.refresh_token(user.id),
        *(registry.users.principal(str(user.token)) for _ in range(10)),
    )

    assert await registry.users.principal(str(user.token)) is None


async def test_a_deleted_user_is_dead_at_once_and_gone_from_everywhere(registry: Registry) -> None:
    project = await make_project(registry)
    user = await make_user(registry, "anna", {project.id: ("consumer",)})
    topic = TopicName("T")
    await registry.topics.create(new_topic_id(), project.id, topic)
    await registry.topics.set_access_list(project.id, topic, ["anna"])
    made = await registry.projects.create(ProjectName("made"), "", user.id)
    await registry.users.principal(str(user.token))

    assert await registry.users.delete(user.id)

    assert await registry.users.principal(str(user.token)) is None
    assert await registry.users.by_name(user.name) is None
    assert await registry.topics.access_list(project.id, topic) == []
    assert made.created_by == "anna"
    assert [each.created_by for each in await registry.projects.all()] == [None, None]
    assert not await registry.users.delete(user.id)


async def test_a_changed_role_counts_at_once(registry: Registry) -> None:
    project = await make_project(registry)
    user = await make_user(registry, "anna", {project.id: ("consumer",)})

    async def roles() -> object:
        principal = await registry.users.principal(str(user.token))
        assert principal is not None
        return principal.project_roles.get(project.id)

    assert await roles() == {"consumer"}
    await registry.users.set_roles(user.id, project.id, ["publisher"])
    assert await roles() == {"publisher"}
    await registry.users.remove_member(user.id, project.id)
    assert await roles() is None
    await registry.users.add_member(user.id, project.id, [])
    assert await roles() == set()
    await registry.users.update(user.id, UserDetails(), {project.id: ("project_admin",)})
    assert await roles() == {"project_admin"}


async def test_an_update_changes_what_is_said_and_nothing_else(registry: Registry, clock: ManualClock) -> None:
    """HTTP contract 17.3, U6: a token refreshed meanwhile stays refreshed."""
    project = await make_project(registry)
    user = await make_user(registry, "anna", {project.id: ("consumer",)}, "admin_viewer")
    fresh = await registry.users.refresh_token(user.id)
    clock.advance(5_000)

    changed = await registry.users.update(user.id, UserDetails(email="new@site.example"), None)

    assert changed is not None
    assert fresh is not None
    assert changed.token == fresh.token
    assert changed.email == "new@site.example"
    assert changed.service_roles == ("admin_viewer",)
    assert changed.memberships == user.memberships
    assert changed.modified_on == user.modified_on + 5_000
    assert changed.created_on == user.created_on


async def test_empty_lists_replace(registry: Registry) -> None:
    project = await make_project(registry)
    user = await make_user(registry, "anna", {project.id: ("consumer",)}, "admin_viewer")

    changed = await registry.users.update(user.id, UserDetails(service_roles=()), {})

    assert changed is not None
    assert changed.service_roles == ()
    assert changed.memberships == ()


async def test_one_of_many_parallel_makers_wins(registry: Registry) -> None:
    outcomes = await asyncio.gather(*(make_user(registry, "anna") for _ in range(20)), return_exceptions=True)

    assert sum(isinstance(outcome, User) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, AlreadyExists) for outcome in outcomes) == 19


async def test_a_membership_is_made_once_however_many_try(registry: Registry) -> None:
    project, user = await make_project(registry), await make_user(registry, "anna")

    outcomes = await asyncio.gather(
        *(registry.users.add_member(user.id, project.id, [str(n)]) for n in range(10)), return_exceptions=True
    )

    assert outcomes.count(None) == 1
    found = await registry.users.by_id(user.id)
    assert found is not None
    assert len(found.memberships) == 1


async def test_what_is_gone_cannot_be_changed(registry: Registry) -> None:
    project, user = await make_project(registry), await make_user(registry, "anna")
    await registry.users.delete(user.id)

    assert await registry.users.update(user.id, UserDetails(email="x"), None) is None
    assert await registry.users.refresh_token(user.id) is None
    assert not await registry.users.set_roles(user.id, project.id, [])
    assert not await registry.users.remove_member(user.id, project.id)
    with pytest.raises(NotFound):
        await registry.users.add_member(user.id, project.id, [])


async def test_a_user_of_a_project_that_is_gone_is_not_made(registry: Registry) -> None:
    with pytest.raises(NotFound, match=r"^project doesn't exist$"):
        await make_user(registry, "anna", {ProjectId("gone"): ()})

    assert await registry.users.by_name(UserName("anna")) is None


async def test_pages_come_newest_first_with_memberships_only_when_asked(registry: Registry) -> None:
    project = await make_project(registry)
    for name in ("a", "b", "c"):
        await make_user(registry, name, {project.id: ("consumer",)})

    first = await registry.users.page(PageRequest(2))
    second = await registry.users.page(PageRequest(2, first.next_token), details=True)

    assert [user.name for user in first.items] == ["c", "b"]
    assert all(user.memberships == () for user in first.items)
    assert [user.name for user in second.items] == ["a"]
    assert [len(user.memberships) for user in second.items] == [1]
    assert (first.total, second.total, second.next_token) == (3, 3, "")


@pytest.mark.parametrize("many", [0, 1000])
async def test_pages_of_few_members_and_of_many_are_alike(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr("ams.storage.registry.users._MANY", many)
    project = await make_project(registry)
    for number in range(6):
        await make_user(registry, f"u{number}", {project.id: ()} if number % 2 else {})

    first = await registry.users.page(PageRequest(2), project=project.id)
    second = await registry.users.page(PageRequest(2, first.next_token), project=project.id)

    assert [user.name for page in (first, second) for user in page.items] == ["u5", "u3", "u1"]
    assert (first.total, second.total, second.next_token) == (3, 3, "")


async def test_a_page_of_members_holds_members_only(registry: Registry) -> None:
    project = await make_project(registry)
    await make_user(registry, "member", {project.id: ()})
    await make_user(registry, "stranger")

    page = await registry.users.page(EVERYTHING, project=project.id)

    assert [user.name for user in page.items] == ["member"]
    assert page.total == 1


async def test_more_users_than_one_statement_may_name_are_read_whole(registry: Registry) -> None:
    project = await make_project(registry)
    await asyncio.gather(*(make_user(registry, f"u{n}", {project.id: ("consumer",)}) for n in range(510)))

    page = await registry.users.page(EVERYTHING, details=True)

    assert page.total == 510
    assert all(len(user.memberships) == 1 for user in page.items)


async def test_memberships_name_the_resources_whose_lists_hold_the_user(registry: Registry) -> None:
    """HTTP contract 5.1; the lists of one project do not show in another."""
    project, other = await make_project(registry), await make_project(registry, "other")
    await make_user(registry, "anna", {project.id: ("consumer",), other.id: ()})
    for name in ("T1", "T2"):
        await registry.topics.create(new_topic_id(), project.id, TopicName(name))
        await registry.topics.set_access_list(project.id, TopicName(name), ["anna"])
    await registry.subscriptions.create(SubscriptionId("s"), other.id, SubscriptionName("S"), TopicName("T1"), 10)
    await registry.subscriptions.set_access_list(other.id, SubscriptionName("S"), ["anna"])

    user = await registry.users.by_name(UserName("anna"))

    assert user is not None
    assert user.memberships == (
        Membership(ProjectName("P"), ("consumer",), (TopicName("T1"), TopicName("T2")), ()),
        Membership(ProjectName("other"), (), (), (SubscriptionName("S"),)),
    )


async def test_they_exist_from_the_first_one_on(registry: Registry) -> None:
    assert not await registry.users.exist()
    await make_user(registry, "anna")
    assert await registry.users.exist()


@pytest.mark.parametrize("sealed", [b"", b"short", bytes(200)])
async def test_a_user_whose_stored_token_is_damaged_is_shown_without_it(registry: Registry, sealed: bytes) -> None:
    anna, bert = await make_user(registry, "anna"), await make_user(registry, "bert")
    damage = update(users).where(users.c.id == anna.id).values(token_sealed=sealed)
    await registry._database.write(lambda connection: connection.execute(damage))

    with capture_logs() as said:
        page = await registry.users.page(EVERYTHING)

    assert {user.name: user.token for user in page.items} == {"anna": None, "bert": bert.token}
    assert [line["user"] for line in said if line["event"] == "user.token_damaged"] == ["anna"]
    assert await registry.users.principal(str(anna.token)) is not None
    fresh = await registry.users.refresh_token(anna.id)
    assert fresh is not None
    assert await registry.users.by_token(str(fresh.token)) == fresh


async def test_whether_anybody_holds_a_service_role(registry: Registry) -> None:
    project = await make_project(registry)
    await make_user(registry, "anna", {project.id: ("service_admin",)}, "metrics_viewer", "push_worker")

    assert await registry.users.hold("push_worker")
    assert not await registry.users.hold("service_admin")
    assert not await registry.users.hold("push")


async def test_changing_the_roles_of_no_member_changes_nothing(registry: Registry, clock: ManualClock) -> None:
    project, user = await make_project(registry), await make_user(registry, "anna")
    clock.advance(5_000)

    assert not await registry.users.set_roles(user.id, project.id, ["consumer"])

    assert await registry.users.by_id(user.id) == user


async def test_a_page_may_begin_beyond_all_numbers_there_are(registry: Registry) -> None:
    await make_user(registry, "anna")

    page = await registry.users.page(PageRequest(token=page_token(10**17)))

    assert [user.name for user in page.items] == ["anna"]
    assert not (await registry.users.page(PageRequest(2**70, page_token(0)))).items
