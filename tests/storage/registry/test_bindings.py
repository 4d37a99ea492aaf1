import asyncio
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import update
from structlog.testing import capture_logs

from ams.core.errors import AlreadyExists, NotFound
from ams.core.issuer import Issuer, RoleRule
from ams.core.names import BindingName, ProjectId, new_uuid
from ams.storage.registry.records import Binding, Principal, Project, User, UserDetails
from ams.storage.registry.registry import Registry
from ams.storage.registry.tables import issuers
from tests.support.administration import make_project, make_user
from tests.support.clock import ManualClock

ISSUER, SUBJECT = "https://issuer.example/realm", "alice@issuer.example"
MAIN, OTHER = "main", "other"
NAME = "checkin-0123456789abcdef"
DETAILS = UserDetails(email="alice@example.org", first_name="Alice")


async def bind(registry: Registry, user: User, name: BindingName = MAIN, subject: str = SUBJECT) -> Binding:
    return await registry.bindings.create(user.id, name, ISSUER, subject, created_by=None)


async def test_a_binding_is_found_as_it_was_made(registry: Registry, anna: User, clock: ManualClock) -> None:
    root = await make_user(registry, "root")

    made = await registry.bindings.create(anna.id, MAIN, ISSUER, SUBJECT, created_by=root.id)

    assert made == Binding(anna.name, MAIN, ISSUER, SUBJECT, clock.wall(), root.name, by_login=False)
    assert (await registry.bindings.of(anna.id), await registry.bindings.of(root.id)) == ([made], [])


async def test_an_identity_stands_for_its_user_with_what_that_may_now(registry: Registry, project: Project) -> None:
    anna = await make_user(registry, "anna", {project.id: ("publisher",)}, "admin_viewer")
    assert await registry.bindings.principal(ISSUER, SUBJECT) is None
    await bind(registry, anna)

    principal = Principal(anna.id, anna.name, frozenset({"admin_viewer"}), {project.id: frozenset({"publisher"})})
    assert await registry.bindings.principal(ISSUER, SUBJECT) == (principal, False)
    await registry.users.set_roles(anna.id, project.id, ("consumer",))
    assert (await registry.bindings.principal(ISSUER, SUBJECT))[0].project_roles == {project.id: {"consumer"}}


async def test_any_other_identity_is_nobody(registry: Registry, anna: User) -> None:
    await bind(registry, anna)
    other = ("bob", SUBJECT.upper(), SUBJECT + "\0", "", "\ud800", "x" * 100_000)
    others = [(ISSUER, subject) for subject in other] + [(ISSUER + "/", SUBJECT), (SUBJECT, ISSUER)]
    assert [each for each in others if await registry.bindings.principal(*each) is not None] == []


async def test_a_user_has_several_and_an_identity_one_user(registry: Registry, anna: User) -> None:
    await bind(registry, anna)
    await bind(registry, anna, OTHER, "alice at home")

    assert [each.name for each in await registry.bindings.of(anna.id)] == [MAIN, OTHER]
    with pytest.raises(AlreadyExists, match="Identity is already bound to a user"):
        await bind(registry, await make_user(registry, "bert"))
    with pytest.raises(AlreadyExists, match="Binding already exists"):
        await bind(registry, anna, subject="third")
    with pytest.raises(NotFound):
        await registry.bindings.create(new_uuid(), MAIN, ISSUER, "nobody", created_by=None)


async def test_nobody_logs_in_by_a_deleted_binding_nor_as_a_deleted_user(registry: Registry, anna: User) -> None:
    await bind(registry, anna)
    await bind(registry, anna, OTHER, "alice at home")
    for subject in (SUBJECT, "alice at home"):
        assert await registry.bindings.principal(ISSUER, subject) is not None

    assert await registry.bindings.delete(anna.id, MAIN)
    assert not await registry.bindings.delete(anna.id, MAIN)

    assert await registry.bindings.principal(ISSUER, SUBJECT) is None
    assert await registry.bindings.principal(ISSUER, "alice at home") is not None
    await registry.users.delete(anna.id)
    assert await registry.bindings.principal(ISSUER, "alice at home") is None
    assert await registry.bindings.of(anna.id) == []


