"""PostgreSQL lost under the registry: killed, frozen, replaced, full, or cut off with an answer on its way.

Each write adds one to a number. However it was lost, the number is what the calls that were answered added to it.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from ams.core.errors import OUTCOME_UNKNOWN, RegistryUnavailable
from ams.core.names import ProjectName, TopicId, TopicName, new_topic_id
from ams.storage.postgresql import CALL_SECONDS
from ams.storage.registry.registry import Registry
from cluster.link import Link
from cluster.postgres import Postgres
from tests.storage.database.test_postgresql import believed
from tests.support.administration import make_project, make_user, open_registry_at

pytestmark = [pytest.mark.faults, pytest.mark.postgres]
SLOT_COUNT = 24
"""Connections the server takes; the last three are for administrators, who we are here."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    folder = tmp_path_factory.mktemp("postgres")
    with Postgres(folder, careless=True, settings={"max_connections": str(SLOT_COUNT)}) as server:
        yield server


@pytest.fixture
def database(server: Postgres, request: pytest.FixtureRequest) -> str:
    """The name of a fresh database."""
    name = f"test_{abs(hash(request.node.name))}"
    server.create_database(name)
    return name


@pytest.fixture
def link(server: Postgres) -> Iterator[Link]:
    with Link(server.port(1)) as link:
        yield link


@pytest.fixture
async def linked(server: Postgres, database: str, link: Link) -> AsyncIterator[Registry]:
    """A registry that reaches the server by a link."""
    url = server.url(database).replace(f":{server.port(1)}/", f":{link.port}/")
    async with open_registry_at(url) as registry:
        yield registry


async def make_topic(registry: Registry) -> TopicId:
    project = await make_project(registry)
    return (await registry.topics.create(new_topic_id(), project.id, TopicName("T"))).id


class Adding:
    """Callers who add, one after the other each, and what they were told."""

    def __init__(self, registries: list[Registry], topic: TopicId, callers: int = 3) -> None:
        self.answered = self.failed = 0
        self._over = False
        self._topic = topic
        self._callers = [
            asyncio.create_task(self._add(registries[number % len(registries)])) for number in range(callers)
        ]

    async def __aenter__(self) -> "Adding":
        await asyncio.sleep(0.3)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0.3)
        self._over = True
        await asyncio.gather(*self._callers)

    async def _add(self, registry: Registry) -> None:
        while not self._over:
            try:
                await registry.idempotency.add_bytes({self._topic: 1})
                self.answered += 1
            except RegistryUnavailable:
                self.failed += 1
            await asyncio.sleep(0.002)


async def test_a_server_killed_and_started_again_fails_no_write_and_does_none_twice(
    server: Postgres, database: str
) -> None:
    async with open_registry_at(server.url(database)) as one, open_registry_at(server.url(database)) as two:
        topic = await make_topic(one)
        async with Adding([one, two], topic) as adding:
            for _ in range(3):
                await asyncio.to_thread(server.kill, 1)
                await asyncio.sleep(0.2)
                await asyncio.to_thread(server.restart, 1)
                await asyncio.sleep(0.6)

        assert adding.failed == 0
        assert await two.idempotency.bytes_of(topic) == adding.answered > 20
        await asyncio.gather(believed(one), believed(two))


async def test_connections_cut_at_any_moment_do_no_write_twice(linked: Registry, link: Link) -> None:
    topic = await make_topic(linked)
    async with Adding([linked], topic) as adding:
        for pause in range(15):
            link.cut()
            link.restore()
            await asyncio.sleep(0.05 + pause / 50)

    # What was not answered was done or not; on a busy machine a call may meet one cut after the other.
    assert adding.answered <= await linked.idempotency.bytes_of(topic) <= adding.answered + adding.failed
    assert adding.answered > adding.failed


SLOW_COMMIT = """
    CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.8); RETURN NULL; END';
    CREATE CONSTRAINT TRIGGER slowly AFTER INSERT ON projects DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION slowly();
"""


@contextlib.contextmanager
def administrator(server: Postgres, database: str) -> Iterator["psycopg.Connection"]:
    with server.connected(database) as connection:
        yield connection


async def test_a_commit_whose_answer_is_lost_counts_once(
    server: Postgres, database: str, linked: Registry, link: Link
) -> None:
    with administrator(server, database) as connection:
        connection.execute(SLOW_COMMIT)
    making = asyncio.create_task(linked.projects.create(ProjectName("P"), "", None))
    await asyncio.sleep(0.4)

    link.cut()
    link.restore()

    made = await making
    assert await linked.projects.find("P") == made
    with administrator(server, database) as connection:
        assert connection.execute("SELECT count(*) FROM projects").fetchone() == (1,)


