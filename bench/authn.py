"""The certificate service in the bench: started beside AMS, with an authority, certificates and bindings."""

import asyncio
import contextlib
import random
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import insert

from ams.authn.store import Store
from ams.authn.store.records import _binding_row
from ams.authn.store.tables import bindings
from ams.authn.values import X509, Binding, BindingId, ServiceTypeId
from ams.client import Client, wire
from ams.core.clock import SystemClock
from ams.core.distinguished_names import of_certificate
from ams.storage.database.database import sqlite_url
from ams.storage.secrets import key_file
from bench.connection import request
from bench.handshake import CALLERS
from bench.processes import Failed, Server, Service
from demo.certificates.authority import Authority, Credentials
from demo.certificates.tenancy import add_service

LOGIN = request("GET", "/v1/service-types/ams/hosts/localhost:authx509", "none")
TOGETHER = 5_000
"""Rows that are added at once."""


class CertificateService(Server):
    """A running `ams authn serve`, on free ports of loopback, with the server certificate of an AMS beside it."""

    def __init__(self, data: Path, ams: Service, authorities: Path) -> None:
        self.data = data
        self.ca = ams.data / "ca.pem"
        flags = (
            *("--data", str(data), "--host", "127.0.0.1", "--port", "0", "--ops-port", "0"),
            *("--cert", str(ams.data / "server.pem"), "--key", str(ams.data / "server.key")),
            *("--client-ca", str(authorities), "--service-ca", str(self.ca)),
        )
        super().__init__(["ams.cli.main", "authn", "serve", *flags], data.with_name(f"{data.name}.stderr"))
        self.key = (data / "authn.key").read_text().strip()


@dataclass(frozen=True)
class Clients:
    """An authority, and one of its certificates for each caller."""

    folder: Path
    credentials: Sequence[Credentials]

    @property
    def authorities(self) -> Path:
        """Return the folder of authorities."""
        return self.folder / "authorities"

    @property
    def ca(self) -> Path:
        """Return the authority's certificate."""
        return next(self.authorities.glob("*.0"))

    @property
    def files(self) -> list[tuple[str, str]]:
        """Return certificates and keys as files."""
        return [(each.cert, each.key) for each in self.credentials]

    @classmethod
    def make(cls, folder: Path) -> "Clients":
        """Make the authority and the certificates."""
        folder.mkdir()
        authority = Authority("Bench CA", folder)
        authority.publish(folder / "authorities")
        return cls(folder, [authority.certificate_of(f"caller-{number}") for number in range(CALLERS)])


@contextlib.contextmanager
def certificate_service(data: Path, ams: Service, clients: Clients, count: int) -> Iterator[CertificateService]:
    """Run a certificate service with `count` bindings, those of the clients among them, each to a user of AMS."""
    with CertificateService(data, ams, clients.authorities) as running:
        with Client(running.url, running.key, ca=str(running.ca)) as admin:
            service = ServiceTypeId(add_service(admin, ams.url, ams.token))
        with Client(ams.url, ams.token, ca=str(running.ca)) as admin:
            details = wire.UserDetails()
            names = [f"{data.name}-{number}" for number in range(CALLERS)]
            users = [admin.call(wire.create_user(name, details)).uuid for name in names]
        subjects = [of_certificate(each.certificate.subject) for each in clients.credentials]
        bound = [_binding(service, subject, user) for subject, user in zip(subjects, users, strict=True)]
    bound += [_binding(service, name_of(number), users[0]) for number in range(count - len(bound))]
    asyncio.run(_fill(data, bound))
    with CertificateService(data, ams, clients.authorities) as running:
        yield running


def name_of(number: int) -> str:
    """Return the subject of a binding that no caller has."""
    return f"CN=host/host-{number}.site-{number % 997}.example.org,O=Example Federation,DC=org+DC=example-grid"


def look_ups_per_second(data: Path, count: int, seconds: float) -> float:
    """Return how many subjects a second are found among `count` bindings, one after the other, none in memory."""
    return asyncio.run(_looked_up(data, count - CALLERS, seconds))


async def _looked_up(data: Path, names: int, seconds: float) -> float:
    chosen, made = random.Random(names), 0
    store = await _store(data, cache_size=1)
    found = await store.service_types.find("ams")
    assert found is not None
    began = time.perf_counter()
    while time.perf_counter() < began + seconds:
        name = name_of(chosen.randrange(names))
        if await store.bindings.for_login(name, found.uuid, "localhost", X509) is None:
            raise Failed("a binding was not found")
        made += 1
    took = time.perf_counter() - began
    await store.close()
    return made / took


async def _store(data: Path, *, cache_size: int) -> Store:
    key = key_file(str(data / "authn.seal"), create=False)
    return await Store.open(sqlite_url(str(data / "authn.db")), key, cache_size=cache_size)


def _binding(service: ServiceTypeId, name: str, user: str) -> Binding:
    identity = str(uuid.uuid4())
    return Binding(
        uuid=BindingId(identity),
        name=identity,
        service_uuid=service,
        host="localhost",
        auth_identifier=name,
        unique_key=user,
        auth_type=X509,
        created_on=SystemClock().wall(),
    )


async def _fill(data: Path, bound: Sequence[Binding]) -> None:
    """Add bindings, many at once: one after the other would take minutes."""
    store = await _store(data, cache_size=1)
    for begin in range(0, len(bound), TOGETHER):
        some = bound[begin : begin + TOGETHER]
        rows = [{"uuid": each.uuid, "created_on": each.created_on, **_binding_row(each)} for each in some]
        await store.database.write(lambda connection, rows=rows: connection.execute(insert(bindings), rows))  # type: ignore[misc]
    await store.close()
