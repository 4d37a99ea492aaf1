"""The store on both engines."""

from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert, select

from ams.authn.store import Store
from ams.authn.store.tables import bindings
from ams.authn.values import X509, AuthMethod, Binding, BindingId, ServiceType, ServiceTypeId
from ams.core.clock import ManualClock, Milliseconds
from ams.core.errors import AlreadyExists, Damaged, NotFound, RegistryUnavailable, Unusable
from ams.core.names import new_uuid
from ams.storage.database.database import sqlite_url
from ams.storage.secrets import Secrets
from tests.support.authn import DN, HOST, KEY, Service
from tests.support.waiting import wait_until_async

NOW = Milliseconds(1_700_000_000_000)


def a_service_type(name: str = "ams") -> ServiceType:
    uuid = ServiceTypeId(new_uuid())
    return ServiceType(
        uuid=uuid, name=name, hosts=(HOST,), auth_types=(X509,), auth_method="headers", type="ams", created_on=NOW
    )


async def made_type(service: Service) -> ServiceType:
    made = a_service_type()
    await service.store.service_types.create(made)
    return made


def a_binding(of: ServiceType, name: str = "b", identifier: str = DN) -> Binding:
    return Binding(
        uuid=BindingId(new_uuid()), name=name, service_uuid=of.uuid, host=HOST, auth_identifier=identifier,
        unique_key="user", auth_type=X509, created_on=NOW,
    )  # fmt: skip


async def test_a_login_finds_what_was_changed_a_moment_ago(service: Service) -> None:
    store, one = service.store, await made_type(service)
    await store.bindings.create(made := a_binding(one))
    shown = (DN, one.uuid, HOST, X509)
    assert await store.bindings.for_login(*shown) == made
    await store.bindings.change("b", NOW, lambda present, _: replace(present, unique_key="new"))
    assert (await store.bindings.for_login(*shown) or made).unique_key == "new"
    await store.bindings.change("b", NOW, lambda present, _: replace(present, auth_identifier="CN=other"))
    assert await store.bindings.for_login(*shown) is None
    assert await store.bindings.for_login("CN=other", *shown[1:]) is not None
    await store.bindings.delete("b")
    assert await store.bindings.for_login("CN=other", *shown[1:]) is None
    await store.bindings.create(a_binding(one))
    assert await store.bindings.for_login(*shown) is not None
    await store.service_types.delete(one.uuid)
    assert await store.bindings.for_login(*shown) is None
    assert await store.service_types.find("ams") is None


async def test_a8_the_first_subject_stays_until_it_is_forgotten(service: Service) -> None:
    store, one = service.store, await made_type(service)
    await store.bindings.create(made := a_binding(one))
    await store.bindings.for_login(DN, one.uuid, HOST, X509)
    assert await store.bindings.note_login(made.uuid, NOW, "a" * 64)
    assert await store.bindings.note_login(made.uuid, NOW, "a" * 64)
    assert not await store.bindings.note_login(made.uuid, NOW, "b" * 64)
    found = await store.bindings.for_login(DN, one.uuid, HOST, X509)
    assert found is not None
    assert (found.subject_sha256, found.last_auth) == ("a" * 64, NOW)
    await store.bindings.change("b", NOW, lambda present, _: replace(present, subject_sha256=""))
    assert await store.bindings.note_login(made.uuid, NOW, "b" * 64)
    assert not await store.bindings.note_login(BindingId("none"), NOW, "b" * 64)


async def test_a4_the_database_itself_refuses_a_second_one(service: Service) -> None:
    store, one = service.store, await made_type(service)
    await store.bindings.create(made := a_binding(one))

    def put_a_second_one(connection: Connection) -> None:
        row = dict(connection.execute(select(bindings).where(bindings.c.uuid == made.uuid)).one()._mapping)
        del row["number"]
        connection.execute(insert(bindings).values(row | {"uuid": new_uuid(), "name": "c"}))

    with pytest.raises(AlreadyExists, match="with this auth_identifier already exists"):
        await store.database.write(put_a_second_one)
    with pytest.raises(NotFound, match="Host was not found"):
        await store.bindings.create(replace(a_binding(one, "d", "CN=d"), host="gone.example"))


