"""Fixtures for tests of several packages; their imports happen at first use.

A package with another fixture of the same name, such as one for both databases, has it in its own `conftest.py`.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ams.storage.registry.registry import Registry
    from ams.workers.pool import Pool
    from tests.support.certificates import Authority
    from tests.support.clock import ManualClock
    from tests.support.publishing import Publishing
    from tests.support.receiving import Receiving
    from tests.support.served import InProcessService
    from tests.support.use_cases import UseCases


@pytest.fixture
def clock() -> "ManualClock":
    from tests.support.clock import ManualClock

    return ManualClock()


@pytest.fixture(scope="module")
def frozen_thread_time() -> Iterator[None]:
    """Stop the thread's clock: a garbage collection takes milliseconds, which would count as work of a check."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.thread_time", lambda: 0.0)
        yield


@pytest.fixture
async def pool() -> "AsyncIterator[Pool]":
    from ams.workers.pool import Pool

    made = Pool(2)
    yield made
    await made.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> "Authority":
    from tests.support.certificates import Authority

    return Authority.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def registry_url(tmp_path: Path) -> str:
    from tests.support.administration import url_of

    return url_of("sqlite", tmp_path)


@pytest.fixture
async def registry(registry_url: str, clock: "ManualClock") -> "AsyncIterator[Registry]":
    from tests.support.administration import open_registry_at

    async with open_registry_at(registry_url, clock) as opened:
        yield opened


@pytest.fixture
async def use_cases(tmp_path: Path) -> "AsyncIterator[UseCases]":
    """Project `P` with topic `t` and subscription `s` on the embedded engines."""
    from tests.support.use_cases import open_use_cases

    async with open_use_cases(tmp_path) as opened:
        yield opened


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[InProcessService]":
    """One service for all tests of a process, with a manual clock; each test has its own project."""
    from tests.support.served import in_process_service

    with in_process_service(tmp_path_factory.mktemp("service") / "ams-data") as running:
        yield running


@pytest.fixture
def kafka_servers() -> str:
    from tests.support.parts import kafka_servers

    return kafka_servers()


@pytest.fixture
def kafka_prefix() -> str:
    from tests.support.parts import kafka_prefix

    return kafka_prefix()


@pytest.fixture
def postgres_url() -> Iterator[str]:
    from tests.support.parts import scratch_database

    with scratch_database() as url:
        yield url


@pytest.fixture(scope="session")
def running_publishing() -> "Iterator[Publishing]":
    from tests.support.publishing import publishing_server

    with publishing_server() as publishing:
        yield publishing


@pytest.fixture
def publishing(running_publishing: "Publishing") -> "Publishing":
    """An empty file server, shared by tests."""
    running_publishing.forget()
    return running_publishing


@pytest.fixture(scope="session")
def running_receiver(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Receiving]":
    from tests.support.receiving import run_receiver

    with run_receiver(tmp_path_factory.mktemp("receiving"), more_ports=60) as running:
        yield running


@pytest.fixture
def receiving(running_receiver: "Receiving") -> "Receiving":
    """A receiver of deliveries without history, shared by tests."""
    running_receiver.forget()
    return running_receiver
