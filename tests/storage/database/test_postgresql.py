import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import psycopg
import pytest
from sqlalchemy import Connection, text

from ams.access.logins import KeyLogins
from ams.app.maintenance import rotate_shared_key
from ams.core.clock import SystemClock
from ams.core.errors import AlreadyExists, BadSettings, RegistryUnavailable, Unusable
from ams.core.issuer import Issuer
from ams.core.parallel_options import ParallelOptions
from ams.storage.database.database import Database
from ams.storage.database.postgresql import PostgresStore
from ams.storage.registry.records import SchemaContent, UserDetails
from ams.storage.registry.registry import Registry
from ams.storage.registry.tables import REGISTRY
from local_cluster.ports import free_port
from tests.storage.registry.makers import new_schema, new_subscription, new_token, new_topic
from tests.support import program_keys
from tests.support.administration import KEY, make_project, make_user, open_registry_at
from tests.support.program_keys import public_key
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.postgres
T, S = "T", "S"


@pytest.fixture
def url() -> str:
    from tests.support.databases import empty_registry

    return empty_registry(KEY)


@pytest.fixture
async def nodes(url: str) -> AsyncIterator[tuple[Registry, Registry]]:
    async with open_registry_at(url) as one, open_registry_at(url) as two:
        await asyncio.gather(wait_until_trusted(one), wait_until_trusted(two))
        yield one, two


async def wait_until_trusted(registry: Registry) -> None:
    await wait_until_async(lambda: registry._database.invalidations.validity.holds())


async def test_a_change_on_one_node_counts_on_the_other(nodes: tuple[Registry, Registry]) -> None:
    one, two = nodes
    project = await make_project(one)
    anna = await make_user(one, "anna", {project.id: ("consumer",)})
    token = str(anna.token)
    schema = await new_schema(one, project)
    await new_topic(one, project, T, "X")
    await new_subscription(one, project)
    assert await two.subscriptions.find(project.id, S) is not None
    assert ((await two.topics.find(project.id, T)).schema.revision, await two.projects.find("P")) == (1, project)
    assert "publisher" not in (await two.users.principal(token)).project_roles[project.id]

    await one.users.set_roles(anna.id, project.id, ("publisher",))
    await one.topics.change_access_list(project.id, T, ["anna"])
    await one.subscriptions.set_ack_deadline(project.id, S, 99)
    await one.projects.update(project.id, "Q", "")
    await one.schemas.update(schema, content=SchemaContent("json", "true", None))

    async def is_known() -> bool:
        topic = await two.topics.find(project.id, T)
        return (
            (await two.subscriptions.find(project.id, S)).ack_deadline_seconds == 99 and topic.authorized == {anna.id}
            and topic.schema.revision == 2
            and (await two.users.principal(token)).project_roles[project.id] == {"publisher"}
            and await two.projects.find("P") is None
        )  # fmt: skip

    await wait_until_async(is_known)


async def test_what_was_revoked_of_an_identity_is_dead_everywhere(nodes: tuple[Registry, Registry]) -> None:
    one, two = nodes
    anna, bert = await make_user(one, "anna"), await make_user(one, "bert")
    named = [str(anna.token), str(bert.token)]
    named += [await new_token(one, each, "laptop") for each in (anna, bert)]
    issuer = Issuer("i", "https://issuer.example", audiences=("ams",))
    await one.issuers.create(issuer, None)
    for user, subject in ((anna, "a"), (bert, "b")):
        await one.bindings.create(user.id, "b", issuer.url, subject, created_by=None)
    await one.named_tokens.create(anna.id, "ci", expires_on=None, rights=None, created_by=None, key=public_key())
    logins = KeyLogins(two, SystemClock(), 30)
    signed = program_keys.sign_token(time.time())
    assert await logins.principal(signed) is not None
    assert None not in [await two.users.principal(each) for each in named]
    assert None not in [await two.bindings.principal(issuer.url, subject) for subject in "ab"]
    assert await two.issuers.all() == (issuer,)

    await one.users.refresh_token(anna.id)
    assert await one.users.principal(str(anna.token)) is None
    await one.named_tokens.revoke(anna.id, "laptop")
    await one.named_tokens.revoke(anna.id, "ci")
    await one.bindings.delete(anna.id, "b")
    await one.users.delete(bert.id)
    await one.issuers.delete(issuer.name)

    async def are_dead() -> bool:
        tokens = [await two.users.principal(each) for each in named]
        identities = [await two.bindings.principal(issuer.url, subject) for subject in "ab"]
        return not any((*tokens, *identities, logins.cached_principal(signed), *await two.issuers.all()))

    await wait_until_async(are_dead)


