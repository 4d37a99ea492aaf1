"""A receiver for all tests of the room."""

from collections.abc import Iterator

import pytest

from tests.support.receiving import Receiving, received


@pytest.fixture(scope="session")
def running_receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiving]:
    with received(tmp_path_factory.mktemp("receiving"), more_ports=60) as running:
        yield running


@pytest.fixture
def receiving(running_receiver: Receiving) -> Receiving:
    """A receiver, shared by tests, that remembers nothing yet."""
    running_receiver.forget()
    return running_receiver
