import asyncio

import pytest
from sqlalchemy import update
from structlog.testing import capture_logs

from ams.core.clock import ManualClock
from ams.core.errors import NotFound
from ams.storage import export_format
from ams.storage.registry.records import Membership, PageRequest, Project, User, UserDetails
from ams.storage.registry.registry import Registry
from ams.storage.registry.statements import page_token
from ams.storage.registry.tables import users
from tests.storage.registry.makers import new_subscription, new_token, new_topic
from tests.support.administration import make_project, make_user

EVERYTHING = PageRequest()


async def test_a_role_given_twice_is_kept_once_in_order(registry: Registry, project: Project) -> None:
    user = await make_user(registry, "anna", {project.id: ("publisher", "consumer", "publisher")}, "push_worker")
    twice = UserDetails(service_roles=("admin_viewer", "push_worker", "admin_viewer"))
    await registry.users.update(user.id, twice, None)

    changed = await registry.users.by_id(user.id)

    assert changed.service_roles == ("admin_viewer", "push_worker")
    assert changed.memberships[0].roles == ("publisher", "consumer")
    assert await registry.users.set_roles(user.id, project.id, ["consumer"] * 3)
    changed = await registry.users.by_id(user.id)
    assert changed.memberships[0].roles == ("consumer",)


@pytest.mark.parametrize("token", ["", "unknown", "é", "\ud800", "x" * 100_000])
@pytest.mark.usefixtures("anna")
async def test_any_other_text_stands_for_nobody(registry: Registry, token: str) -> None:
    assert await registry.users.principal(token) is None
    assert await registry.users.by_token(token) is None


async def test_a_look_up_under_way_does_not_revive_a_revoked_token(registry: Registry, anna: User) -> None:
    tokens = [str(anna.token), await new_token(registry, anna)]

    await asyncio.gather(
        *(registry.users.principal(each) for each in tokens * 10),
        registry.users.refresh_token(anna.id),
        registry.named_tokens.revoke(anna.id, "ci"),
        *(registry.users.principal(each) for each in tokens * 10),
    )

    assert [await registry.users.principal(each) for each in tokens] == [None, None]


async def test_what_changes_of_a_user_counts_at_once(registry: Registry, project: Project, anna: User) -> None:
    """Though each look is remembered."""

    async def roles(token: str) -> object:
        principal = await registry.users.principal(token)
        return principal and principal.project_roles.get(project.id)

    token = str(anna.token)
    assert await roles(token) is None
    await registry.users.add_member(anna.id, project.id, [])
    assert await roles(token) == set()
    await registry.users.set_roles(anna.id, project.id, ["publisher"])
    assert await roles(token) == {"publisher"}
    await registry.users.remove_member(anna.id, project.id)
    assert await roles(token) is None
    await registry.users.update(anna.id, UserDetails(), {project.id: ("project_admin",)})
    assert await roles(token) == {"project_admin"}
    await registry.users.refresh_token(anna.id)
    assert await registry.users.principal(token) is None
    fresh = str((await registry.users.by_id(anna.id)).token)
    assert await roles(fresh) == {"project_admin"}
    await registry.users.delete(anna.id)
    assert await registry.users.principal(fresh) is None


async def test_what_is_gone_cannot_be_changed(registry: Registry, project: Project, anna: User) -> None:
    await registry.users.delete(anna.id)

    assert await registry.users.update(anna.id, UserDetails(email="x"), None) is None
    assert await registry.users.refresh_token(anna.id) is None
    assert not await registry.users.set_roles(anna.id, project.id, [])
    assert not await registry.users.remove_member(anna.id, project.id)
    with pytest.raises(NotFound):
        await registry.users.add_member(anna.id, project.id, [])


@pytest.mark.parametrize("many", [0, 1000])
async def test_pages_of_few_members_and_of_many_are_alike(
    registry: Registry, project: Project, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr("ams.storage.registry.users._MANY", many)
    for number in range(6):
        await make_user(registry, f"u{number}", {project.id: ()} if number % 2 else {})

    first = await registry.users.page(PageRequest(2), project=project.id)
    second = await registry.users.page(PageRequest(2, first.next_token), project=project.id)

    assert [user.name for page in (first, second) for user in page.items] == ["u5", "u3", "u1"]
    assert (first.total, second.total, second.next_token) == (3, 3, "")


async def test_more_users_than_one_statement_may_name_are_read_whole(registry: Registry) -> None:
    lines = [export_format.Project(name="P")]
    for number in range(510):
        lines.append(export_format.User(name=f"u{number}", token=f"t{number}"))
        lines.append(export_format.Membership(user=f"u{number}", project="P", roles=("consumer",)))
    await registry.fill(lines, {}, lambda _: None)

    page = await registry.users.page(EVERYTHING, details=True)

    assert page.total == 510
    assert all(len(user.memberships) == 1 for user in page.items)


async def test_access_lists_of_one_project_do_not_show_in_another(registry: Registry, project: Project) -> None:
    """HTTP contract 5.1."""
    other = await make_project(registry, "other")
    await make_user(registry, "anna", {project.id: ("consumer",), other.id: ()})
    for name in ("T1", "T2"):
        await new_topic(registry, project, name)
        await registry.topics.set_access_list(project.id, name, ["anna"])
    await new_subscription(registry, other)
    await registry.subscriptions.set_access_list(other.id, "S", ["anna"])

    user = await registry.users.by_name("anna")

    assert user.memberships == (Membership("P", ("consumer",), ("T1", "T2"), ()), Membership("other", (), (), ("S",)))


async def test_they_exist_from_the_first_one_on(registry: Registry) -> None:
    assert not await registry.users.exist()
    await make_user(registry, "anna")
    assert await registry.users.exist()


@pytest.mark.parametrize("sealed", [b"", b"short", bytes(200)])
async def test_a_user_with_a_damaged_token_is_shown_without_it(registry: Registry, anna: User, sealed: bytes) -> None:
    bert = await make_user(registry, "bert")
    damage = update(users).where(users.c.id == anna.id).values(token_sealed=sealed)
    await registry._database.write(lambda connection: connection.execute(damage))

    with capture_logs() as said:
        page = await registry.users.page(EVERYTHING)

    assert {user.name: user.token for user in page.items} == {"anna": None, "bert": bert.token}
    assert [line["user"] for line in said if line["event"] == "user.token_damaged"] == ["anna"]
    assert await registry.users.principal(str(anna.token)) is not None
    fresh = await registry.users.refresh_token(anna.id)
    assert await registry.users.by_token(str(fresh.token)) == fresh


async def test_whether_anybody_holds_a_service_role(registry: Registry, project: Project) -> None:
    await make_user(registry, "anna", {project.id: ("service_admin",)}, "metrics_viewer", "push_worker")

    assert await registry.users.hold("push_worker")
    assert not await registry.users.hold("service_admin")
    assert not await registry.users.hold("push")


async def test_roles_of_a_stranger_stay(registry: Registry, project: Project, anna: User, clock: ManualClock) -> None:
    clock.advance(5_000)

    assert not await registry.users.set_roles(anna.id, project.id, ["consumer"])

    assert await registry.users.by_id(anna.id) == anna


async def test_a_page_may_begin_beyond_all_numbers_there_are(registry: Registry) -> None:
    await make_user(registry, "anna")

    page = await registry.users.page(PageRequest(token=page_token(10**17)))

    assert [user.name for user in page.items] == ["anna"]
    assert not (await registry.users.page(PageRequest(2**70, page_token(0)))).items
