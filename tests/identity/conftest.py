"""An issuer on the loopback, and its clients."""

import ipaddress
from collections.abc import AsyncIterator, Iterator

import pytest

from ams.core.issuer import Issuer
from ams.core.names import IssuerName
from ams.identity.issuer_keys import IssuerKeyCache
from ams.identity.issuers import Discovery, issuer_client
from ams.outgoing.address_guard import Guard
from ams.outgoing.client import HttpClient
from demo.issuer import CLIENT, CLIENT_SECRET, ExampleIssuer
from tests.support.clock import ManualClock

LOOPBACK = Guard([ipaddress.ip_network("127.0.0.0/8")])


@pytest.fixture
def example() -> Iterator[ExampleIssuer]:
    with ExampleIssuer() as example:
        yield example


@pytest.fixture
def issuer(example: ExampleIssuer) -> Issuer:
    return Issuer(
        name=IssuerName("example"), url=example.url, audiences=("ams",), client_id=CLIENT, client_secret=CLIENT_SECRET
    )


@pytest.fixture
def client() -> HttpClient:
    return issuer_client(LOOPBACK)


@pytest.fixture
async def discovery(client: HttpClient, clock: ManualClock) -> AsyncIterator[Discovery]:
    discovery = Discovery(client, clock)
    yield discovery
    await discovery.close()


@pytest.fixture
async def keys(client: HttpClient, clock: ManualClock) -> AsyncIterator[IssuerKeyCache]:
    keys = IssuerKeyCache(client, "", clock)
    yield keys
    await keys.close()
