"""The registry as a whole: its files, its secrets under their key, pages and page tokens."""

import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Column, Integer, MetaData, Table, create_engine, insert, select, update

from ams.core.errors import Conflict, InvalidInput, SubscriptionGone, Unusable
from ams.core.issuer import Issuer
from ams.core.names import SubscriptionId, new_uuid
from ams.core.push_config import AskedPush, PushConfig, new_push_config
from ams.push.delivery_request import new_secret
from ams.storage.database.database import page_start, page_token, sqlite_url
from ams.storage.export_format import encode_line
from ams.storage.registry.push import PushSecretRecords
from ams.storage.registry.records import Applicant, PageRequest, Project
from ams.storage.registry.registry import Registry
from ams.storage.registry.statements import read_page
from ams.storage.registry.tables import push_secrets
from tests.storage.registry.makers import create_topic, new_subscription, new_token
from tests.support.administration import KEY, make_project, make_user, open_registry, open_registry_at
from tests.support.clock import ManualClock
from tests.support.plans import searched_through


async def test_everything_is_there_after_a_restart(registry_url: str) -> None:
    async with open_registry_at(registry_url) as registry:
        project = await make_project(registry)
        user = await make_user(registry, "anna", {project.id: ("publisher",)})
        await create_topic(registry, project.id)
        await registry.topics.change_access_list(project.id, "T", ["anna"])
        topic = await registry.topics.find(project.id, "T")

    async with open_registry_at(registry_url, ManualClock()) as registry:
        assert (await registry.projects.find("P"), await registry.topics.find(project.id, "T")) == (project, topic)
        found = await registry.users.by_name(user.name)
        assert (found.token, found.memberships[0].topics) == (user.token, ("T",))


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "registry.db").write_bytes(b"these are not the rows you are looking for" * 100)
    with pytest.raises(Unusable, match=r"^the registry's database is not usable: file is not a database$"):
        await Registry.open(sqlite_url(str(tmp_path / "registry.db")), KEY)


async def test_any_folder_name_will_do(tmp_path: Path) -> None:
    folder = tmp_path / "a b?c#d%20é"
    folder.mkdir()
    async with open_registry(folder):
        assert (folder / "registry.db").exists()


@pytest.mark.long
def test_a_start_does_not_load_the_migration_library(tmp_path: Path) -> None:
    """Its import would take a third of the second that a start may take."""
    script = f"""
import asyncio, sys
from ams.storage.database.database import sqlite_url
from ams.storage.registry.registry import Registry

async def start():
    registry = await Registry.open(sqlite_url({str(tmp_path / "registry.db")!r}), bytes(32))
    await registry.close()

asyncio.run(start())
sys.exit("alembic" in sys.modules)
"""
    for _ in ("a new database", "an old one"):
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


async def test_whose_a_token_or_an_identity_is_needs_an_index_only_however_many_there_are(registry: Registry) -> None:
    anna, ci = await make_user(registry, "anna"), "ci"
    _, text = await registry.named_tokens.create(anna.id, ci, expires_on=None, rights=None, created_by=None)
    await registry.bindings.create(anna.id, "b", "https://i.example", "s", created_by=None)

    for ask in (
        lambda: registry.users.principal(text), lambda: registry.users.principal("nobody's"),
        lambda: registry.named_tokens.find(anna.id, ci), lambda: registry.bindings.principal("https://i.example", "s"),
        lambda: registry.bindings.of(anna.id),
    ):  # fmt: skip
        assert await searched_through(registry, ask) == []


NEW_KEY = b"n" * 32
SUB = "s"
ENDPOINT = new_push_config(AskedPush(endpoint="https://receiver.example/in"), lambda: "x")
ISSUER = Issuer("i", "https://i.example", audiences=("ams",), client_id="ams", client_secret="hunter2 of the tests")