async def test_names_and_identifiers_of_any_length_and_letters_are_kept(service: Service) -> None:
    store, one = service.store, await made_type(service)
    for identifier in ("CN=" + "x" * 20_000, "CN=\x00\x1a\u00e9\U0001f600", "'; DROP TABLE authn_bindings; --"):
        made = a_binding(one, new_uuid(), identifier)
        await store.bindings.create(made)
        assert await store.bindings.for_login(identifier, one.uuid, HOST, X509) == made


async def test_a_login_looks_into_one_index_however_many_bindings_there_are(quick: Service) -> None:
    plan = await quick.store.database.read(
        lambda connection: connection.exec_driver_sql(
            "EXPLAIN QUERY PLAN SELECT * FROM authn_bindings WHERE login = 'x'"
        ).all()
    )
    assert [row.detail for row in plan] == [
        "SEARCH authn_bindings USING INDEX sqlite_autoindex_authn_bindings_3 (login=?)"
    ]


async def test_a_store_opens_with_its_own_key_only(tmp_path: Path) -> None:
    url = sqlite_url(str(tmp_path / "authn.db"))
    await (await Store.open(url, KEY)).close()
    await (await Store.open(url, KEY)).close()
    with pytest.raises(Unusable, match="not the one they were encrypted with"):
        await Store.open(url, bytes(32))
    (tmp_path / "none.db").write_bytes(b"no database" * 1000)
    with pytest.raises(Unusable, match="the certificate service's database is not usable"):
        await Store.open(sqlite_url(str(tmp_path / "none.db")), KEY)
    with pytest.raises(RegistryUnavailable, match="does not answer"):
        await Store.open("postgresql://127.0.0.1:1/none?connect_timeout=1", KEY)


def test_a16_a_secret_reads_back_for_its_owner_only() -> None:
    secrets = Secrets(KEY)
    sealed = secrets.seal("secret", "auth method 1")
    assert b"secret" not in sealed
    assert secrets.open(sealed, "auth method 1") == "secret"
    for damaged, owner in ((sealed, "auth method 2"), (sealed[:-1], "auth method 1"), (b"", "auth method 1")):
        with pytest.raises(Damaged):
            secrets.open(damaged, owner)


def test_a16_secrets_are_not_in_what_values_print() -> None:
    method = AuthMethod(
        uuid="u", service_uuid=ServiceTypeId("s"), host=HOST, port=1, type="headers", created_on=NOW,
        access_key="SECRET", headers={"x": "SECRET"},
    )  # fmt: skip
    assert "SECRET" not in repr(method)


@pytest.mark.postgres
async def test_a_change_on_another_node_is_seen() -> None:
    from tests.support.databases import empty_store

    url, clock, one = empty_store(KEY), ManualClock(), a_service_type()
    here, there = await Store.open(url, KEY, clock=clock), await Store.open(url, KEY, clock=clock)
    try:
        await there.service_types.create(one)
        await there.bindings.create(a_binding(one))
        await wait_until_async(lambda: not here.away and not there.away)
        assert await _user(here, one) == "user"

        async def is_new() -> bool:
            return await _user(here, one) == "new"

        async def is_gone() -> bool:
            return not await here.service_types.find("ams") and not await _user(here, one)

        await there.bindings.change("b", NOW, lambda present, _: replace(present, unique_key="new"))
        await wait_until_async(is_new)
        await there.service_types.delete(one.uuid)
        await wait_until_async(is_gone)
    finally:
        await here.close()
        await there.close()


async def _user(store: Store, one: ServiceType) -> str:
    found = await store.bindings.for_login(DN, one.uuid, HOST, X509)
    return found.unique_key if found else ""
