"""A receiver for all tests of the package, and the loops they run on."""

import asyncio
from collections.abc import Callable, Iterator, Mapping

import pytest
import uvloop

from tests.support.receiving import Receiving, received

Loops = Mapping[str, Callable[[], asyncio.AbstractEventLoop]]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Loops:
    """The sender is tested on the loop that the service runs on, what it has in common with others on the other too."""
    if item.path.name == "test_sender.py":
        return {"uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


@pytest.fixture(scope="session")
def running_receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiving]:
    with received(tmp_path_factory.mktemp("receiving"), more_ports=60) as running:
        yield running


@pytest.fixture
def receiving(running_receiver: Receiving) -> Receiving:
    """A receiver, shared by tests, that remembers nothing yet."""
    running_receiver.forget()
    return running_receiver
