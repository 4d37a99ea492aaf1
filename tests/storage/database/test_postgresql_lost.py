"""PostgreSQL failures under the registry: killed, frozen, replaced, full, or cut off before an answer arrives.

Each write adds one to a number. After any failure, the number is the sum of the answered calls.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from ams.core.errors import OUTCOME_UNKNOWN, RegistryUnavailable
from ams.core.names import TopicId, new_uuid
from ams.storage.postgresql import CALL_SECONDS
from ams.storage.registry.records import Project
from ams.storage.registry.registry import Registry
from local_cluster.link import Link
from local_cluster.postgres import Postgres
from tests.storage.database.test_postgresql import wait_until_trusted
from tests.storage.registry.makers import new_topic
from tests.support.administration import make_project, make_user, open_registry_at
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.faults, pytest.mark.postgres]
SLOT_COUNT = 24  # connections the server takes; the last three are for administrators, who we are here


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    folder = tmp_path_factory.mktemp("postgres")
    with Postgres(folder, careless=True, settings={"max_connections": str(SLOT_COUNT)}) as server:
        yield server


@pytest.fixture
def database(server: Postgres) -> str:
    name = f"test_{new_uuid().replace('-', '_')}"
    server.create_database(name)
    return name


@pytest.fixture
def link(server: Postgres) -> Iterator[Link]:
    with Link(server.port(1)) as link:
        yield link


@pytest.fixture
async def linked_registry(server: Postgres, database: str, link: Link) -> AsyncIterator[Registry]:
    async with open_registry_at(server.url(database).replace(f":{server.port(1)}/", f":{link.port}/")) as registry:
        yield registry


async def make_topic(registry: Registry) -> TopicId:
    return (await new_topic(registry, await make_project(registry))).id


class AddingCallers:
    def __init__(self, registries: list[Registry], topic: TopicId, callers: int = 3) -> None:
        self.answered = self.failed = 0
        self._over = False
        self._topic = topic
        self._callers = [
            asyncio.create_task(self._add(registries[number % len(registries)])) for number in range(callers)
        ]

    async def __aenter__(self) -> "AddingCallers":
        await self.more()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.more()
        self._over = True
        await asyncio.gather(*self._callers)

    async def more(self) -> None:
        enough = self.answered + 10
        await wait_until_async(lambda: self.answered >= enough)

    async def _add(self, registry: Registry) -> None:
        while not self._over:
            try:
                await registry.idempotency.add_bytes({self._topic: 1})
                self.answered += 1
            except RegistryUnavailable:
                self.failed += 1
            await asyncio.sleep(0.002)


@pytest.mark.long
async def test_a_killed_server_fails_no_write_and_does_none_twice(server: Postgres, database: str) -> None:
    async with open_registry_at(server.url(database)) as one, open_registry_at(server.url(database)) as two:
        topic = await make_topic(one)
        async with AddingCallers([one, two], topic) as adding:
            for _ in range(3):
                await asyncio.to_thread(server.kill, 1)
                await asyncio.to_thread(server.restart, 1)
                await adding.more()

        assert adding.failed == 0
        assert await two.idempotency.bytes_of(topic) == adding.answered
        await asyncio.gather(wait_until_trusted(one), wait_until_trusted(two))


@pytest.mark.long
async def test_connections_cut_at_any_moment_do_no_write_twice(linked_registry: Registry, link: Link) -> None:
    topic = await make_topic(linked_registry)
    async with AddingCallers([linked_registry], topic) as adding:
        for pause in range(15):
            link.cut()
            link.restore()
            await asyncio.sleep(0.05 + pause / 50)

    # An unanswered call was executed or not; on a busy machine a call may meet two cuts in a row.
    assert adding.answered <= await linked_registry.idempotency.bytes_of(topic) <= adding.answered + adding.failed


WAITING_COMMIT = """
    CREATE FUNCTION waiting() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END';
    CREATE CONSTRAINT TRIGGER waiting AFTER INSERT ON projects DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION waiting();
"""
IS_ONE_WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND query = 'COMMIT' AND wait_event = 'advisory'
"""