class SecretsOfEachKind:
    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.push = [new_secret(), new_secret()]
        self.first = self.own = self.named = ""

    async def make(self) -> None:
        anna = await make_user(self.registry, "anna")
        self.first = str(anna.token)
        self.own = str((await self.registry.users.refresh_token(anna.id)).token)
        self.named = await new_token(self.registry, anna)
        project = await make_project(self.registry)
        await new_subscription(self.registry, project, id=SUB, push=ENDPOINT)
        for each in self.push:
            await self.registry.push_secrets.rotate(SUB, each, 1000, lambda _: None)
        await self.registry.issuers.create(ISSUER, None)

    async def check(self, registry: Registry) -> None:
        for token in (self.own, self.named):
            assert (await registry.users.principal(token)).name == "anna"
        assert (await registry.users.by_token(self.own)).name == "anna"
        assert await registry.push_secrets.all_valid() == {SUB: self.push[::-1]}
        assert await registry.issuers.all() == (ISSUER,)


async def test_neither_the_files_nor_the_rows_show_a_secret_and_an_export_no_named_token(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    async with open_registry_at(sqlite_url(str(path))) as registry:
        secrets = SecretsOfEachKind(registry)
        await secrets.make()
        exported = b"".join(map(encode_line, await registry.export_lines(list, {}, with_secrets=True)))
        files = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    with closing(sqlite3.connect(path)) as opened:
        rows = "\n".join(opened.iterdump())

    assert secrets.named.encode() not in exported
    for secret in (secrets.first, secrets.own, secrets.named, *secrets.push, ISSUER.client_secret):
        assert secret not in rows
        assert secret.encode().hex().upper() not in rows.upper()
        assert [name for name, data in files.items() if secret.encode() in data] == []
    for token in (secrets.first, secrets.own, secrets.named):
        assert [name for name, data in files.items() if bytes.fromhex(token) in data] == []


async def test_secrets_stay_what_they_are_under_another_key(tmp_path: Path, clock: ManualClock) -> None:
    url = sqlite_url(str(tmp_path / "registry.db"))
    async with open_registry_at(url, clock) as registry:
        secrets = SecretsOfEachKind(registry)
        await secrets.make()
        assert await registry.change_key(NEW_KEY) == 2, "tokens are counted"

    reopened = await Registry.open(url, NEW_KEY, clock=clock)
    try:
        await secrets.check(reopened)
    finally:
        await reopened.close()


async def test_another_key_is_refused(registry_url: str) -> None:
    async with open_registry_at(registry_url):
        pass
    with pytest.raises(Unusable, match="the token key is not the one"):
        await Registry.open(registry_url, bytes(32))


async def test_what_is_secret_is_not_shown_by_accident(registry: Registry) -> None:
    user = await make_user(registry, "anna")
    registration = await registry.registrations.create(Applicant("bert"))
    assert str(user.token) not in repr(user)
    assert registration.activation_token not in repr(registration)


HOUR = 3_600_000
HOOK = new_push_config(AskedPush(mattermost_url="https://chat.example/hooks/x"), lambda: "x")


def require_nothing(_config: PushConfig | None) -> None:
    """Let every subscription have a secret."""


async def new_push_subscription(registry: Registry, project: Project, name: str = "S") -> SubscriptionId:
    return (await new_subscription(registry, project, name, push=ENDPOINT)).id


async def valid_now(secrets: PushSecretRecords, subscription: SubscriptionId) -> Sequence[str]:
    return (await secrets.all_valid()).get(subscription, ())


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8))
async def test_secrets_are_valid_as_promised(steps: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory):
    """Each step rotates the secrets, keeping the old ones for so many hours, and lets so many pass."""
    clock, ends = ManualClock(), {}
    async with open_registry_at(sqlite_url(str(tmp_path_factory.mktemp("r") / "registry.db")), clock) as registry:
        subscription = await new_push_subscription(registry, await make_project(registry))
        for number, (keep, passing) in enumerate(steps):
            before = [name for name, end in ends.items() if end is None or end > clock.wall()]
            until = await registry.push_secrets.rotate(subscription, f"whsec_{number}", keep * HOUR, require_nothing)
            assert until == (clock.wall() + keep * HOUR if before and keep else None)
            ends = {before[-1]: until} if before and until is not None else {}
            ends[f"whsec_{number}"] = None
            clock.advance(passing * HOUR)
            valid = [name for name, end in ends.items() if end is None or end > clock.wall()]
            assert await valid_now(registry.push_secrets, subscription) == valid[::-1]
            assert len(valid) <= 2


