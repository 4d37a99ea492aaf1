import contextlib
import shutil
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from ams.app.serving import Running
from ams.app.wiring import put_in_order
from ams.app.wiring.engines import open_engines
from ams.app.wiring.push import issuer_of
from ams.core.clock import ManualClock, SystemClock
from ams.core.errors import Unusable
from ams.core.names import new_topic_id
from ams.core.settings import Settings
from ams.core.supervisor import Supervisor
from ams.storage.files import Disk
from tests.support.service import running_service


@contextlib.asynccontextmanager
async def started(data: Path, **settings: Any) -> AsyncIterator[tuple[Running, httpx.AsyncClient]]:
    """Run a service that has the project P with the topic t; gives a client of the project, which is an admin's."""
    async with (
        running_service(data, **settings) as (run, token),
        httpx.AsyncClient(base_url=f"{run.base_url}/v1/projects/P", headers={"x-api-key": token}) as client,
    ):
        await client.post(f"{run.base_url}/v1/projects/P", json={})
        await client.put("/topics/t")
        yield run, client


SUBSCRIBED = {"topic": "projects/P/topics/t"}
PUBLISHED = {"messages": [{"data": "aGk="}]}


@pytest.mark.embedded("the data folder holds the log")
async def test_topics_whose_log_was_lost_begin_again_and_so_do_their_subscriptions(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with started(data) as (_, client):
        await client.put("/subscriptions/s", json=SUBSCRIBED)
        for _ in range(3):
            await client.post("/topics/t:publish", json=PUBLISHED)
        await client.post("/subscriptions/s:modifyOffset", json={"offset": 3})
    shutil.rmtree(data / "log")

    async with started(data) as (_, client):
        assert (await client.get("/subscriptions/s:offsets")).json() == {"max": 0, "min": 0, "current": 0}
        assert (await client.post("/topics/t:publish", json=PUBLISHED)).json() == {"messageIds": ["0"]}
        pulled = (await client.post("/subscriptions/s:pull", json={})).json()["receivedMessages"]
        assert [each["message"]["messageId"] for each in pulled] == ["0"]


async def test_no_node_starts_beside_messages_with_an_empty_registry(tmp_path: Path) -> None:
    """It would make an administrator, and an import that is under way could not end."""
    settings = Settings(data=str(tmp_path / "data"))
    async with open_engines(settings, SystemClock(), Disk(), lambda _: None, Supervisor()) as engines:
        await engines.log.create(new_topic_id())
        shared = replace(engines, embedded=None)  # others may use the engines

        with pytest.raises(Unusable, match=r"^the registry is empty but the log is not \(topics: 1\)"):
            await put_in_order(settings, shared)

        assert not await engines.registry.users.exist()


async def test_only_a_service_that_is_alone_removes_what_looks_left_over(tmp_path: Path) -> None:
    """Where there are others, one of them may just be making it."""
    settings = Settings(data=str(tmp_path / "data"))
    async with open_engines(settings, SystemClock(), Disk(), lambda _: None, Supervisor()) as engines:
        await put_in_order(settings, engines)
        left_over = new_topic_id()
        await engines.log.create(left_over)

        await put_in_order(settings, replace(engines, embedded=None))
        assert await engines.log.topics() == {left_over}

        await put_in_order(settings, engines)
        assert await engines.log.topics() == set()


async def test_in_a_folder_that_all_may_read_only_the_certificate_is_for_all(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    data.chmod(0o755)
    async with running_service(data, tls_self_signed=True) as (run, _):
        places = list(data.rglob("*"))
        readable = {each.name for each in places if each.stat().st_mode & 0o077}

    assert run.base_url.startswith("https")
    assert {"cursors.db", "registry.db", "log", "7d", "control"} <= {each.name for each in places}
    assert readable == {"ca.pem", "server.pem"}


WITH_PUSH = {"push_enabled": True, "push_worker_token": "w0rker"}


async def test_a_start_with_push_makes_the_worker_beside_the_first_administrator(tmp_path: Path) -> None:
    for _ in range(2):
        async with started(tmp_path / "data", **WITH_PUSH) as (run, client):
            users = (await client.get(f"{run.base_url}/v1/users")).json()["users"]
            assert [user["name"] for user in users] == ["push_worker_0", "admin"]
            me = await client.get(f"{run.base_url}/v1/users/profile", headers={"x-api-key": "w0rker"})
            assert me.status_code == 200


async def test_what_was_configured_survives_a_restart(tmp_path: Path) -> None:
    push = {"type": "mattermost", "mattermostUrl": "https://chat.example/hooks/x", "base64Decode": True}
    seen = []
    for _ in range(2):
        async with started(tmp_path / "data", **WITH_PUSH) as (_, client):
            await client.put("/subscriptions/s", json=SUBSCRIBED | {"pushConfig": push})
            seen.append((await client.get("/subscriptions/s")).json())

    assert seen[0]["pushConfig"]["base64Decode"]
    assert seen[0] == seen[1]


async def test_what_was_lost_is_known_from_the_start(tmp_path: Path) -> None:
    clock = ManualClock()
    async with started(tmp_path / "data", clock=clock) as (run, client):
        await client.put("/subscriptions/s", json=SUBSCRIBED)
        for _ in range(3):
            await client.post("/topics/t:publish", json=PUBLISHED)
        await client.post("/topics/t:modifyRetention", json={"retentionSeconds": 1})
        clock.advance(1100)
        await run.service.log.retain()

    async with started(tmp_path / "data", clock=clock) as (run, _):
        assert run.service.losses.messages == 3


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"push_allow": "localhost"}, "^push_"),
        ({"push_enabled": True, "push_ca_file": "/nowhere/ca.pem"}, "^push_"),
        ({"roles_file": "roles.toml"}, "there is no action 'topics:water'$"),
    ],
)
async def test_bad_settings_stop_a_start_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "roles.toml").write_text('"topics:water" = []')

    with pytest.raises(Unusable, match=reason):
        async with running_service(tmp_path / "data", **settings):
            raise AssertionError("it started")

    assert not (tmp_path / "data").exists()


TLS = {"cert": "chain.pem", "key": "key.pem"}


@pytest.mark.parametrize(
    ("settings", "issuer"),
    [({"proxy_hostname": "ams.example", "port": 8080}, "https://ams.example"),
     ({"host": "127.0.0.1", "port": 8080}, "http://127.0.0.1:8080"),
     ({"host": "::1", "port": 80}, "http://[::1]"),
     ({"host": "ams.example", "port": 8443, **TLS}, "https://ams.example:8443"),
     ({"host": "ams.example", "port": 443, **TLS}, "https://ams.example"),
     ({"host": "127.0.0.1", "port": 8443, "tls_self_signed": True}, "https://localhost:8443"),
     ({"host": "0.0.0.0", "port": 443, **TLS}, f"https://{socket.gethostname()}")],
)  # fmt: skip
def test_the_issuer_is_where_the_service_is_found(settings: dict[str, object], issuer: str) -> None:
    assert issuer_of(Settings(**settings)) == issuer  # type: ignore[arg-type]
