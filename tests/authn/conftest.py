"""Fixtures of several files here: the service on both engines, certificates, and fronts."""

import ipaddress
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ams.storage.database.database import sqlite_url
from ams.web.listener import ListenerLimits
from tests.authn.http.front import FrontServer, serve_front
from tests.support.administration import ENGINES
from tests.support.authn import KEY, Service, open_service
from tests.support.certificates import Authority, Pair


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return sqlite_url(str(tmp_path / "authn.db"))
    from tests.support.databases import empty_store  # it needs the driver

    return empty_store(KEY)


@pytest.fixture
async def service(url: str) -> AsyncIterator[Service]:
    async with open_service(url) as opened:
        yield opened


@pytest.fixture
async def quick_service(tmp_path: Path) -> AsyncIterator[Service]:
    """The service on SQLite, for tests independent of the database."""
    async with open_service(sqlite_url(str(tmp_path / "quick.db"))) as opened:
        yield opened


@pytest.fixture(scope="session")
def front_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("front"))


@pytest.fixture(scope="session")
def front_pair(front_authority: Authority) -> Pair:
    return front_authority.signs("server", hosts=["localhost"])


@pytest.fixture(scope="session")
def jane(front_authority: Authority) -> Pair:
    return front_authority.signs("jane", ("C", "GR"), ("CN", "Jane"))


@pytest.fixture(scope="module")
def front(front_authority: Authority, front_pair: Pair) -> Iterator[FrontServer]:
    with serve_front(front_pair, front_authority.pair.chain) as running:
        yield running


@pytest.fixture(scope="module")
def impatient_front(front_authority: Authority, front_pair: Pair) -> Iterator[FrontServer]:
    limits = ListenerLimits(connections=100, handshake_seconds=2.0, goodbye_seconds=0.5)
    with serve_front(
        front_pair, front_authority.pair.chain, limits=limits, head_seconds=0.5, read_seconds=0.5
    ) as running:
        yield running


@pytest.fixture(scope="module")
def proxied_front(front_authority: Authority, front_pair: Pair) -> Iterator[FrontServer]:
    networks = [ipaddress.ip_network("127.0.0.1/32")]
    limits = ListenerLimits(connections=100, unshared=networks, only_from=networks)
    with serve_front(front_pair, front_authority.pair.chain, proxied=True, limits=limits, head_seconds=2.0) as running:
        yield running