async def test_a_node_that_does_not_listen_asks_the_database(nodes: tuple[Registry, Registry], url: str) -> None:
    one, two = nodes
    anna = await make_user(one, "anna")
    assert await two.users.principal(str(anna.token)) is not None
    store = two._database._store
    assert isinstance(store, PostgresStore)
    await store._listener.close()

    assert not two._database.invalidations.validity.holds()
    await one.users.refresh_token(anna.id)

    assert await two.users.principal(str(anna.token)) is None
    assert len(two.users._principals) == 1  # not learnt anew, and not asked


async def test_a_listening_connection_that_was_ended_is_made_anew(nodes: tuple[Registry, Registry], url: str) -> None:
    one, two = nodes
    anna = await make_user(one, "anna")
    assert await two.users.principal(str(anna.token)) is not None

    assert await asyncio.to_thread(end_listening, url) == 2
    await one.users.refresh_token(anna.id)

    async def is_dead() -> bool:
        return await two.users.principal(str(anna.token)) is None

    await wait_until_async(is_dead)
    await asyncio.gather(wait_until_trusted(one), wait_until_trusted(two))
    assert await is_dead()  # nor is what it knew before believed again


def end_listening(url: str) -> int:
    with contextlib.closing(psycopg.connect(url, autocommit=True)) as connection:
        ending = """
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND query IN ('LISTEN ams_registry', 'SELECT 1')
        """
        return connection.execute(ending).rowcount


async def test_a_subscription_removed_on_one_node_is_so_on_the_other(nodes: tuple[Registry, Registry]) -> None:
    one, two = nodes
    project = await make_project(one)
    goes = ParallelOptions(expiration_ttl=1)
    made = await new_subscription(one, project, id="s", parallel=goes)
    assert await two.subscriptions.find(project.id, S) == made

    async def is_detached() -> bool:
        found = await two.subscriptions.find(project.id, S)
        return found is not None and found.is_detached

    await one.subscriptions.change(project.id, S, options=lambda _: replace(goes, detached=True))
    await wait_until_async(is_detached)
    await two.subscriptions.note_uses({made.id: made.created_on + 10})
    assert await one.subscriptions.delete_unused(made.id, made.created_on + 10) is None
    assert await one.subscriptions.delete_unused(made.id, made.created_on + 11) is not None

    async def is_gone() -> bool:
        return await two.subscriptions.find(project.id, S) is None

    await wait_until_async(is_gone)


async def test_lists_replaced_on_two_nodes_at_once_are_one_of_both(nodes: tuple[Registry, Registry]) -> None:
    """Each replaces all rows: without serializable isolation the database would mix them, or refuse one."""
    one, two = nodes
    project = await make_project(one)
    names = [f"u{n}" for n in range(6)]
    for name in names:
        await make_user(one, name, {project.id: ()})
    await new_topic(one, project)
    lists = (names[:4], names[2:])

    for _ in range(10):
        await asyncio.gather(
            *(each.topics.change_access_list(project.id, T, chosen) for each, chosen in zip(nodes, lists, strict=True))
        )
        assert await two.topics.access_list(project.id, T) in lists


@pytest.mark.parametrize("text", ["a\x00b", "\x1a", "\x1a0\x00\x1a1", "\uffff\U0001f600", "\x1a" * 300])
async def test_every_text_sqlite_keeps_is_kept(url: str, text: str) -> None:
    async with open_registry_at(url) as registry:
        await registry.users.create(registry.users.creation("anna", UserDetails(description=text), {}, None))
        project = await registry.projects.create(text, text, None)

        assert (await registry.projects.find(text)) == project
        assert await registry.projects.find(f"{text}x") is None
        assert (await registry.users.by_name("anna")).description == text
        with pytest.raises(AlreadyExists):
            await registry.projects.create(text, "", None)


async def test_the_key_is_not_changed_under_a_service(nodes: tuple[Registry, Registry]) -> None:
    one, two = nodes
    anna = await make_user(one, "anna")

    with pytest.raises(Unusable, match="other services use this registry"):
        await one.change_key(bytes(32))

    assert await two.users.by_token(str(anna.token)) is not None