async def test_all_are_found_at_once_each_under_its_subscription(registry: Registry, project: Project) -> None:
    one, other = [await new_push_subscription(registry, project, name) for name in "AB"]
    await new_push_subscription(registry, project, "C")
    await registry.push_secrets.rotate(one, "whsec_a", HOUR, require_nothing)
    await registry.push_secrets.rotate(other, "whsec_b", HOUR, require_nothing)
    await registry.push_secrets.rotate(other, "whsec_c", HOUR, require_nothing)

    assert await registry.push_secrets.all_valid() == {one: ["whsec_a"], other: ["whsec_c", "whsec_b"]}


async def test_what_is_refused_changes_nothing(registry: Registry, project: Project) -> None:
    subscription, secrets = await new_push_subscription(registry, project), registry.push_secrets
    await secrets.rotate(subscription, "whsec_first", HOUR, require_nothing)

    def refuse(config: PushConfig | None) -> None:
        assert config == ENDPOINT
        raise Conflict("no")

    with pytest.raises(Conflict):
        await secrets.rotate(subscription, "whsec_second", HOUR, refuse)
    with pytest.raises(SubscriptionGone):
        await secrets.rotate(new_uuid(), "whsec_second", HOUR, require_nothing)

    assert await secrets.all_valid() == {subscription: ["whsec_first"]}


@pytest.mark.parametrize("config", [None, HOOK, "deleted"], ids=["pull", "mattermost", "deleted"])
async def test_what_has_no_endpoint_or_is_deleted_loses_secrets(registry: Registry, project: Project, config: Any):
    subscription = await new_push_subscription(registry, project)
    await registry.push_secrets.rotate(subscription, "whsec_first", HOUR, require_nothing)

    await registry.subscriptions.change(project.id, "S", config=lambda _: ENDPOINT)
    assert await valid_now(registry.push_secrets, subscription) == ["whsec_first"]
    if config == "deleted":
        await registry.subscriptions.delete(project.id, "S")
    else:
        await registry.subscriptions.change(project.id, "S", config=lambda _: config)

    assert await registry.push_secrets.all_valid() == {}


async def test_a_damaged_one_stops_no_other(registry: Registry, project: Project) -> None:
    one, other = [await new_push_subscription(registry, project, name) for name in "AB"]
    for each, secret in ((one, "whsec_a"), (other, "whsec_b")):
        await registry.push_secrets.rotate(each, secret, HOUR, require_nothing)
    damage = update(push_secrets).where(push_secrets.c.subscription_id == one).values(sealed=b"x")
    await registry._database.write(lambda connection: connection.execute(damage).rowcount)

    assert await registry.push_secrets.all_valid() == {one: [], other: ["whsec_b"]}


items = Table("items", MetaData(), Column("number", Integer, primary_key=True))


@given(st.integers(1, 10**18 - 1))
def test_a_token_reads_back(number: int) -> None:
    assert page_start(page_token(number)) == [number]


@given(st.text())
def test_any_text_is_a_token_or_is_refused(text: str) -> None:
    try:
        [number] = page_start(text)
    except InvalidInput:
        return

    assert number >= 0


@pytest.mark.parametrize("text", ["", "!", "abc", "YWJj", "MTI", "LTE=", "MTIzNDU2Nzg5MDEyMzQ1Njc4OTA=", "1é"])
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^Invalid page token$"):
        page_start(text)


@given(numbers=st.sets(st.integers(1, 500), max_size=30), size=st.integers(-2, 12) | st.integers())
def test_the_pages_together_are_the_list_from_the_newest_down(numbers: set[int], size: int) -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        items.create(connection)
        if numbers:
            connection.execute(insert(items), [{"number": number} for number in numbers])
        seen: list[int] = []
        token = ""
        for _ in range(len(numbers) + 1):
            page = read_page(connection, select(items), items.c.number, PageRequest(size, token), None)
            assert page.total == len(numbers)
            assert len(page.items) <= size or size <= 0
            seen += [row.number for row in page.items]
            token = page.next_token
            if not token:
                break
    engine.dispose()

    assert seen == sorted(numbers, reverse=True)
