"""An issuer on the loopback, and what asks it."""

import ipaddress
from collections.abc import AsyncIterator, Iterator

import pytest

from ams.core.clock import ManualClock
from ams.core.issuer import Issuer
from ams.core.names import IssuerName
from ams.identity.answers import new_fetcher
from ams.identity.discovery import Discovery
from ams.identity.keys import Keys
from ams.outgoing.fetching import Fetcher
from ams.outgoing.guard import Guard
from demo.issuer import CLIENT, CLIENT_SECRET, ExampleIssuer

LOOPBACK = Guard([ipaddress.ip_network("127.0.0.0/8")])


@pytest.fixture
def example() -> Iterator[ExampleIssuer]:
    with ExampleIssuer() as example:
        yield example


@pytest.fixture
def issuer(example: ExampleIssuer) -> Issuer:
    """What the service knows of the example."""
    return Issuer(
        name=IssuerName("example"),
        url=example.url,
        audiences=("ams",),
        client_id=CLIENT,
        client_secret=CLIENT_SECRET,
    )


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def fetcher() -> Fetcher:
    return new_fetcher(LOOPBACK)


@pytest.fixture
async def discovery(fetcher: Fetcher, clock: ManualClock) -> AsyncIterator[Discovery]:
    discovery = Discovery(fetcher, clock)
    yield discovery
    await discovery.close()


@pytest.fixture
async def keys(fetcher: Fetcher, clock: ManualClock) -> AsyncIterator[Keys]:
    """Keys that are not kept over a restart."""
    keys = Keys(fetcher, "", clock)
    yield keys
    await keys.close()
