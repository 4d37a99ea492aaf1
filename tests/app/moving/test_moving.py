"""Moving an installation: the API's answers are the same afterwards, on Kafka and PostgreSQL too."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from ams.app.moving.exporter import Installation, export
from ams.app.moving.importer import check, import_
from ams.core.clock import SystemClock
from ams.core.errors import Unusable
from ams.core.offsets import ranges_of
from ams.service.push.configurations import FIRST_WORKER
from ams.storage.log.base import Log
from ams.storage.registry.records import PageRequest
from tests.app.moving.installation import DAY, ISSUER, Answers, api_answers, furnished_folder, installation, service
from tests.app.moving.lines import ignore_progress
from tests.support.clock import ManualClock
from tests.support.program_keys import public_key


class FullSource(NamedTuple):
    """An installation with every kind of resource, an export of it, and the API's answers."""

    data: Path
    export: Path
    told: Answers
    now: int
    named: str

    @property
    def clock(self) -> ManualClock:
        return ManualClock(self.now)


@pytest.fixture(scope="module")
def full_source(tmp_path_factory: pytest.TempPathFactory) -> FullSource:
    """Make one installation for all tests; tests that change it work on a copy."""
    folder, clock = tmp_path_factory.mktemp("furnished"), ManualClock()

    async def make() -> tuple[Answers, str]:
        told_of, named = await furnished_folder(folder / "data", clock)
        async with installation(folder / "data", clock) as source:
            await export(source, str(folder / "export"), ignore_progress)
        return told_of, named

    told_of, named = asyncio.run(make())
    return FullSource(folder / "data", folder / "export", told_of, clock.now, named)


async def import_export(furnished: FullSource, path: Path, target: Path) -> None:
    async with installation(target, furnished.clock) as empty:
        assert await import_(empty, str(path), ignore_progress) == check(str(path), ignore_progress)


async def stored_state(opened: Installation) -> dict[str, Any]:
    registry, whole = opened.registry, PageRequest(size=1000)
    projects, subscriptions = await registry.projects.all(), await registry.subscriptions.all()
    users = (await registry.users.page(whole)).items
    places = await opened.cursors.places()
    return {
        "users": users,
        "projects": projects,
        "subscriptions": subscriptions,
        "topics": [(await registry.topics.page(each.id, whole)).items for each in projects],
        "snapshots": [(await registry.snapshots.page(each.id, whole)).items for each in projects],
        "schemas": [await registry.schemas.all(each.id) for each in projects],
        "issuers": await registry.issuers.all(),
        "named tokens": [await registry.named_tokens.of(each.id) for each in users],
        "bindings": [await registry.bindings.of(each.id) for each in users],
        "push secrets": list((await registry.push_secrets.all_valid()).values()),
        "lost": await opened.cursors.lost_in_all({}),
        "progress": {
            each.name: (progress.floor, ranges_of(progress.done))
            for each in subscriptions
            if each.id in places and each.topic != "going"  # which is gone: no position in it means anything
            for progress in [await opened.cursors.take_over(each.id, places[each.id].topic)]
        },
    }


@pytest.mark.parametrize("name", ["export.jsonl", pytest.param("export.jsonl.gz", marks=pytest.mark.long)])
async def test_all_that_is_held_and_told_is_the_same_after_a_move(full_source: FullSource, tmp_path: Path, name: str):
    shutil.copytree(full_source.data, tmp_path / "old")
    async with installation(tmp_path / "old", full_source.clock) as source:
        before = await stored_state(source)
        await export(source, str(tmp_path / name), ignore_progress)

    await import_export(full_source, tmp_path / name, tmp_path / "new")

    async with installation(tmp_path / "new", full_source.clock) as target:
        after = await stored_state(target)
    assert after == before
    assert before["lost"] > 0
    assert before["progress"]["parallel"] == (50, [(60, 90), (95, 97)])
    assert [len(each) for each in (*before["named tokens"], *before["bindings"]) if each] == [2, 1, 1, 1]
    assert [len(each) for each in before["push secrets"]] == [2]
    async with service(tmp_path / "new", full_source.clock) as api:
        told_after = await api_answers(api, full_source.clock)
    assert {path for path, answer in full_source.told.items() if told_after[path] != answer} == set()
    assert full_source.told["/projects/P/topics/partly:offsets"] == (200, '{"min":3,"max":10}')


async def test_named_tokens_keys_and_bindings_let_in_as_before(full_source: FullSource, tmp_path: Path) -> None:
    async with installation(full_source.data, full_source.clock) as opened:
        principal = await opened.registry.users.principal(full_source.named)

    await import_export(full_source, full_source.export, tmp_path / "new")

    async with installation(tmp_path / "new", full_source.clock) as opened:
        found = await opened.registry.users.principal(full_source.named)
        bound = await opened.registry.bindings.principal(ISSUER.url, "alice")
        holder = await opened.registry.named_tokens.holder(public_key().id)
    assert holder is not None
    assert (holder.principal.name, holder.key) == ("user-2", public_key())
    assert found == principal
    assert found is not None
    assert found.login is not None
    assert bound == (replace(found, login=None), False)
    assert full_source.named not in full_source.export.read_text()