@contextlib.asynccontextmanager
async def hold_commit(
    server: Postgres, database: str, registry: Registry
) -> AsyncIterator["tuple[psycopg.Connection, asyncio.Task[Project]]"]:
    """Create a project whose commit waits until the end of the block; yields a connection beside it, and the task."""
    with server.open_connection(database) as connection:
        connection.execute(WAITING_COMMIT)
        connection.execute("SELECT pg_advisory_lock(7)")
        making = asyncio.create_task(registry.projects.create("P", "", None))
        await wait_until_async(lambda: connection.execute(IS_ONE_WAITING).fetchone() == (1,))
        yield connection, making


async def test_an_unanswered_commit_counts_once(server: Postgres, database: str, linked_registry: Registry, link: Link):
    async with hold_commit(server, database, linked_registry) as (_, making):
        link.cut()
    link.restore()

    made = await making
    assert await linked_registry.projects.find("P") == made
    assert len(await linked_registry.projects.all()) == 1


async def test_a_commit_whose_answer_is_lost_with_the_server_is_said_to_be_unknown(
    server: Postgres, database: str, linked_registry: Registry, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hold_commit(server, database, linked_registry) as (_, making):
        monkeypatch.setattr(linked_registry._database._store._patience, "_seconds", 1.5)
        link.cut()

    with pytest.raises(RegistryUnavailable, match=f"^{OUTCOME_UNKNOWN}$"):
        await making
    with pytest.raises(RegistryUnavailable, match="^Internal error while querying datastore$"):
        await linked_registry.projects.create("Q", "", None)
    with server.open_connection(database) as connection:
        names = "SELECT name FROM projects"
        await wait_until_async(lambda: connection.execute(names).fetchall() == [("P",)])
    link.restore()


async def test_a_commit_undone_is_done_again(server: Postgres, database: str, linked_registry: Registry) -> None:
    async with hold_commit(server, database, linked_registry) as (connection, making):
        connection.execute(IS_ONE_WAITING.replace("count(*)", "pg_terminate_backend(pid)"))
        await wait_until_async(lambda: connection.execute(IS_ONE_WAITING).fetchone() == (0,))
        connection.execute("DROP TRIGGER waiting ON projects")

    made = await making
    assert await linked_registry.projects.find("P") == made


@pytest.mark.long
async def test_a_frozen_server_is_waited_for_but_not_for_ever(server: Postgres, database: str) -> None:
    async with open_registry_at(server.url(database)) as registry:
        topic = await make_topic(registry)
        server.freeze(1)
        try:
            began = time.monotonic()
            calls = [registry.idempotency.bytes_of(topic) for _ in range(50)]
            answers = await asyncio.gather(*calls, registry.idempotency.add_bytes({topic: 1}), return_exceptions=True)
            took = time.monotonic() - began
        finally:
            server.thaw(1)

        assert {type(answer) for answer in answers} == {RegistryUnavailable}
        assert took > CALL_SECONDS - 1
        assert await registry.idempotency.bytes_of(topic) in (0, 1)


async def test_cut_nodes_trust_nothing(server: Postgres, database: str, linked_registry: Registry, link: Link) -> None:
    """Black-holed: the connection stays open, and no packets arrive."""
    await wait_until_trusted(linked_registry)
    async with open_registry_at(server.url(database)) as other:
        anna = await make_user(other, "anna")
        token = str(anna.token)
        assert await linked_registry.users.principal(token) is not None

        link.hold()
        try:
            await other.users.refresh_token(anna.id)
            await wait_until_async(lambda: not linked_registry._database.invalidations.validity.holds())
        finally:
            link.restore()
        assert await linked_registry.users.principal(token) is None
        await wait_until_trusted(linked_registry)
        assert await linked_registry.users.principal(token) is None


@pytest.mark.long
async def test_a_server_out_of_connections_is_waited_for(server: Postgres, database: str) -> None:
    async with open_registry_at(server.url(database)) as registry:
        topic = await make_topic(registry)
        with contextlib.ExitStack() as hogs:
            with contextlib.suppress(psycopg.OperationalError):
                while True:
                    hogs.enter_context(contextlib.closing(psycopg.connect(server.url(database), connect_timeout=5)))
            async with AddingCallers([registry], topic, callers=8) as adding:
                hogs.close()

        assert adding.failed == 0
        assert await registry.idempotency.bytes_of(topic) == adding.answered