async def test_a_key_is_changed_while_no_service_runs(url: str) -> None:
    old, new = KEY.hex(), bytes(32).hex()
    async with open_registry_at(url) as registry:
        anna = await make_user(registry, "anna")
    try:
        assert (await rotate_shared_key(url, "", old, new)).tokens == 1

        with pytest.raises(Unusable, match="the token key is not the one"):
            await Registry.open(url, KEY)
    finally:
        await rotate_shared_key(url, "", new, old)
    async with open_registry_at(url) as registry:
        assert await registry.users.by_token(str(anna.token)) is not None


async def test_a_key_of_a_shared_registry_must_be_given() -> None:
    with pytest.raises(BadSettings, match="AMS_NEW_TOKEN_KEY"):
        await rotate_shared_key("postgresql://ams@db.example/ams", "", KEY.hex(), "")


@pytest.mark.parametrize("is_old", [False, True], ids=["make", "migrate"])
async def test_starting_nodes_migrate_once(postgres_url: str, is_old: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ams.storage.postgresql._LIMITS", ("60000", "60000", "60000"))
    if is_old:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f"CREATE TABLE {REGISTRY.version} (version_num VARCHAR(32) NOT NULL)".encode())

    opened = await asyncio.gather(*(Registry.open(postgres_url, KEY) for _ in range(3)))

    assert await make_project(opened[0]) == await opened[1].projects.find("P")
    for each in opened:
        await each.close()


async def test_a_database_that_cannot_hold_every_text_is_refused(postgres_url: str) -> None:
    with contextlib.closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        connection.execute("CREATE DATABASE narrow ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        try:
            with pytest.raises(Unusable, match="encoding UTF8"):
                await Registry.open(postgres_url.rsplit("/", 1)[0] + "/narrow", KEY)
        finally:
            connection.execute("DROP DATABASE narrow")


async def test_a_server_that_is_not_there_is_told_in_one_line() -> None:
    with pytest.raises(RegistryUnavailable, match=r"^the registry's database does not answer: .*refused") as caught:
        await Registry.open(f"postgresql://ams@127.0.0.1:{free_port()}/ams", KEY, password="hidden")
    assert "hidden" not in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_start_while_others_are_long_at_the_tables_ends_and_says_why(url: str) -> None:
    with psycopg.connect(url) as importing:
        importing.execute(f"SELECT pg_advisory_xact_lock({0x616D735F72656769})")
        with pytest.raises(RegistryUnavailable, match=r": a node makes or migrates tables, or an import"):
            await Registry.open(url, KEY)


async def test_a_url_that_cannot_be_read_is_told_without_showing_it() -> None:
    with pytest.raises(Unusable, match=r"^registry is not a PostgreSQL URL: postgresql://USER@HOST:PORT/DATABASE$"):
        await Registry.open("postgresql://ams:hidden@host/ams?nonsense=1", KEY)


@pytest.fixture
async def hurried_database(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Database]:
    """A database with a limit of a tenth of a second per call."""
    monkeypatch.setattr("ams.storage.postgresql._LIMITS", ("100", "100", "100"))
    database = Database(url, REGISTRY)
    yield database
    await database.close()


async def test_reads_large_writes_and_work_at_length_may_take_longer_than_a_call(hurried_database: Database) -> None:
    def work(connection: Connection, sleeping: str = "SELECT pg_sleep(0.3)") -> int | None:
        connection.execute(text(sleeping))
        time.sleep(0.3)
        return connection.scalar(text("SELECT 1"))

    await hurried_database.write(
        lambda connection: connection.execute(text("SELECT pg_sleep(0.3)")) and None, large=True
    )
    assert await hurried_database.read(lambda connection: work(connection, "SELECT 1")) == 1
    assert await hurried_database.run_long(work) == 1


async def test_who_stands_still_in_its_turn_loses_it_and_has_another(nodes: tuple[Registry, Registry]) -> None:
    one, two = nodes
    began, attempts = asyncio.Event(), 0
    loop = asyncio.get_running_loop()

    def stands_still(connection: Connection) -> int:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            loop.call_soon_threadsafe(began.set)
            time.sleep(2.5)
        return connection.scalar(text("SELECT 1")) or 0

    still = asyncio.ensure_future(one._database.put(stands_still, turn=7))
    await began.wait()
    assert await two._database.put(lambda connection: connection.scalar(text("SELECT 2")), turn=7) == 2
    assert await still == 1
    assert attempts == 2
