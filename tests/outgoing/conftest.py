"""A server of lists, as the certificate service's tests have it."""

from collections.abc import Iterator

import pytest

from tests.support.publishing import Publishing, published


@pytest.fixture(scope="session")
def running_publishing() -> Iterator[Publishing]:
    with published() as publishing:
        yield publishing


@pytest.fixture
def publishing(running_publishing: Publishing) -> Publishing:
    """A server of files, shared by tests, that has nothing yet."""
    running_publishing.forget()
    return running_publishing
