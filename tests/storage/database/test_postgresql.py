"""What only PostgreSQL has: several nodes, and a server that may be lost."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import psycopg
import pytest
from sqlalchemy import Connection, text

from ams.access.key_logins import KeyLogins
from ams.app.maintenance import rotate_shared_key
from ams.core.clock import Milliseconds, SystemClock
from ams.core.errors import AlreadyExists, BadSettings, RegistryUnavailable, Unusable
from ams.core.issuer import Issuer
from ams.core.names import (
    BindingName,
    IssuerName,
    ProjectName,
    SchemaName,
    SubscriptionId,
    SubscriptionName,
    TokenName,
    TopicName,
    UserName,
    new_topic_id,
)
from ams.core.parallel_options import ParallelOptions
from ams.storage.database import opening
from ams.storage.database.database import Database
from ams.storage.database.postgresql.listening import Listener
from ams.storage.database.postgresql.store import PostgresStore
from ams.storage.registry.records import SchemaContent, User, UserDetails
from ams.storage.registry.registry import Registry
from ams.storage.registry.tables import REGISTRY
from cluster.ports import free_port
from tests.support import program_keys
from tests.support.administration import KEY, make_project, make_user, open_registry_at
from tests.support.program_keys import public_key

pytestmark = pytest.mark.postgres
WITHIN = 1.0
"""Seconds until every node knows what was changed on one."""
T, S = TopicName("T"), SubscriptionName("S")


@pytest.fixture
def url() -> str:
    from tests.support.databases import empty_registry

    return empty_registry(KEY)


@pytest.fixture
async def nodes(url: str) -> AsyncIterator[tuple[Registry, Registry]]:
    """Two registries on one database, whose caches are believed."""
    async with open_registry_at(url) as one, open_registry_at(url) as two:
        await asyncio.gather(believed(one), believed(two))
        yield one, two


async def believed(registry: Registry) -> None:
    async with asyncio.timeout(20):
        while not registry._database.invalidations.trusted:
            await asyncio.sleep(0.01)


async def until(condition: Callable[[], Awaitable[bool]], seconds: float) -> float:
    """Return after how many seconds a condition held."""
    began = time.monotonic()
    while not await condition():
        assert time.monotonic() < began + seconds
        await asyncio.sleep(0.005)
    return time.monotonic() - began


async def test_a_change_on_one_node_counts_on_the_other_within_a_second(nodes: tuple[Registry, Registry]) -> None:
    one, two = nodes
    project = await make_project(one)
    anna = await make_user(one, "anna", {project.id: ("consumer",)})
    token = str(anna.token)
    await one.topics.create(new_topic_id(), project.id, T)
    await one.subscriptions.create(SubscriptionId("s"), project.id, S, T, 10)
    before = await two.subscriptions.find(project.id, S)
    assert before is not None
    assert await two.topics.find(project.id, T) is not None
    assert (await two.projects.find("P")) == project
    principal = await two.users.principal(token)
    assert principal is not None
    assert "publisher" not in principal.project_roles[project.id]

    await one.users.set_roles(anna.id, project.id, ("publisher",))
    await one.topics.set_access_list(project.id, T, ["anna"])
    await one.subscriptions.set_ack_deadline(project.id, S, 99)
    await one.projects.update(project.id, ProjectName("Q"), "")

    async def known() -> bool:
        subscription = await two.subscriptions.find(project.id, S)
        topic = await two.topics.find(project.id, T)
        principal = await two.users.principal(token)
        assert subscription is not None
        assert topic is not None
        assert principal is not None
        return (
            subscription.ack_deadline_seconds == 99
            and topic.authorized == {anna.id}
            and principal.project_roles[project.id] == {"publisher"}
            and await two.projects.find("P") is None
        )

    await until(known, WITHIN)


async def test_a_dead_token_is_dead_everywhere_within_a_second(nodes: tuple[Registry, Registry]) -> None:
    one, two = nodes
    anna, bert = await make_user(one, "anna"), await make_user(one, "bert")
    for each in (anna, bert):
        assert await two.users.principal(str(each.token)) is not None

    await one.users.refresh_token(anna.id)
    await one.users.delete(bert.id)

    assert await one.users.principal(str(anna.token)) is None

    async def dead() -> bool:
        return [await two.users.principal(str(each.token)) for each in (anna, bert)] == [None, None]

    await until(dead, WITHIN)


async def test_what_was_revoked_of_an_identity_is_dead_everywhere_within_a_second(
    nodes: tuple[Registry, Registry],
) -> None:
    one, two = nodes
    anna, bert = await make_user(one, "anna"), await make_user(one, "bert")
    named = [await _named_token(one, each, "laptop") for each in (anna, bert)]
    issuer = Issuer(IssuerName("i"), "https://issuer.example", audiences=("ams",))
    await one.issuers.create(issuer, None)
    for user, subject in ((anna, "a"), (bert, "b")):
        await one.bindings.create(user.id, BindingName("b"), issuer.url, subject, created_by=None)
    await one.named_tokens.create(
        anna.id, TokenName("ci"), expires_on=None, rights=None, created_by=None, key=public_key()
    )
    logins = KeyLogins(two, SystemClock(), 30)
    signed = program_keys.signed(time.time())
    robot = await logins.principal(signed)
    assert robot is not None
    assert None not in [await two.users.principal(each) for each in named]
    assert None not in [await two.bindings.principal(issuer.url, subject) for subject in "ab"]
    assert await two.issuers.all() == (issuer,)

    await one.named_tokens.revoke(anna.id, TokenName("laptop"))
    await one.named_tokens.revoke(anna.id, TokenName("ci"))
    await one.bindings.delete(anna.id, BindingName("b"))
    await one.users.delete(bert.id)
    await one.issuers.delete(issuer.name)

    async def dead() -> bool:
        tokens = [await two.users.principal(each) for each in named]
        identities = [await two.bindings.principal(issuer.url, subject) for subject in "ab"]
        return not any((*tokens, *identities, logins.known(signed), *await two.issuers.all()))

    await until(dead, WITHIN)


async def _named_token(registry: Registry, user: User, name: str) -> str:
    _, text = await registry.named_tokens.create(
        user.id, TokenName(name), expires_on=None, rights=None, created_by=None
    )
    return text


async def test_a_changed_schema_is_known_on_the_other_node(nodes: tuple[Registry, Registry]) -> None:
    one, two = nodes
    project = await make_project(one)
    content = SchemaContent("json", "{}", None)
    schema = await one.schemas.create(project.id, SchemaName("X"), content)
    await one.topics.create(new_topic_id(), project.id, T, SchemaName("X"))
    topic = await two.topics.find(project.id, T)
    assert topic is not None
    assert topic.schema is not None

    await one.schemas.update(schema, content=SchemaContent("json", "true", None))

    async def known() -> bool:
        topic = await two.topics.find(project.id, T)
        return topic is not None and topic.schema is not None and topic.schema.revision == 2

    await until(known, WITHIN)


async def test_a_node_that_does_not_listen_asks_the_database(nodes: tuple[Registry, Registry], url: str) -> None:
    one, two = nodes
    anna = await make_user(one, "anna")
    assert await two.users.principal(str(anna.token)) is not None
    store = two._database._store
    assert isinstance(store, PostgresStore)
    await store._listener.close()

    assert not two._database.invalidations.trusted
    await one.users.refresh_token(anna.id)

    assert await two.users.principal(str(anna.token)) is None
    assert len(two.users._principals) == 1  # not learnt anew, and not asked


async def test_a_listening_connection_that_was_ended_is_made_anew(nodes: tuple[Registry, Registry], url: str) -> None:
    one, two = nodes
    anna = await make_user(one, "anna")
    assert await two.users.principal(str(anna.token)) is not None

    ended = await asyncio.to_thread(end_listening, url)
    assert ended == 2
    await one.users.refresh_token(anna.id)

    async def dead() -> bool:
        return await two.users.principal(str(anna.token)) is None

    await until(dead, WITHIN)
    await asyncio.gather(believed(one), believed(two))
    assert await dead()  # nor is what it knew before believed again


def end_listening(url: str) -> int:
    """End the connections that listen in a database; return how many there were."""
    with contextlib.closing(psycopg.connect(url, autocommit=True)) as connection:
        ending = """
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND query IN ('LISTEN ams_registry', 'SELECT 1')
        """
        return connection.execute(ending).rowcount


async def test_a_subscription_that_one_node_detaches_and_then_removes_as_unused_is_so_on_the_other(
    nodes: tuple[Registry, Registry],
) -> None:
    one, two = nodes
    project = await make_project(one)
    goes = ParallelOptions(expiration_ttl=Milliseconds(1))
    made = await one.subscriptions.create(SubscriptionId("s"), project.id, S, T, 10, options=goes)
    assert await two.subscriptions.find(project.id, S) == made

    async def is_detached() -> bool:
        found = await two.subscriptions.find(project.id, S)
        return found is not None and found.is_detached

    await one.subscriptions.change_options(project.id, S, lambda _: replace(goes, detached=True))
    await until(is_detached, WITHIN)
    await two.subscriptions.note_uses({made.id: Milliseconds(made.created_on + 10)})
    assert await one.subscriptions.delete_unused(made.id, Milliseconds(made.created_on + 10)) is None
    assert await one.subscriptions.delete_unused(made.id, Milliseconds(made.created_on + 11)) is not None

    async def is_gone() -> bool:
        return await two.subscriptions.find(project.id, S) is None

    await until(is_gone, WITHIN)


async def test_one_of_two_nodes_makes_what_both_are_asked_for(nodes: tuple[Registry, Registry]) -> None:
    project = await make_project(nodes[0])
    topic, subscription = TopicName("t" * 255), SubscriptionName("s" * 255)

    topics = await asyncio.gather(
        *(each.topics.create(new_topic_id(), project.id, topic) for each in nodes), return_exceptions=True
    )
    subscriptions = await asyncio.gather(
        *(each.subscriptions.create(SubscriptionId(f"s{n}"), project.id, subscription, topic, 10)
          for n, each in enumerate(nodes)), return_exceptions=True
    )  # fmt: skip

    for outcomes, kind in ((topics, "Topic"), (subscriptions, "Subscription")):
        refused = [each for each in outcomes if isinstance(each, AlreadyExists)]
        assert [str(each) for each in refused] == [f"{kind} already exists"]
    assert await nodes[1].topics.find(project.id, topic) is not None


async def test_lists_replaced_on_two_nodes_at_once_are_one_of_both(nodes: tuple[Registry, Registry]) -> None:
    """Each replaces all rows: without being serializable, the database would mix them, or refuse one."""
    one, two = nodes
    project = await make_project(one)
    names = [f"u{n}" for n in range(6)]
    for name in names:
        await make_user(one, name, {project.id: ()})
    await one.topics.create(new_topic_id(), project.id, T)
    lists = (names[:4], names[2:])

    for _ in range(10):
        await asyncio.gather(
            *(each.topics.set_access_list(project.id, T, chosen) for each, chosen in zip(nodes, lists, strict=True))
        )
        assert await two.topics.access_list(project.id, T) in lists


@pytest.mark.parametrize("text", ["a\x00b", "\x1a", "\x1a0\x00\x1a1", "\uffff\U0001f600", "\x1a" * 300])
async def test_every_text_sqlite_keeps_is_kept(url: str, text: str) -> None:
    async with open_registry_at(url) as registry:
        await registry.users.create(UserName("anna"), UserDetails(description=text), {}, None)
        project = await registry.projects.create(ProjectName(text), text, None)

        assert (await registry.projects.find(text)) == project
        assert await registry.projects.find(f"{text}x") is None
        anna = await registry.users.by_name(UserName("anna"))
        assert anna is not None
        assert anna.description == text
        with pytest.raises(AlreadyExists):
            await registry.projects.create(ProjectName(text), "", None)


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


async def test_nodes_that_start_together_make_the_tables_once(postgres_url: str) -> None:
    opened = await asyncio.gather(*(Registry.open(postgres_url, KEY) for _ in range(3)))

    assert await make_project(opened[0]) == await opened[1].projects.find("P")
    for each in opened:
        await each.close()


async def test_nodes_that_start_together_migrate_once(postgres_url: str) -> None:
    database = Database(postgres_url, REGISTRY)
    await database.prepare(lambda connection: opening.migrate(connection, REGISTRY, "0001"))
    await database.close()

    opened = await asyncio.gather(*(Registry.open(postgres_url, KEY) for _ in range(3)))

    assert await make_project(opened[0]) == await opened[1].projects.find("P")
    for each in opened:
        await each.close()


async def test_somebody_elses_database_is_refused(postgres_url: str) -> None:
    with contextlib.closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        connection.execute("CREATE TABLE letters (text text)")

    with pytest.raises(Unusable, match="belongs to something else"):
        await Registry.open(postgres_url, KEY)


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

        async with asyncio.timeout(8):
            with pytest.raises(RegistryUnavailable, match=r": a node makes or migrates tables, or an import"):
                await Registry.open(url, KEY)


async def test_a_url_that_cannot_be_read_is_told_without_showing_it() -> None:
    with pytest.raises(Unusable, match=r"^registry is not a PostgreSQL URL: postgresql://USER@HOST:PORT/DATABASE$"):
        await Registry.open("postgresql://ams:hidden@host/ams?nonsense=1", KEY)


async def test_what_is_large_may_take_longer_than_a_call(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ams.storage.database.postgresql.connection._LIMITS", ("100", "100", "100"))

    def write(connection: Connection) -> None:
        connection.execute(text("SELECT pg_sleep(0.3)"))

    def read(connection: Connection) -> int | None:
        connection.execute(text("SELECT 1"))
        time.sleep(0.3)
        return connection.scalar(text("SELECT 1"))

    database = Database(url, REGISTRY)
    try:
        await database.write(write, large=True)
        assert await database.read(read) == 1
    finally:
        await database.close()


async def test_work_at_length_may_take_longer_than_a_call_and_do_nothing_meanwhile(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ams.storage.database.postgresql.connection._LIMITS", ("100", "100", "100"))

    def work(connection: Connection) -> int | None:
        connection.execute(text("SELECT pg_sleep(0.3)"))
        time.sleep(0.3)
        return connection.scalar(text("SELECT 1"))

    database = Database(url, REGISTRY)
    try:
        assert await database.at_length(work) == 1
    finally:
        await database.close()


async def test_who_stands_still_in_its_turn_loses_it_to_others_and_has_another(
    nodes: tuple[Registry, Registry],
) -> None:
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

    async with asyncio.timeout(20):
        still = asyncio.ensure_future(one._database.in_turn(stands_still, 7))
        await began.wait()
        assert await two._database.in_turn(lambda connection: connection.scalar(text("SELECT 2")), 7) == 2
        assert await still == 1
    assert attempts == 2


async def test_a_defect_does_not_end_the_listening(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listen, failures = Listener._listen, iter([KeyError("planted")])

    async def breaks_once(self: Listener) -> None:
        for error in failures:
            raise error
        await listen(self)

    monkeypatch.setattr(Listener, "_listen", breaks_once)

    async with open_registry_at(url) as registry:
        await believed(registry)