async def test_a_commit_whose_answer_is_lost_with_the_server_is_said_to_be_unknown(
    server: Postgres, database: str, linked: Registry, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linked._database._store._patience, "_seconds", 1.5)  # type: ignore[attr-defined]
    with administrator(server, database) as connection:
        connection.execute(SLOW_COMMIT)
    making = asyncio.create_task(linked.projects.create(ProjectName("P"), "", None))
    await asyncio.sleep(0.4)

    link.cut()

    with pytest.raises(RegistryUnavailable, match=f"^{OUTCOME_UNKNOWN}$"):
        await making
    with pytest.raises(RegistryUnavailable, match="^Internal error while querying datastore$"):
        await linked.projects.create(ProjectName("Q"), "", None)
    with administrator(server, database) as connection:
        assert connection.execute("SELECT name FROM projects").fetchall() == [("P",)]
    link.restore()


async def test_a_commit_that_was_undone_is_done_again(server: Postgres, database: str, linked: Registry) -> None:
    with administrator(server, database) as connection:
        connection.execute(SLOW_COMMIT)
        making = asyncio.create_task(linked.projects.create(ProjectName("P"), "", None))
        await asyncio.sleep(0.4)
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'COMMIT' AND state = 'active'"
        ).rowcount
        assert ended == 1
        connection.execute("DROP TRIGGER slowly ON projects")

    made = await making
    assert await linked.projects.find("P") == made


@pytest.mark.long
async def test_a_frozen_server_is_waited_for_but_not_for_ever(server: Postgres, database: str) -> None:
    async with open_registry_at(server.url(database)) as registry:
        topic = await make_topic(registry)
        server.freeze(1)
        try:
            began = time.monotonic()
            calls = [registry.idempotency.bytes_of(topic) for _ in range(50)] + [
                registry.idempotency.add_bytes({topic: 1})
            ]
            async with asyncio.timeout(5 * CALL_SECONDS):  # all wait together; one after the other they would not end
                answers = await asyncio.gather(*calls, return_exceptions=True)
            took = time.monotonic() - began
        finally:
            server.thaw(1)

        assert {type(answer) for answer in answers} == {RegistryUnavailable}
        assert took > CALL_SECONDS - 1
        assert await registry.idempotency.bytes_of(topic) in (0, 1)


async def test_a_server_frozen_for_a_while_fails_no_call(server: Postgres, database: str) -> None:
    async with open_registry_at(server.url(database)) as registry:
        topic = await make_topic(registry)
        async with Adding([registry], topic) as adding:
            server.freeze(1)
            await asyncio.sleep(4)
            server.thaw(1)
            await asyncio.sleep(0.5)

        assert adding.failed == 0
        assert await registry.idempotency.bytes_of(topic) == adding.answered > 10


async def test_a_node_that_nothing_comes_through_to_stops_believing_within_a_second(
    server: Postgres, database: str, linked: Registry, link: Link
) -> None:
    """Black-holed: the connection stays as it is, and nothing is said any more."""
    await believed(linked)
    async with open_registry_at(server.url(database)) as other:
        anna = await make_user(other, "anna")
        token = str(anna.token)
        assert await linked.users.principal(token) is not None

        link.hold()
        try:
            await other.users.refresh_token(anna.id)
            asked = asyncio.create_task(until_dead(linked, token))
            await asyncio.sleep(1.0)
            assert not linked._database.invalidations.trusted
        finally:
            link.restore()
        await asyncio.wait_for(asked, 8)
        await believed(linked)
        assert await linked.users.principal(token) is None


async def until_dead(registry: Registry, token: str) -> None:
    while await registry.users.principal(token) is not None:
        await asyncio.sleep(0.01)


async def test_a_server_out_of_connections_is_waited_for(server: Postgres, database: str) -> None:
    async with open_registry_at(server.url(database)) as registry:
        topic = await make_topic(registry)
        with contextlib.ExitStack() as hogs:
            with contextlib.suppress(psycopg.OperationalError):
                while True:
                    hogs.enter_context(contextlib.closing(psycopg.connect(server.url(database), connect_timeout=5)))
            async with Adding([registry], topic, callers=8) as adding:
                await asyncio.sleep(1)
                hogs.close()

        assert adding.failed == 0
        assert await registry.idempotency.bytes_of(topic) == adding.answered > 10


@pytest.mark.long
async def test_a_standby_takes_over_and_no_answered_write_is_missing_or_done_twice(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with Postgres(tmp_path_factory.mktemp("postgres"), standbys=2) as servers:
        async with open_registry_at(servers.url()) as registry:
            topic = await make_topic(registry)
            async with Adding([registry], topic, callers=4) as adding:
                servers.kill(1)
                await asyncio.sleep(2)
                await asyncio.to_thread(servers.promote)
                await asyncio.sleep(1)

            assert adding.failed == 0  # so none took longer than a call may
            assert await registry.idempotency.bytes_of(topic) == adding.answered
