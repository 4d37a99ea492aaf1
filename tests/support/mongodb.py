"""A server that speaks MongoDB's wire protocol, for a test."""

import contextlib
from collections.abc import Iterator

from local_cluster.mongodb import MongoDB
from tests.support import marks


@contextlib.contextmanager
def mongodb() -> Iterator[str]:
    marks.require("kafka")  # needs Java and Maven, which tests with this mark have
    with MongoDB() as server:
        yield server.uri
