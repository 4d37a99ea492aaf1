"""Secrets in the registry: nowhere to be read without the key, and the same under another key."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ams.core.clock import ManualClock
from ams.core.errors import Unusable
from ams.core.issuer import Issuer
from ams.core.push_config import AskedPush, created
from ams.push.delivery import new_secret
from ams.storage.database.database import sqlite_url
from ams.storage.export_format import encoded
from ams.storage.registry.records import Applicant
from ams.storage.registry.registry import Registry
from tests.storage.registry.makers import new_token
from tests.support.administration import make_project, make_user, open_registry_at

NEW_KEY = b"n" * 32
SUB = "s"
ENDPOINT = created(AskedPush(endpoint="https://receiver.example/in"), lambda: "x")
ISSUER = Issuer("i", "https://i.example", audiences=("ams",), client_id="ams", client_secret="hunter2 of the tests")


class Secrets:
    """One secret of each kind in a registry."""

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
        await self.registry.subscriptions.create(SUB, project.id, "S", "T", 10, config=ENDPOINT)
        for each in self.push:
            await self.registry.push_secrets.rotate(SUB, each, 1000, lambda _: None)
        await self.registry.issuers.create(ISSUER, None)

    async def check(self, registry: Registry) -> None:
        """Check that all of them are what they were."""
        for token in (self.own, self.named):
            assert (await registry.users.principal(token)).name == "anna"
        assert (await registry.users.by_token(self.own)).name == "anna"
        assert await registry.push_secrets.all_valid() == {SUB: self.push[::-1]}
        assert await registry.issuers.all() == (ISSUER,)


async def test_neither_the_files_nor_the_rows_show_a_secret_and_an_export_no_named_token(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    async with open_registry_at(sqlite_url(str(path))) as registry:
        secrets = Secrets(registry)
        await secrets.make()
        exported = b"".join(map(encoded, await registry.read_out(list, {}, with_secrets=True)))
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
        secrets = Secrets(registry)
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
