import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from ams.app.wiring import put_in_order
from ams.app.wiring.engines import open_engines
from ams.core.clock import SystemClock
from ams.core.errors import Unusable
from ams.core.names import new_topic_id
from ams.core.settings import Settings
from ams.core.supervisor import Supervisor
from ams.storage.files import Disk
from tests.support.service import running_service


@pytest.mark.embedded("the data folder holds the log")
async def test_topics_whose_log_was_lost_begin_again_and_so_do_their_subscriptions(tmp_path: Path) -> None:
    data = tmp_path / "data"
    publish = {"messages": [{"data": "aGk="}]}
    async with (
        running_service(data) as (run, token),
        httpx.AsyncClient(base_url=run.base_url + "/v1/projects/P", headers={"x-api-key": token}) as client,
    ):
        assert (await client.post(run.base_url + "/v1/projects/P", json={})).status_code == 200
        await client.put("/topics/t")
        await client.put("/subscriptions/s", json={"topic": "projects/P/topics/t"})
        for _ in range(3):
            await client.post("/topics/t:publish", json=publish)
        await client.post("/subscriptions/s:modifyOffset", json={"offset": 3})
    shutil.rmtree(data / "log")

    async with (
        running_service(data) as (run, token),
        httpx.AsyncClient(base_url=run.base_url + "/v1/projects/P", headers={"x-api-key": token}) as client,
    ):
        assert (await client.get("/subscriptions/s:offsets")).json() == {"max": 0, "min": 0, "current": 0}
        assert (await client.post("/topics/t:publish", json=publish)).json() == {"messageIds": ["0"]}
        pulled = (await client.post("/subscriptions/s:pull", json={})).json()["receivedMessages"]
        assert [each["message"]["messageId"] for each in pulled] == ["0"]


async def test_a_bad_roles_file_stops_the_start_before_anything_is_made(tmp_path: Path) -> None:
    roles = tmp_path / "roles.toml"
    roles.write_text('"topics:water" = []')

    with pytest.raises(Unusable, match="there is no action 'topics:water'$"):
        async with running_service(tmp_path / "data", roles_file=str(roles)):
            pass

    assert not (tmp_path / "data").exists()


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


@pytest.mark.parametrize(
    "settings", [{"push_allow": "localhost"}, {"push_enabled": True, "push_ca_file": "/nowhere/ca.pem"}]
)
async def test_bad_settings_of_push_stop_the_start_before_anything_is_made(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    with pytest.raises(Unusable, match="^push_"):
        async with running_service(tmp_path / "data", **settings):
            raise AssertionError("it started")

    assert not (tmp_path / "data").exists()


async def test_a_start_with_push_makes_the_worker_beside_the_first_administrator(tmp_path: Path) -> None:
    for _ in range(2):
        async with (
            running_service(tmp_path / "data", push_enabled=True, push_worker_token="w0rker") as (run, token),
            httpx.AsyncClient(base_url=run.base_url + "/v1", headers={"x-api-key": token}) as client,
        ):
            names = [user["name"] for user in (await client.get("/users")).json()["users"]]
            assert names == ["push_worker_0", "admin"]
            assert (await client.get("/users/profile", headers={"x-api-key": "w0rker"})).status_code == 200


async def test_what_was_configured_survives_a_restart(tmp_path: Path) -> None:
    push = {"type": "mattermost", "mattermostUrl": "https://chat.example/hooks/x", "base64Decode": True}
    data, settings = tmp_path / "data", {"push_enabled": True, "push_worker_token": "w0rker"}
    seen = []
    for _ in range(2):
        async with (
            running_service(data, **settings) as (run, token),
            httpx.AsyncClient(base_url=run.base_url + "/v1/projects/P", headers={"x-api-key": token}) as client,
        ):
            await client.post(run.base_url + "/v1/projects/P", json={})
            await client.put("/topics/t")
            await client.put("/subscriptions/s", json={"topic": "projects/P/topics/t", "pushConfig": push})
            seen.append((await client.get("/subscriptions/s")).json())

    assert seen[0]["pushConfig"]["base64Decode"]
    assert seen[0] == seen[1]


async def test_what_was_lost_is_known_from_the_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    options = {"min_free_bytes": 0, "reserve_bytes": 0}
    async with running_service(data, **options) as (run, token):
        async with httpx.AsyncClient(base_url=run.base_url + "/v1/projects/P", headers={"x-api-key": token}) as client:
            await client.post(run.base_url + "/v1/projects/P", json={})
            await client.put("/topics/t")
            await client.put("/subscriptions/s", json={"topic": "projects/P/topics/t"})
            await client.post("/topics/t:publish", json={"messages": [{"data": "aGk="}] * 3})
            await client.post("/topics/t:modifyRetention", json={"retentionSeconds": 1})
        await asyncio.sleep(1.1)
        await run.service.log.retain()

    async with running_service(data, **options) as (run, _):
        assert run.service.losses.messages == 3
