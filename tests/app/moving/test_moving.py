"""Moving an installation: everything the API tells is the same afterwards."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from ams.app.moving import check, export, import_
from ams.core.clock import ManualClock
from ams.core.errors import Unusable
from ams.core.names import Offset, SchemaName, SnapshotName, SubscriptionName, TopicName
from ams.core.offsets import bitmap_of, ranges_of
from ams.service.push.pushing import FIRST_WORKER
from ams.storage.registry.records import NamedToken, PageRequest, Schema, Snapshot, Subscription, Topic
from ams.storage.registry.registry import Registry
from tests.app.moving.installation import ISSUER, Told, furnish, furnish_identity, installation, service, told
from tests.support.program_keys import public_key


class Furnished(NamedTuple):
    """An installation with something of everything, an export of it, and what its API told."""

    data: Path
    export: Path
    told: Told
    now: int
    named: str
    """A named token."""

    @property
    def clock(self) -> ManualClock:
        """A clock at the moment after all that happened."""
        return ManualClock(self.now)


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Furnished:
    """Furnish an installation once; who changes it works on a copy."""
    folder, clock = tmp_path_factory.mktemp("furnished"), ManualClock()

    async def make() -> tuple[Told, str]:
        async with service(folder / "data", clock) as api:
            await furnish(api, clock)
        async with installation(folder / "data", clock) as source:
            named = await furnish_identity(source.registry)
        async with service(folder / "data", clock) as api:  # when acknowledgements were is told until a restart only
            told_of = await told(api, clock)
        async with installation(folder / "data", clock) as source:
            await export(source, str(folder / "export"), quiet)
        return told_of, named

    told_of, named = asyncio.run(make())
    return Furnished(folder / "data", folder / "export", told_of, clock.now, named)


def quiet(done: int, expected: int | None) -> None:
    """Hear of the progress."""


async def imported(furnished: Furnished, path: Path, target: Path) -> None:
    async with installation(target, furnished.clock) as empty:
        assert await import_(empty, str(path), quiet) == check(str(path), quiet)


@pytest.mark.parametrize("name", ["export.jsonl", "export.jsonl.gz"])
async def test_all_that_is_told_is_the_same_after_a_move(furnished: Furnished, tmp_path: Path, name: str):
    before = furnished.told
    async with installation(furnished.data, furnished.clock) as source:
        await export(source, str(tmp_path / name), quiet)

    await imported(furnished, tmp_path / name, tmp_path / "new")

    async with service(tmp_path / "new", furnished.clock) as api:
        after = await told(api, furnished.clock)
    assert {path for path in before if before[path] != after[path]} == set()
    assert before["/projects/P/topics/partly:offsets"] == (200, '{"min":3,"max":10}')


async def test_consumers_publishers_and_people_go_on_where_they_were(furnished: Furnished, tmp_path: Path):
    shutil.copytree(furnished.data, tmp_path / "old")
    async with service(tmp_path / "old", furnished.clock) as api:
        token = (await api.ask("GET", "/users/user-1"))["token"]
        halfway = [each["message"] for each in await api.pull("halfway", 200)]

    await imported(furnished, furnished.export, tmp_path / "new")

    async with service(tmp_path / "new", furnished.clock) as api:
        assert (await api.ask("GET", "/users/profile", token=token))["name"] == "user-1"
        pulled = await api.pull("halfway", 200)
        assert [each["message"] for each in pulled] == halfway
        await api.acknowledge("halfway", pulled[-1]["ackId"])
        assert await api.pull("done", 10) == []
        for topic, next_id in (("full", "150"), ("emptied", "3"), ("quiet", "0")):
            assert (await api.publish(topic, "new"))["messageIds"] == [next_id]
        assert [each["message"]["messageId"] for each in await api.pull("done", 10)] == ["150"]


async def test_what_retention_took_is_still_counted(furnished: Furnished, tmp_path: Path):
    await imported(furnished, furnished.export, tmp_path / "new")

    lost = []
    for data in (furnished.data, tmp_path / "new"):
        async with installation(data, furnished.clock) as opened:
            lost.append(await opened.cursors.lost_in_all({}))
    assert lost[0] == lost[1] > 0


async def test_what_is_done_of_a_parallel_subscription_is_done_after_a_move(furnished: Furnished, tmp_path: Path):
    shutil.copytree(furnished.data, tmp_path / "old")
    ranges = [(Offset(7), Offset(9)), (Offset(60), Offset(90))]
    async with installation(tmp_path / "old", furnished.clock) as source:
        sub = next(each for each in await source.registry.subscriptions.all() if each.name == "parallel")
        place = (await source.cursors.places())[sub.id]
        await source.cursors.restore(sub.id, place.topic, Offset(5), bitmap_of(ranges))
        await export(source, str(tmp_path / "export"), quiet)

    await imported(furnished, tmp_path / "export", tmp_path / "new")

    async with installation(tmp_path / "new", furnished.clock) as target:
        progress = await target.cursors.take_over(sub.id, place.topic)
    assert (progress.floor, ranges_of(progress.done)) == (5, ranges)


async def test_labels_and_revisions_are_the_same_after_a_move(furnished: Furnished, tmp_path: Path):
    shutil.copytree(furnished.data, tmp_path / "old")
    async with installation(tmp_path / "old", furnished.clock) as source:
        before = await labelled(source.registry)
        await export(source, str(tmp_path / "export"), quiet)

    await imported(furnished, tmp_path / "export", tmp_path / "new")

    async with installation(tmp_path / "new", furnished.clock) as target:
        registry, project = target.registry, await target.registry.projects.find("P")
        assert project is not None
        topic = await registry.topics.find(project.id, TopicName("full"))
        subscription = await registry.subscriptions.find(project.id, SubscriptionName("working"))
        snapshot = await registry.snapshots.find(project.id, SnapshotName("before"))
        schema = await registry.schemas.find(project.id, SchemaName("renamed"))
    assert (topic, subscription, snapshot, schema) == before


async def labelled(registry: Registry) -> tuple[Topic, Subscription, Snapshot, Schema]:
    """Give a topic, a subscription and a snapshot labels, and the topic a schema with a deleted revision."""
    project = await registry.projects.find("P")
    assert project is not None
    schema = await registry.schemas.find(project.id, SchemaName("renamed"))
    assert schema is not None
    schema = await registry.schemas.delete_revision(schema.id, schema.revision)
    full, working, before = TopicName("full"), SubscriptionName("working"), SnapshotName("before")
    await registry.topics.set_schema(project.id, full, schema.name, encoding="JSON", first_revision=1)
    topic = await registry.topics.set_labels(project.id, full, {"of": "a topic"})
    subscription = await registry.subscriptions.set_labels(project.id, working, {"of": "a subscription"})
    assert await registry.snapshots.set_labels(project.id, before, {"of": "a snapshot"})
    snapshot = await registry.snapshots.find(project.id, before)
    assert topic is not None
    assert subscription is not None
    assert snapshot is not None
    return topic, subscription, snapshot, schema


async def secrets_in(data: Path, clock: ManualClock) -> list[str]:
    """What the one subscription that has any is signed with."""
    async with installation(data, clock) as opened:
        found = await opened.registry.push_secrets.all_valid()
    return [secret for secrets in found.values() for secret in secrets]


async def test_deliveries_are_signed_with_the_same_secrets_after_a_move(furnished: Furnished, tmp_path: Path):
    before = await secrets_in(furnished.data, furnished.clock)

    await imported(furnished, furnished.export, tmp_path / "new")

    assert len(before) == 2
    assert await secrets_in(tmp_path / "new", furnished.clock) == before


async def identities_in(registry: Registry) -> list[object]:
    """What there is of named tokens, bindings and issuers."""
    found: list[object] = list(await registry.issuers.all())
    for each in (await registry.users.page(PageRequest(size=100))).items:
        found += [*await registry.named_tokens.of(each.id), *await registry.bindings.of(each.id)]
    return found


async def test_named_tokens_bindings_and_issuers_are_the_same_after_a_move(furnished: Furnished, tmp_path: Path):
    clock = furnished.clock
    async with installation(furnished.data, clock) as opened:
        before, principal = await identities_in(opened.registry), await opened.registry.users.principal(furnished.named)

    await imported(furnished, furnished.export, tmp_path / "new")

    async with installation(tmp_path / "new", clock) as opened:
        assert await identities_in(opened.registry) == before
        found = await opened.registry.users.principal(furnished.named)
        bound = await opened.registry.bindings.principal(ISSUER.url, "alice")
        holder = await opened.registry.named_tokens.holder(public_key().id)
    assert len(before) == 7
    assert holder is not None
    assert (holder.principal.name, holder.key) == ("user-2", public_key())
    assert found == principal
    assert found is not None
    assert found.login is not None
    assert bound == (replace(found, login=None), False)
    assert furnished.named not in furnished.export.read_text()


async def test_without_secrets_named_tokens_are_left_out_and_issuers_lose_theirs(furnished: Furnished, tmp_path: Path):
    clock, path = furnished.clock, tmp_path / "file"
    async with installation(furnished.data, clock) as source:
        before = await identities_in(source.registry)
        counts = await export(source, str(path), quiet, with_secrets=False)

    await imported(furnished, path, tmp_path / "new")

    assert ISSUER.client_secret not in path.read_text()
    assert (counts["binding"], counts["issuer"]) == (2, 2)
    assert "named_token" not in counts
    async with installation(tmp_path / "new", clock) as opened:
        after = await identities_in(opened.registry)
    assert after[0] == replace(ISSUER, client_secret="")
    assert after[1:] == [each for each in before[1:] if not isinstance(each, NamedToken)]


async def test_without_secrets_there_are_none_and_new_ones_are_made(furnished: Furnished, tmp_path: Path):
    clock, path = furnished.clock, tmp_path / "file"
    async with service(furnished.data, clock) as api:
        users = (await api.ask("GET", "/users?pageSize=1000"))["users"]
        push = (await api.ask("GET", "/projects/P/subscriptions/pushed"))["pushConfig"]
    async with installation(furnished.data, clock) as source:
        await export(source, str(path), quiet, with_secrets=False)

    held = path.read_text()
    secrets = [each["token"] for each in users] + [push["verificationHash"], push["authorizationHeader"]["value"]]
    secrets += await secrets_in(furnished.data, clock)
    assert all(secrets)
    assert [each for each in secrets if each in held] == []
    await imported(furnished, path, tmp_path / "new")
    async with service(tmp_path / "new", clock) as api:
        after = (await api.ask("GET", "/users?pageSize=1000"))["users"]
        new = (await api.ask("GET", "/projects/P/subscriptions/pushed"))["pushConfig"]
        assert (await api.answer("GET", "/users/profile", token=users[0]["token"])).status_code == 401
    assert [each["name"] for each in after] == [each["name"] for each in users]
    others = [each for each in (*users, *after) if each["name"] != FIRST_WORKER]  # whose token a setting says
    assert len({each["token"] for each in others}) == len(others) == 2 * (len(users) - 1)
    assert await secrets_in(tmp_path / "new", clock) == []
    assert new["verificationHash"] not in ("", push["verificationHash"])
    assert new["authorizationHeader"]["value"] not in ("", push["authorizationHeader"]["value"])


async def test_an_export_is_for_its_owner_alone_and_never_takes_the_place_of_a_file(tmp_path: Path):
    clock, path = ManualClock(), tmp_path / "file"
    async with installation(tmp_path / "data", clock) as source:
        await export(source, str(path), quiet)

        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(Unusable, match="File exists"):
            await export(source, str(path), quiet)


async def test_an_installation_that_holds_something_is_left_alone(furnished: Furnished):
    async with installation(furnished.data, furnished.clock) as source:
        with pytest.raises(Unusable, match="import into a new installation"):
            await import_(source, str(furnished.export), quiet)
        assert await source.registry.users.exist()


@pytest.mark.parametrize("after", ["message", "log", "lost", "user", "subscription"])
async def test_an_import_that_was_broken_off_is_served_by_nobody_and_goes_on(
    furnished: Furnished, tmp_path: Path, after: str
):
    lines = furnished.export.read_bytes().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if f'"kind":"{after}"'.encode() in line)
    cut = tmp_path / "cut"
    cut.write_bytes(b"".join(lines[:last]))
    async with installation(tmp_path / "new", furnished.clock) as target:
        with pytest.raises(Unusable, match="the last line is missing"):
            await import_(target, str(cut), quiet)

    with pytest.raises(Unusable, match="the registry is empty but the log is not"):
        async with service(tmp_path / "new", furnished.clock):
            pass
    await imported(furnished, furnished.export, tmp_path / "new")

    async with installation(tmp_path / "new", furnished.clock) as source:
        await export(source, str(tmp_path / "again"), quiet)
    assert (tmp_path / "again").read_bytes().splitlines(keepends=True)[1:] == lines[1:]