async def test_a_first_login_makes_user_and_binding(registry: Registry, project: Project, clock: ManualClock) -> None:
    made = await registry.bindings.first_login(NAME, DETAILS, {project.id: ("consumer",)}, ISSUER, SUBJECT)

    assert (made.name, made.email, made.created_by) == (NAME, "alice@example.org", None)
    assert [each.roles for each in made.memberships] == [("consumer",)]
    assert await registry.bindings.of(made.id) == [
        Binding(NAME, "first-login", ISSUER, SUBJECT, clock.wall(), None, by_login=True)
    ]
    principal = Principal(made.id, NAME, frozenset(), {project.id: frozenset({"consumer"})})
    assert await registry.bindings.principal(ISSUER, SUBJECT) == (principal, True)


async def test_of_many_first_logins_at_once_one_makes_the_user(registry: Registry, project: Project) -> None:
    login = (NAME, DETAILS, {project.id: ("consumer",)}, ISSUER, SUBJECT)

    ends = await asyncio.gather(*(registry.bindings.first_login(*login) for _ in range(8)), return_exceptions=True)

    refused = [str(each) for each in ends if isinstance(each, AlreadyExists)]
    assert refused == ["Identity is already bound to a user"] * 7
    [made] = [each for each in ends if isinstance(each, User)]
    assert len(await registry.bindings.of(made.id)) == 1


async def test_a_first_login_that_cannot_be_leaves_nothing(registry: Registry, anna: User) -> None:
    await bind(registry, anna)

    with pytest.raises(AlreadyExists, match="Identity is already bound"):
        await registry.bindings.first_login(NAME, DETAILS, {}, ISSUER, SUBJECT)
    with pytest.raises(AlreadyExists, match="User already exists"):
        await registry.bindings.first_login(anna.name, DETAILS, {}, ISSUER, "bob")
    with pytest.raises(NotFound):
        await registry.bindings.first_login(NAME, DETAILS, {new_uuid(): ("consumer",)}, ISSUER, "bob")

    assert await registry.users.by_name(NAME) is None
    assert await registry.bindings.principal(ISSUER, "bob") is None


async def test_nothing_is_written_when_roles_are_those_already(registry: Registry, clock: ManualClock) -> None:
    p, q = (await make_project(registry, "P")).id, (await make_project(registry, "Q")).id
    made = await registry.bindings.first_login(NAME, DETAILS, {p: ("consumer", "publisher")}, ISSUER, SUBJECT)
    clock.advance(1000)

    assert not await registry.bindings.follow(made.id, {p: ("publisher", "consumer"), q: ()})
    assert not await registry.bindings.follow(made.id, {})

    assert await registry.users.by_id(made.id) == made
    assert await registry.bindings.follow(made.id, {q: ("consumer",)})
    assert (await registry.users.by_id(made.id)).modified_on == clock.wall()


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wanted=st.dictionaries(st.sampled_from("PQR"), st.lists(st.sampled_from(["consumer", "publisher"]), max_size=3)))
async def test_roles_of_an_identity_are_followed_once(registry: Registry, wanted: Mapping[str, Sequence[str]]) -> None:
    """Each example begins with the state of the one before it."""
    if await registry.bindings.principal(ISSUER, SUBJECT) is None:
        await registry.bindings.first_login(NAME, DETAILS, {}, ISSUER, SUBJECT)
        for name in "PQR":
            await make_project(registry, name)
    ids = {each.name: each.id for each in await registry.projects.all()}
    before, roles = await roles_now(registry), {ids[name]: given for name, given in wanted.items()}
    user = await registry.users.by_name(NAME)

    changed = await registry.bindings.follow(user.id, roles)

    after = await roles_now(registry)
    left_alone = {project: held for project, held in before.items() if project not in roles}
    assert after == left_alone | {project: set(given) for project, given in roles.items() if given}
    assert changed == (after != before)
    assert not await registry.bindings.follow(user.id, roles)