async def test_without_secrets_there_are_none_and_new_ones_are_made(full_source: FullSource, tmp_path: Path) -> None:
    clock, path = full_source.clock, tmp_path / "file"
    shutil.copytree(full_source.data, tmp_path / "old")
    async with service(tmp_path / "old", clock) as api:
        users = (await api.ask("GET", "/users?pageSize=1000"))["users"]
        push = (await api.ask("GET", "/projects/P/subscriptions/pushed"))["pushConfig"]
    async with installation(tmp_path / "old", clock) as source:
        before = await stored_state(source)
        counts = await export(source, str(path), ignore_progress, with_secrets=False)

    said = path.read_text()
    secrets = [each["token"] for each in users] + [push["verificationHash"], push["authorizationHeader"]["value"]]
    secrets += [ISSUER.client_secret, *(secret for each in before["push secrets"] for secret in each)]
    assert all(secrets)
    assert [each for each in secrets if each in said] == []
    assert (counts["binding"], counts["issuer"]) == (2, 2)
    assert "named_token" not in counts
    await import_export(full_source, path, tmp_path / "new")
    async with service(tmp_path / "new", clock) as api:
        after = (await api.ask("GET", "/users?pageSize=1000"))["users"]
        new = (await api.ask("GET", "/projects/P/subscriptions/pushed"))["pushConfig"]
        assert (await api.answer("GET", "/users/profile", token=users[0]["token"])).status_code == 401
    async with installation(tmp_path / "new", clock) as opened:
        here = await stored_state(opened)
    assert here["issuers"] == (replace(ISSUER, client_secret=""), *before["issuers"][1:])
    assert here["bindings"] == before["bindings"]
    assert (here["push secrets"], [each for each in here["named tokens"] if each]) == ([], [])
    assert [each["name"] for each in after] == [each["name"] for each in users]
    others = [each for each in (*users, *after) if each["name"] != FIRST_WORKER]  # whose token a setting says
    assert len({each["token"] for each in others}) == len(others) == 2 * (len(users) - 1)
    assert new["verificationHash"] not in ("", push["verificationHash"])
    assert new["authorizationHeader"]["value"] not in ("", push["authorizationHeader"]["value"])


@pytest.mark.parametrize("after", [
    "message", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("log", "lost", "user", "subscription")),
])  # fmt: skip
async def test_a_broken_import_is_not_served_and_goes_on(full_source: FullSource, tmp_path: Path, after: str) -> None:
    lines = full_source.export.read_bytes().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if f'"kind":"{after}"'.encode() in line)
    cut = tmp_path / "cut"
    cut.write_bytes(b"".join(lines[:last]))
    async with installation(tmp_path / "new", full_source.clock) as target:
        with pytest.raises(Unusable, match="the last line is missing"):
            await import_(target, str(cut), ignore_progress)

    with pytest.raises(Unusable, match="the registry is empty but the log is not"):
        async with service(tmp_path / "new", full_source.clock):
            pass
    await import_export(full_source, full_source.export, tmp_path / "new")

    async with installation(tmp_path / "new", full_source.clock) as source:
        await export(source, str(tmp_path / "again"), ignore_progress)
    assert (tmp_path / "again").read_bytes().splitlines(keepends=True)[1:] == lines[1:]


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()[1:]


def registry_at(url: str) -> dict[str, str]:
    parts = urlsplit(url)
    without = parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", "@"))
    return {"registry": without.geturl(), "registry_password": parts.password or ""}


async def offsets_at(log: Log, clock: ManualClock) -> dict[object, object]:
    times = [clock.now - DAY * day - shift for day in range(11) for shift in (0, 1, 5001, 6234, 6235, 8702)]
    return {(topic, time): await log.offset_at(topic, time) for topic in await log.topics() for time in times}


@pytest.mark.long
async def test_a_cluster_gives_all_of_it_back(tmp_path: Path, kafka_servers: str, kafka_prefix: str, postgres_url: str):
    clock = ManualClock(SystemClock().wall() - 11 * DAY)  # brokers go by their own clocks: to them all is new enough
    cluster = {
        "log": "kafka", "kafka_servers": kafka_servers, "kafka_prefix": kafka_prefix, "kafka_replication": 1,
        "kafka_min_isr": 1, **registry_at(postgres_url),
    }  # fmt: skip
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    before, _ = await furnished_folder(tmp_path / "old", clock)
    async with installation(tmp_path / "old", clock) as old:
        await export(old, str(one), ignore_progress)
        found = await offsets_at(old.log, clock)

    async with installation(tmp_path / "node", clock, **cluster) as moved:
        await import_(moved, str(one), ignore_progress)
        await export(moved, str(two), ignore_progress)
        assert await offsets_at(moved.log, clock) == found
        assert await moved.log.weak_topics() == {}
    async with service(tmp_path / "node", clock, **cluster) as api:
        after = await api_answers(api, clock)
        assert {path for path in before if before[path] != after[path]} == set()
    async with installation(tmp_path / "new", clock) as back:
        await import_(back, str(two), ignore_progress)
        await export(back, str(three), ignore_progress)
        assert await offsets_at(back.log, clock) == found

    assert lines(one) == lines(two) == lines(three)
