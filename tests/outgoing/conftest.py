"""A receiver on the loopback, and what may be asked of it."""

import functools
from collections.abc import Iterator

import pytest

from ams.outgoing import guard
from ams.outgoing.guard import Guard, networks
from tests.support.receiver import Receiver, answers, receiver

LOOPBACK = Guard(networks("127.0.0.0/8", "push_allow"))
trust = functools.cache(guard.trust)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    with receiver(tmp_path_factory.mktemp("ca"), answers("")) as running:
        yield running