async def roles_now(registry: Registry) -> Mapping[ProjectId, AbstractSet[str]]:
    return (await registry.bindings.principal(ISSUER, SUBJECT))[0].project_roles


PLAIN_ISSUER = Issuer("plain", "https://plain.example", audiences=("ams",))
FULL_ISSUER = Issuer(
    "full", "https://full.example/realm", audiences=("ams", "other"), clients=("app",),
    jwks_url="https://full.example/keys", introspect="opaque", introspection_url="https://full.example/introspect",
    client_id="ams", client_secret="hunter2 of the tests", create_users=True, entitlement_claims=("groups",),
    roles=(RoleRule("urn:example:group:vo:role=member#aai.example", "P", ("publisher", "consumer")),),
)  # fmt: skip


async def test_issuers_are_found_as_they_were_made_oldest_first_and_a_change_counts_at_once(registry: Registry) -> None:
    root = await make_user(registry, "root")
    assert await registry.issuers.all() == ()
    await registry.issuers.create(PLAIN_ISSUER, root.id)
    await registry.issuers.create(FULL_ISSUER, None)
    assert await registry.issuers.all() == (PLAIN_ISSUER, FULL_ISSUER)
    await registry.users.delete(root.id)
    assert await registry.issuers.all() == (PLAIN_ISSUER, FULL_ISSUER)
    changed = replace(FULL_ISSUER, name="renamed", client_secret="", roles=())

    assert await registry.issuers.update(FULL_ISSUER.name, changed)

    assert await registry.issuers.all() == (PLAIN_ISSUER, changed)
    assert not await registry.issuers.update(FULL_ISSUER.name, changed)
    assert await registry.issuers.delete(PLAIN_ISSUER.name)
    assert not await registry.issuers.delete(PLAIN_ISSUER.name)
    assert await registry.issuers.all() == (changed,)


async def test_a_name_and_a_url_are_one_issuers(registry: Registry) -> None:
    await registry.issuers.create(PLAIN_ISSUER, None)
    await registry.issuers.create(FULL_ISSUER, None)

    for twin in (replace(PLAIN_ISSUER, name="new"), replace(PLAIN_ISSUER, url="https://new.example")):
        with pytest.raises(AlreadyExists, match="Issuer already exists"):
            await registry.issuers.create(twin, None)
        with pytest.raises(AlreadyExists, match="Issuer already exists"):
            await registry.issuers.update(FULL_ISSUER.name, twin)

    assert await registry.issuers.all() == (PLAIN_ISSUER, FULL_ISSUER)


async def test_bindings_outlive_their_issuer(registry: Registry) -> None:
    anna = await make_user(registry, "anna")
    await registry.issuers.create(PLAIN_ISSUER, None)
    made = await registry.bindings.create(anna.id, "b", PLAIN_ISSUER.url, "s", created_by=None)

    await registry.issuers.delete(PLAIN_ISSUER.name)

    assert await registry.bindings.of(anna.id) == [made]


async def test_one_whose_secret_is_damaged_is_there_without_it_and_said(registry: Registry) -> None:
    await registry.issuers.create(FULL_ISSUER, None)
    await registry.issuers.create(PLAIN_ISSUER, None)
    damage = update(issuers).where(issuers.c.name == FULL_ISSUER.name).values(secret=b"x")
    await registry._database.write(lambda connection: connection.execute(damage).rowcount)

    with capture_logs() as logged:
        assert await registry.issuers.all() == (replace(FULL_ISSUER, client_secret=""), PLAIN_ISSUER)

    assert [each["issuer"] for each in logged if each["event"] == "issuer.secret_damaged"] == ["full"]
